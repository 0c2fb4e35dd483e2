"""What the findings look at: some rows of the model, and what the posterior says of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from scipy.special import ndtri

from ornstein.compute.precision import double
from ornstein.model import tables
from ornstein.model.families.expected import along
from ornstein.model.families.family import Law
from ornstein.model.regression import GLM
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.streams import generator
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.posterior.posterior import Posterior

MOST_ROWS, MOST_DRAWS, SINGLE = 20_000, 40, 8
EDGE = 1e-12  # transforms are kept so far from 0 and 1


@dataclass(frozen=True, eq=False)
class Evidence:
    """At most 20,000 rows of a regression, drawn at random, at 40 draws and at the mean."""

    posterior: Posterior
    model: GLM
    rows: Array
    seed: int = 0

    @classmethod
    def of(cls, posterior: Posterior, model: GLM, seed: int) -> Evidence:
        rng = generator(seed)
        count = min(model.n_data, MOST_ROWS)
        return cls(posterior, model, np.sort(rng.choice(model.n_data, count, replace=False)), seed)

    @property
    def family(self) -> str:
        return self.model.likelihood.family

    @property
    def discrete(self) -> bool:
        return self.model.likelihood.law.discrete

    @cached_property
    def y(self) -> Array:
        """One number per row: successes of a binomial family, times of survival."""
        response = np.asarray(self.model.response[self.rows], dtype=float)
        return response if response.ndim == 1 else response[:, 0]

    @cached_property
    def columns(self) -> Array:
        """(rows, columns), dense."""
        block: Any = self.model.features[self.rows]
        return np.asarray(block.toarray() if tables.is_sparse(block) else block, dtype=float)

    @cached_property
    def censored(self) -> Array | None:
        """Which times are no events; None of families without."""
        if "event" not in self.model.likelihood.law.columns:
            return None
        return np.asarray(self.model.response[self.rows][:, 1] == 0)

    @cached_property
    def predictor(self) -> Array:
        """u at the posterior mean, (rows,), or with the classes as a second axis."""
        return self._rows_at(self.posterior.mean[None]).predictors(slice(None))[0]

    @cached_property
    def law(self) -> Law:
        """The law of each row at the posterior mean, (1, rows)."""
        return self._law(self._rows_at(self.posterior.mean[None]))

    @cached_property
    def residuals(self) -> Array:
        """(y − E y)/sd(y) at the posterior mean."""
        return (self.y - self.law.mean()[0]) / np.maximum(self.law.std()[0], 1e-300)

    @cached_property
    def probabilities(self) -> Array:
        """Of labels at single draws, (draws, rows, labels).

        Parameters of the mean follow their rows, the more the fewer rows there are for each. Those
        of one draw do not: if the model is right, the labels go with them as with the true ones.
        """
        found = np.concatenate(list(self._rows_at(self._single_draws).blocks()), axis=1)
        return np.stack([1.0 - found, found], axis=2) if found.ndim == 2 else found

    @cached_property
    def mean_probabilities(self) -> Array:
        """Of labels over the posterior: (rows,), or with the classes as a second axis."""
        return np.concatenate(
            [block.mean(axis=0) for block in self._rows_at(self._draws).blocks()], axis=0
        )

    @cached_property
    def along_prediction(self) -> list[tuple[Array, Array]]:
        """What curves along the prediction are sought in, and the prediction: of labels at single
        draws, else at the mean.
        """
        law = self.model.likelihood.law
        if not law.labels or law.ordered:
            return [(self.scores, self.predictor)]
        rows = self._rows_at(self._single_draws)
        there = self._law(rows)
        residuals = (self.y - there.mean()) / np.maximum(there.std(), 1e-300)
        return list(zip(residuals, rows.predictors(slice(None)), strict=True))

    @cached_property
    def transforms(self) -> Array:
        """Where y lies in its predictive law, uniform if the model fits; at a random place of the
        jump where outcomes are discrete, and of all that is left where a time is censored.
        """
        law = self._law(self._rows_at(self._draws))
        below = above = np.mean(law.cdf(self.y), axis=0)
        if self.discrete:
            below = np.mean(law.cdf(self.y - 1.0), axis=0)
        if self.censored is not None:
            above = np.where(self.censored, 1.0, above)
        share = generator(self.seed + 1).uniform(size=len(above))
        return np.clip(below + share * (above - below), EDGE, 1.0 - EDGE)

    @cached_property
    def scores(self) -> Array:
        """The transforms as standard normal numbers."""
        return ndtri(self.transforms)

    @cached_property
    def trending(self) -> Array:
        """The residuals that curves are sought in."""
        law = self.model.likelihood.law
        return self.residuals if law.labels and not law.ordered else self.scores

    @cached_property
    def slopes(self) -> tuple[Array, Array]:
        """First and second derivative of log p(y | u) of each row at the posterior mean."""
        likelihood, hyper = self.model.likelihood, self.model.hyperparameters
        shared = self.shared_at_mean

        def density(u: Any, y: Any, own: Any) -> Any:
            return likelihood.law.log_density(u, y, own, hyper)

        with double():
            first = jax.jit(jax.vmap(jax.grad(density)))
            second = jax.jit(jax.vmap(jax.grad(jax.grad(density))))
            response = np.asarray(self.model.response[self.rows])
            values = response if response.dtype.kind in "iu" else response.astype(float)
            return (
                np.asarray(first(self.predictor, values, shared)),
                np.asarray(second(self.predictor, values, shared)),
            )

    @cached_property
    def shared_at_mean(self) -> dict[str, Array]:
        """The auxiliary parameters of each row at the posterior mean."""
        found = self._rows_at(self.posterior.mean[None]).shared(slice(None))
        rows = len(self.predictor)
        known = {auxiliary.name for auxiliary in self.model.likelihood.auxiliaries}
        return {
            name: np.broadcast_to(value[0], (rows,))
            for name, value in found.items()
            if name in known
        }

    @property
    def _draws(self) -> Array:
        flat = self.posterior.draws.reshape(-1, self.posterior.draws.shape[-1])
        if not len(flat):
            return self.posterior.mean[None]
        return flat[np.unique(np.linspace(0, len(flat) - 1, MOST_DRAWS).astype(int))]

    @property
    def _single_draws(self) -> Array:
        return self._draws[:: -(-len(self._draws) // SINGLE)]

    def _rows_at(self, draws: Array) -> RowsAtDraws:
        offset, known = self.model.data.get("offset"), self.model.hyperparameters
        return RowsAtDraws(
            self.model.likelihood,
            self.model.layout,
            draws,
            self.posterior.mean,
            self.model.features[self.rows],
            None if offset is None else np.asarray(offset[self.rows], dtype=float),
            float(known["noise_scale"]) if "noise_scale" in known else None,
        )

    def _law(self, rows: RowsAtDraws) -> Law:
        predictor, shared = rows.predictors(slice(None)), rows.shared(slice(None))
        spread: dict[str, Any] = {name: along(predictor, value) for name, value in shared.items()}
        if "trials" in self.model.likelihood.law.columns:
            spread["trials"] = np.asarray(self.model.response[self.rows][:, 1], dtype=float)
        return self.model.likelihood.law.outcome(predictor, spread)
