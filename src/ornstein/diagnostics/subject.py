"""What is being looked at: a posterior, the model where it is at hand, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ornstein.derivatives import Autodiff
from ornstein.diagnostics.monte_carlo import MonteCarloError, expected_error
from ornstein.diagnostics.stationarity import SHORTEST
from ornstein.minibatch import effective_batch
from ornstein.theory import Process
from ornstein.theory.modes import congruence

if TYPE_CHECKING:
    from ornstein.curvature import Curvature
    from ornstein.dynamics import Dynamics
    from ornstein.model import Model
    from ornstein.posterior import Posterior
    from ornstein.prediction import Prediction

Array = np.ndarray
# Passes over all data that a check may take, as a share of those that sampling took, or as many as look at so many rows; and
# their least and largest number.
SHARE_OF_PASSES, ROWS, FEWEST_PASSES, MOST_PASSES = 0.01, 1e6, 64, 400
# Draws at which the gradients of all rows are looked at: as many as make ROWS rows, but no fewer and no more.
FEWEST_DRAWS, MOST_DRAWS = 8, 100
# Beyond so many parameters what costs D³ or D² numbers per row is left out, or done on diagonals.
LARGE = 200
ABSENT = "it needs the model, which a saved file does not hold: check(model=…)"


@dataclass(frozen=True, eq=False)
class Law:
    """What ran and what theory said would come, where a stationary law was predicted."""

    dynamics: Dynamics
    curvature: Curvature
    prediction: Prediction
    process: Process

    @property
    def dimension(self) -> int:
        return self.curvature.dim

    @cached_property
    def spread(self) -> Array:
        """Covariance of single iterates, which window means are narrower than."""
        return self.process.modes.to_theta(self.process.stationary)

    @cached_property
    def noise_met(self) -> Array:
        """C + K[Σ]: the gradient noise that theory expects along the chain.

        A saved file holds the law and not how the noise answers; what was met follows from what it made of the chain.
        """
        if self.curvature.noise_response is not None:
            return self.curvature.noise_at(self.spread)
        modes, covariance, dynamics = self.process.modes, self.process.stationary, self.dynamics
        driven = covariance * modes.divisor("discrete", diagonal=covariance.ndim == 1)
        if dynamics.injected is not None:
            driven = driven - modes.injected_noise(dynamics.injected)
        batch = effective_batch(dynamics.scheme, self.curvature.n_data, dynamics.batch_size)
        met = batch * congruence(modes.inverse.T, driven)
        return met + self.curvature.noise if dynamics.control_variates else met


@dataclass(frozen=True, eq=False)
class Subject:
    """A posterior under inspection."""

    posterior: Posterior
    model: Model | None
    seed: int = 0

    @cached_property
    def law(self) -> Law | None:
        post = self.posterior
        if (
            post.dynamics is None
            or post.curvature is None
            or post.prediction is None
            or post.prediction.process is None
        ):
            return None
        return Law(post.dynamics, post.curvature, post.prediction, post.delivered_process())

    @property
    def dimension(self) -> int:
        return int(self.posterior.mean.size)

    @property
    def large(self) -> bool:
        return self.dimension > LARGE

    @property
    def steps_per_chain(self) -> float:
        """Steps of each chain that the mean and covariance come from."""
        settings = self.posterior.settings
        return settings["states"] * settings["moment_spacing"] / self.posterior.draws.shape[0]

    @cached_property
    def error(self) -> MonteCarloError | None:
        """What the mean and covariance must be off by chance; None where no law was predicted."""
        if self.law is None:
            return None
        return expected_error(self.posterior.moment_process(), self.posterior.settings["states"])

    @cached_property
    def passes(self) -> int:
        """How many passes over the data the check may take."""
        assert self.model is not None
        settings, n_data = self.posterior.settings, self.model.n_data
        taken = settings.get(
            "passes", settings.get("steps", 0) * settings.get("batch_size", 0) / n_data
        )
        return int(np.clip(max(SHARE_OF_PASSES * taken, ROWS / n_data), FEWEST_PASSES, MOST_PASSES))

    @property
    def draws_looked_at(self) -> int:
        """At how many draws the gradients of all rows may be looked at: where noise is rare and large, at few it is not met."""
        assert self.model is not None
        return int(np.clip(ROWS / self.model.n_data, FEWEST_DRAWS, MOST_DRAWS))

    @cached_property
    def gradients_at_draws(self) -> list[tuple[Array, Array, Array]]:
        """A few draws, each with the mean and second moment of the per-example gradients there."""
        assert self.model is not None
        derivatives = self.model.closed_form() or Autodiff(self.model)
        return [
            (draw, *derivatives.gradient_moments(draw))
            for draw in self.some_draws(self.draws_looked_at)
        ]

    @property
    def no_chains(self) -> str:
        """Why the draws are no chains that could be looked at one after the other; empty where they are."""
        if str(self.posterior.settings.get("keep", "")).startswith("low-rank"):
            return "the draws were made from the moments of the chain"
        if self.posterior.draws.shape[1] < SHORTEST:
            return f"{self.posterior.draws.shape[1]} draws a chain were kept, {SHORTEST} are needed"
        return ""

    def some_draws(self, count: int) -> Array:
        """Draws spread evenly over all chains, (count, D); fewer where there are fewer."""
        flat = self.posterior.draws.reshape(-1, self.dimension)
        return flat[np.unique(np.linspace(0, len(flat) - 1, min(count, len(flat))).astype(int))]

    def words(self, combination: Array) -> str:
        """A linear combination of the parameters, each in units of its sd, by those that matter most in it."""
        weights = combination * self.posterior.sd
        weights = weights / max(float(np.linalg.norm(weights)), 1e-300)
        order = np.argsort(-np.abs(weights))[:3]
        shown = [place for place in order if abs(weights[place]) >= 0.1 * abs(weights[order[0]])]
        return " ".join(f"{weights[place]:+.2f} {self.posterior.names[place]}" for place in shown)
