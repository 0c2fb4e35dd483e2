"""How good are predicted probabilities? Accuracy, log loss and calibration error, for the examples
beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def measures(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> np.ndarray:
    """Accuracy, mean negative log likelihood, and the expected calibration error over bins of
    confidence.
    """
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    log_loss = -np.mean(np.log(probabilities[np.arange(len(labels)), labels]))
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    error = sum(
        abs(np.sum(hit[bin_of == b]) - np.sum(confidence[bin_of == b])) for b in range(bins)
    ) / len(labels)
    return np.array([hit.mean(), log_loss, error])


def scores(probabilities: np.ndarray, labels: np.ndarray) -> str:
    """The measures in a line."""
    accuracy, log_loss, error = measures(probabilities, labels)
    return f"accuracy {accuracy:.3f}   NLL {log_loss:.3f}   ECE {error:.3f}"


def over_splits(found: Sequence[np.ndarray], form: str = ".3f") -> str:
    """Means over splits of the data, each ± its standard deviation over them; for differences give
    the form a sign.
    """
    pairs = zip(
        ("accuracy", "NLL", "ECE"),
        np.mean(found, axis=0),
        np.std(found, axis=0, ddof=1),
        strict=True,
    )
    return "   ".join(f"{name} {mean:{form}} ± {spread:.3f}" for name, mean, spread in pairs)
