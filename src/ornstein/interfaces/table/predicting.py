"""Predictions for the rows of a new table.

gaussian, poisson: mean, sd and interval of a *new observation*: the posterior's spread and the
noise of one value together. bernoulli, categorical: mean, sd and interval of the *probability* of a
class, over the posterior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.table.encoding import Encoding
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

    from ornstein.posterior.posterior import Posterior

ROWS_AT_ONCE = 8192


def predict_table(
    posterior: Posterior,
    encoding: Encoding,
    frame: pandas.DataFrame,
    probability: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> pandas.DataFrame:
    """The table with columns added: target_mean, target_sd, target_low and target_high, and for
    classes target_label.

    With more than two classes there is one set of columns for each: target_mean[label], and so on.
    """
    import pandas

    if not 0.0 < probability < 1.0:
        raise InputError(
            f"the probability of the interval must lie between 0 and 1; got {probability}"
        )
    thinned = thinned_draws(posterior, draws, seed)
    rng = np.random.default_rng(seed)
    blocks = [
        _summarised(encoding, *block, probability, rng)
        for block in _blocks(thinned, encoding, frame)
    ]
    added = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    taken = [name for name in added if name in frame.columns]
    if taken:
        raise InputError(f"the table already has a column {taken[0]!r}; rename it")
    return pandas.concat([frame, pandas.DataFrame(added, index=frame.index)], axis=1)


def thinned_draws(posterior: Posterior, draws: int, seed: int) -> Posterior:
    """The same posterior as one chain of at most `draws` of its draws."""
    flat = posterior.draws.reshape(-1, posterior.draws.shape[-1])
    if not len(flat):
        raise InputError("the posterior holds moments only, no draws to predict with")
    if draws < len(flat):
        flat = flat[np.random.default_rng(seed).choice(len(flat), draws, replace=False)]
    return replace(posterior, draws=flat[None])


def _blocks(
    posterior: Posterior, encoding: Encoding, frame: pandas.DataFrame
) -> Iterator[tuple[Array, Array | None]]:
    """Draws of E[y|x, θ] (draws, rows, …) and of σ, both on the original scale, for some rows at a
    time.
    """
    features = encoding.features(frame).to_numpy()
    params = posterior.params
    scale = (
        encoding.target_scale * np.exp(params["log_scale"][0]) if "log_scale" in params else None
    )
    for start in range(0, len(features), ROWS_AT_ONCE):
        expected = posterior.predict(features[start : start + ROWS_AT_ONCE], draws=None).draws
        yield expected * encoding.target_scale + encoding.target_mean, scale


def _summarised(
    encoding: Encoding,
    expected: Array,
    scale: Array | None,
    probability: float,
    rng: np.random.Generator,
) -> dict[str, Array]:
    target = encoding.target
    if encoding.family == "categorical":
        columns: dict[str, Array] = {
            f"{target}_label": np.array(encoding.classes)[expected.mean(axis=0).argmax(axis=1)]
        }
        for position, label in enumerate(encoding.classes):
            described = _described(
                expected[:, :, position], expected[:, :, position], 0.0, probability
            )
            columns |= {f"{target}_{name}[{label}]": values for name, values in described.items()}
        return columns
    if encoding.family == "bernoulli":
        described = _described(expected, expected, 0.0, probability)
        label = np.array(encoding.classes)[(described["mean"] > 0.5).astype(int)]
        return {
            f"{target}_label": label,
            **{f"{target}_{name}": values for name, values in described.items()},
        }
    if encoding.family == "poisson":
        described = _described(
            expected, rng.poisson(expected).astype(float), expected.mean(axis=0), probability
        )
    else:
        assert scale is not None
        observed = expected + scale[:, None] * rng.standard_normal(expected.shape)
        described = _described(expected, observed, float(np.mean(scale**2)), probability)
    return {f"{target}_{name}": values for name, values in described.items()}


def _described(
    expected: Array, observed: Array, noise: Array | float, probability: float
) -> dict[str, Array]:
    """Mean; sd with the variance of the noise added; the interval of what is observed."""
    tail = (1.0 - probability) / 2.0
    low, high = np.quantile(observed, [tail, 1.0 - tail], axis=0)
    spread = (
        np.sqrt(expected.var(axis=0, ddof=1) + noise)
        if len(expected) > 1
        else np.sqrt(noise + 0.0 * expected[0])
    )
    return {"mean": expected.mean(axis=0), "sd": spread, "low": low, "high": high}
