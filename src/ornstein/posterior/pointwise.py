"""log p(y_n | θ_d) of the rows of a model at draws, some rows at a time, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ornstein.checks import require_memory
from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.model.families.outcome import log_densities
from ornstein.model.regression import GLM
from ornstein.posterior.at_draws import AT_ONCE, RowsAtDraws
from ornstein.posterior.own_function import OwnGroups
from ornstein.posterior.predictive import Predictive
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.model.model import Model

# Rows at once: XLA's threads can wait forever for a factorisation of many small matrices.
BLOCK = 128
GROUPS = ("posterior_predictive", "log_likelihood", "observed_data")


@dataclass(frozen=True, eq=False)
class Pointwise:
    """The log likelihood of single rows of any model; weights count."""

    model: Model

    def outcomes(self, draws: Array, centre: Array, seed: int) -> Array:
        """One value of each row at each draw: (n, rows)."""
        model = self.model
        if not isinstance(model, GLM) or model.likelihood.law.columns:
            raise InputError(
                "posterior_predictive needs a regression (orn.glm, orn.regress) whose y is one"
                " column"
            )
        offset, known = model.data.get("offset"), model.hyperparameters
        rows = RowsAtDraws(
            model.likelihood,
            model.layout,
            draws,
            centre,
            model.features,
            offset,
            float(known["noise_scale"]) if "noise_scale" in known else None,
        )
        return Predictive(rows).outcome.draws(seed)

    def at(self, draws: Array, rows: Array, centre: Array | None = None) -> Array:
        """For draws (n, D) and the indices of some rows: (n, rows).

        A regression's are computed about `centre`, which keeps the digits that draws share.
        """
        some = max(1, AT_ONCE // max(1, len(draws)))
        parts = [rows[start : start + some] for start in range(0, max(1, len(rows)), some)]
        of_rows = self._regression if isinstance(self.model, GLM) else self._own
        middle = draws.mean(axis=0) if centre is None else centre
        return np.concatenate([of_rows(draws, part, middle) for part in parts], axis=1)

    def _regression(self, draws: Array, rows: Array, centre: Array) -> Array:
        model = self.model
        assert isinstance(model, GLM)
        offset, weights = model.data.get("offset"), model.data.get("weight")
        found = RowsAtDraws(
            model.likelihood,
            model.layout,
            draws,
            centre,
            model.features[rows],
            None if offset is None else np.asarray(offset[rows], dtype=float),
        )
        response = np.asarray(model.response[rows])
        values = response if response.dtype.kind in "iu" else response.astype(float)
        shared = found.shared(slice(None))
        density = log_densities(
            model.likelihood, found.predictors(slice(None)), values, shared, model.hyperparameters
        )
        return density if weights is None else density * np.asarray(weights[rows], dtype=float)

    def _own(self, draws: Array, rows: Array, centre: Array) -> Array:
        model = self.model
        data = jax.tree.map(lambda leaf: np.asarray(leaf[rows]), model.data)
        of_rows = _rows_at(model)
        with double():
            return np.stack([np.asarray(of_rows(draw, data)) for draw in draws])


def groups_of(
    groups: Sequence[str], model: Model | None, draws: Array, centre: Array, seed: int
) -> dict[str, dict[str, Array]]:
    """Arrays for ArviZ by group; draws are (chains, draws, D)."""
    listed = isinstance(groups, Sequence) and not isinstance(groups, str)
    if not listed or not set(groups) <= set(GROUPS):
        raise InputError(f"groups must be some of {', '.join(GROUPS)}; got {groups!r}")
    if model is None:
        raise InputError(
            "these groups need the data, which a saved file does not hold: to_arviz(…, model=…)"
        )
    if isinstance(model, OwnGroups):
        return {name: model.arviz_group(name, draws, seed) for name in groups}
    pointwise, flat = Pointwise(model), draws.reshape(-1, draws.shape[-1])
    require_memory("a group", len(flat), model.n_data)
    found: dict[str, dict[str, Array]] = {}
    # ArviZ compares the others with it
    with_data = "observed_data" not in groups and isinstance(model, GLM)
    for name in (*groups, *(["observed_data"] if with_data else [])):
        if name == "observed_data":
            response = model.response if isinstance(model, GLM) else jax.tree.leaves(model.data)[-1]
            found[name] = {"y": np.asarray(response)}
            continue
        values = (
            pointwise.at(flat, np.arange(model.n_data), centre)
            if name == "log_likelihood"
            else pointwise.outcomes(flat, centre, seed)
        )
        found[name] = {"y": values.reshape(*draws.shape[:2], -1)}
    return found


def _rows_at(model: Model) -> Any:
    """(θ, rows) ↦ log p of each row."""
    loss, hyper = model.loss, model.hyperparameters

    def all_rows(theta: Any, data: Any) -> Any:
        params = loss.layout.unflatten(theta)
        one = partial(loss.log_likelihood, params)
        return jax.lax.map(lambda row: one(row, hyper), data, batch_size=BLOCK)

    return jax.jit(all_rows)
