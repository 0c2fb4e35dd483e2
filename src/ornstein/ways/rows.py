"""What is known of a regression with more than 2000 parameters before a way is chosen, from
products with its rows: no matrix of all parameters where these are sparse.

Where few rows tell about each parameter, the posterior's mass is not at its mode. So Gaussian VI is
found while planning, and how far it is from the mode decides what Laplace's approximation is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ornstein.baselines.gaussian_vi import Widened, widened
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.wide import WideGaussian, at_the_mode, pace
from ornstein.model.model import Model
from ornstein.model.tables import is_sparse
from ornstein.verdict.density import Density

ROUNDS, TOLERANCE = 20, 0.01  # of Gaussian VI, as `orn.gaussian_vi` has them
POINTS = 32  # draws of q that its distance from the posterior is measured at
# Seconds for each number of the rows, in a product with one of many vectors: sparse and dense.
SPARSE, DENSE = 1.5e-9, 6e-11
# Passes over the data where no budget is given: numbers of the rows that are multiplied.
PRODUCTS, FEWEST, MOST = 3e12, 2e4, 1e6


@dataclass(frozen=True, eq=False)
class Wide:
    """A wide regression: the Gaussian nearest to its posterior, found when it is first asked for.

    Attributes:
        gaussian: with its precision as an operator; fitted: how that went.
        spread_of_weights: variance of log p − log q at draws of q, per parameter: about twice the
            KL that each costs.
    """

    model: Model

    @cached_property
    @one_thread()
    def _found(self) -> tuple[WideGaussian, Widened]:
        found = at_the_mode(self.model)
        return found, widened(found, TOLERANCE, ROUNDS)

    @property
    def gaussian(self) -> WideGaussian:
        return self._found[0]

    @property
    def fitted(self) -> Widened:
        return self._found[1]

    @cached_property
    def spread_of_weights(self) -> float:
        found = self.gaussian
        generator = np.random.default_rng(0)
        deviations, _ = found.deviations(POINTS, generator)
        energies = Density(self.model).values(found.mean + deviations.T)
        found.passes += 2 * POINTS
        quadratic = 0.5 * np.sum(deviations * found.precision.product(deviations), axis=0)
        return float(np.var(quadratic - energies, ddof=1) / self.model.dim)

    @property
    def passes(self) -> float:
        """Over the data, for all of it."""
        return self.gaussian.passes

    @cached_property
    def pace(self) -> tuple[float, int]:
        """Quarter turns of HMC's trajectories, and the fewest kicks of each."""
        return pace(self.gaussian)

    @property
    def sentence(self) -> str:
        """What planning found, in words."""
        low, high = self.fitted.sd_ratio
        return (
            f"the mode is up to {self.fitted.shift:.2g} sd from the mean of Gaussian VI, whose sds"
            f" are {low:.2f} to {high:.2f} times Laplace's; Var(log w)/D"
            f" {self.spread_of_weights:.2g}"
        )

    @property
    def product_seconds(self) -> float:
        """A product of all rows with one of many vectors, and back."""
        return 2.0 * _numbers(self.model) * (SPARSE if _sparse(self.model) else DENSE)

    @property
    def budget(self) -> float:
        """Passes over the data that are allowed where none are given."""
        return float(np.clip(PRODUCTS / _numbers(self.model), FEWEST, MOST))


def _sparse(model: Model) -> bool:
    assert model.linear is not None
    return is_sparse(model.linear.features)


def _numbers(model: Model) -> float:
    """Numbers of the rows that a product reads, for each predictor."""
    assert model.linear is not None
    features = model.linear.features
    stored = features.nnz if _sparse(model) else np.prod(features.shape)
    return float((stored + model.n_data) * model.linear.predictors)
