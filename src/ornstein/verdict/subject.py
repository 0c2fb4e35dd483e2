"""What is being looked at: a posterior, the model where it is at hand, and what follows from
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.curvature.leverage import drawn_moments
from ornstein.rows.scheme import effective_batch
from ornstein.streams import Purpose, sequence
from ornstein.theory import Process
from ornstein.theory.matrices import matrix_root
from ornstein.theory.modes import congruence
from ornstein.theory.stationarity import SHORTEST
from ornstein.types import Array
from ornstein.verdict.coordinates import Coordinates, wider_of
from ornstein.verdict.density import Density
from ornstein.verdict.effective import fewest_effective
from ornstein.verdict.monte_carlo import MonteCarloError, expected_error
from ornstein.verdict.sampled_rows import ROWS, sampled

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.curvature.wide import WideGaussian
    from ornstein.dynamics.dynamics import Dynamics
    from ornstein.dynamics.prediction import Prediction
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior

# Passes over all data that a check may take: a share of those that sampling took, or the passes
# that PRODUCTS products of numbers allow, about a second; and their least and largest number.
SHARE_OF_PASSES, PRODUCTS, FEWEST_PASSES, MOST_PASSES = 0.1, 2e8, 64, 120_000
# The looks for modes and at the gradient come last and may take what is left of half as much again.
MORE = 1.5
MOST_CHEAP_PASSES = 200_000
# The least and largest number of points of importance weights.
FEWEST_POINTS, MOST_POINTS = 24, 2000
# With more passes than this all rows are read; with fewer a sample of them may stand for all.
ENOUGH_PASSES = 2000
# Draws at which the gradients of all rows are looked at: as many as make ROWS_AT_DRAWS rows, within
# bounds. At each, second moments cost as many passes as there are parameters.
ROWS_AT_DRAWS, FEWEST_DRAWS, MOST_DRAWS = 1e6, 2, 100
STAND_INS = 1000  # points of the draws' Gaussian where single draws were not kept
# Beyond LARGE parameters what costs D³ or D² numbers per row is left out, or done on diagonals.
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

        A saved file holds the law and not how the noise answers; what was met follows from what it
        made of the chain.
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
class Close:
    """The density for looks at many points, and how many passes these may take.

    `rows` is how many rows stand for all of them, 0 where all are read.
    """

    density: Density
    passes: int
    rows: int = 0

    @property
    def points(self) -> int:
        """How many points importance weights may take."""
        return int(np.clip(self.passes // 4, FEWEST_POINTS, MOST_POINTS))


@dataclass(frozen=True, eq=False)
class Subject:
    """A posterior under inspection."""

    posterior: Posterior
    model: Model | None
    seed: int = 0
    # Answers to one question that may be looked at: p-value bounds are divided by their number.
    tries: int = 1
    # Modes that an earlier look has found, for this one to answer to; None searches.
    known_modes: tuple[Array, ...] | None = None
    # Where the posterior is about, in a regression of more than 2000 parameters; None finds it.
    metric: WideGaussian | None = None
    # Passes over the data that all looks together may take.
    allowed: float = np.inf

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
        """Monte Carlo error of mean and covariance; None where no law was predicted."""
        if self.law is None:
            return None
        return expected_error(self.posterior.moment_process(), self.posterior.settings["states"])

    @cached_property
    def budget(self) -> int:
        """How many passes over the data the check may take."""
        assert self.model is not None
        settings, n_data = self.posterior.settings, self.model.n_data
        taken = settings.get(
            "passes", settings.get("steps", 0) * settings.get("batch_size", 0) / n_data
        )
        wanted = min(max(SHARE_OF_PASSES * taken, self.cheap_passes), self.allowed / MORE)
        return int(np.clip(wanted, FEWEST_PASSES, MOST_PASSES))

    def passes_left(self, reserved: int) -> int:
        """How many passes a late look may take, where some are reserved for a later one."""
        assert self.density is not None
        bound = self.set_aside if self.budget > FEWEST_PASSES else FEWEST_PASSES
        return int(max(self.budget // 5, bound - self.density.passes - reserved))

    @property
    def set_aside(self) -> float:
        """How many passes over the data all looks together may take."""
        return max(MORE * self.budget, 2.0 * self.cheap_passes)

    @property
    def cheap_passes(self) -> int:
        """How many passes over the data take about a second, where that is allowed."""
        assert self.model is not None
        return int(min(self._in_a_second(self.model.work), self.allowed / 2.0))

    def _in_a_second(self, rows: int) -> int:
        cheap = PRODUCTS / (rows * (0.04 * self.dimension + 12.0))
        return int(min(cheap, MOST_CHEAP_PASSES))

    @cached_property
    def close(self) -> Close | None:
        """What looks at many points use: all rows, or a sample of them where passes over all would
        be too few; None where the density is not at hand.
        """
        if self.density is None:
            return None
        whole = Close(self.density, self.budget)
        curvature, around = self.posterior.curvature, self.coordinates
        if self.budget >= ENOUGH_PASSES or curvature is None or around is None:
            return whole
        generator = np.random.default_rng(sequence(self.seed, Purpose.VERDICT, 7))
        found = sampled(self.density, curvature, self.flat_draws, around, generator)
        return whole if found is None else Close(found, self._in_a_second(ROWS), ROWS)

    @property
    def passes_taken(self) -> float:
        """Passes over the data that the looks have taken so far."""
        if self.density is None or self.close is None:
            return 0.0
        sampled = self.close.density.passes * self.close.rows / self.density.model.n_data
        return self.density.passes + sampled

    @property
    def aims_elsewhere(self) -> bool:
        dynamics = self.posterior.dynamics
        return dynamics is not None and dynamics.target != "posterior"

    @cached_property
    def unsound(self) -> str:
        """What makes the draws no sample of anything; empty where nothing does."""
        if not np.all(np.isfinite(self.posterior.draws)):
            return "some draws are not finite numbers"
        mean, sd = self.posterior.mean, self.posterior.sd
        if not (np.all(np.isfinite(mean)) and np.all(np.isfinite(sd))):
            return "some draws are too large to compute with"
        still = sd <= 1e-14 * np.abs(mean) + np.finfo(float).tiny
        if np.any(still):
            return f"{self.posterior.names[int(np.argmax(still))]} does not vary between the draws"
        return ""

    @cached_property
    def density(self) -> Density | None:
        """The posterior itself; None where it is not at hand or not what the draws aim at."""
        if self.model is None or self.unsound or self.aims_elsewhere:
            return None
        return Density(self.model)

    @cached_property
    def coordinates(self) -> Coordinates | None:
        """In which the wider of draws and Laplace's approximation is a standard normal in each
        direction.
        """
        if self.unsound:
            return None
        mean, spread = self.posterior.mean, self.posterior.covariance
        curvature = self.posterior.curvature
        for known in (None if curvature is None else curvature.posterior_covariance, spread):
            try:
                if known is not None and np.all(np.isfinite(known)):
                    return wider_of(mean, known, spread)
            except np.linalg.LinAlgError:
                continue
        return Coordinates(mean, self.posterior.sd)

    @cached_property
    def flat_draws(self) -> Array:
        """All draws, (M, D); points of their Gaussian where only moments were kept."""
        flat = self.posterior.draws.reshape(-1, self.dimension)
        if len(flat):
            return flat
        generator = np.random.default_rng(sequence(self.seed, Purpose.VERDICT, 5))
        law = Coordinates(self.posterior.mean, matrix_root(self.posterior.covariance))
        return law.theta(generator.standard_normal((STAND_INS, self.dimension)))

    @cached_property
    def independent(self) -> float:
        """How many independent draws all draws are worth, for the parameter with the fewest."""
        if self.no_chains:
            return float(len(self.flat_draws))
        fewest = np.nan_to_num(fewest_effective(self.posterior.draws))
        known = self.posterior.settings.get("effective_draws", np.inf)
        return float(np.clip(min(fewest, known), 4.0, len(self.flat_draws)))

    @property
    def draws_looked_at(self) -> int:
        """At how many draws the gradients of all rows may be looked at: where noise is rare and
        large, at few it is not met.
        """
        assert self.model is not None
        return int(np.clip(ROWS_AT_DRAWS / self.model.work, FEWEST_DRAWS, MOST_DRAWS))

    @cached_property
    def gradients_at_draws(self) -> list[tuple[Array, Array, Array]]:
        """A few draws, each with the mean and second moment there of the gradients of single rows,
        as minibatches hold them.
        """
        assert self.model is not None
        curvature = None if self.law is None else self.law.curvature
        return [
            (draw, *drawn_moments(self.model, curvature, draw))
            for draw in self.some_draws(self.draws_looked_at)
        ]

    @property
    def no_chains(self) -> str:
        """Why the draws are no chains that could be looked at one after the other; empty where they
        are.
        """
        if self.from_moments:
            return "the draws were made from the moments of the chain"
        if self.posterior.draws.shape[1] < SHORTEST:
            return f"{self.posterior.draws.shape[1]} draws a chain were kept, {SHORTEST} are needed"
        return ""

    @property
    def from_moments(self) -> bool:
        """Whether the draws were made from the moments of the chain."""
        return str(self.posterior.settings.get("keep", "")).startswith("low-rank")

    def some_draws(self, count: int) -> Array:
        """Draws spread evenly over all chains, (count, D); fewer where there are fewer."""
        flat = self.flat_draws
        return flat[np.unique(np.linspace(0, len(flat) - 1, min(count, len(flat))).astype(int))]

    def words(self, combination: Array) -> str:
        """A linear combination of the parameters, each in units of its sd, by those that matter
        most in it.
        """
        weights = combination * self.posterior.sd
        weights = weights / max(float(np.linalg.norm(weights)), 1e-300)
        order = np.argsort(-np.abs(weights))[:3]
        shown = [place for place in order if abs(weights[place]) >= 0.1 * abs(weights[order[0]])]
        names = [printable(self.posterior.names[place]) for place in shown]
        if len(shown) == 1:
            return names[0]
        parts = zip(weights[shown], names, strict=True)
        return " ".join(f"{weight:+.1g} {name}" for weight, name in parts)
