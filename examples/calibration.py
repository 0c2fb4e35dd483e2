"""How good are predicted probabilities? Accuracy, log loss and calibration error, for the examples beside this file."""

from __future__ import annotations

import numpy as np


def scores(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> str:
    """Accuracy, mean negative log likelihood, and the expected calibration error over bins of confidence."""
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    log_loss = -np.mean(np.log(probabilities[np.arange(len(labels)), labels]))
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    error = sum(abs(np.sum(hit[bin_of == b]) - np.sum(confidence[bin_of == b])) for b in range(bins)) / len(labels)
    return f"accuracy {hit.mean():.3f}   NLL {log_loss:.3f}   ECE {error:.3f}"
