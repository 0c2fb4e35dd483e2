"""A window of steps up the ELBO at one rate: the guide, the search it belongs to, the minibatches,
and NumPyro's inference in coordinates z = P⁻¹(θ − centre).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from ornstein.checks import FULL_LIMIT
from ornstein.compute.compiled import compiled
from ornstein.compute.precision import width
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.rows.uniform import index_dtype
from ornstein.streams import Purpose, stream
from ornstein.theory import Gaussian
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    from numpyro.infer import SVI


@dataclass(frozen=True)
class Guide:
    """The variational Gaussian N(mean, LLᵀ) in θ; the root L is a lower triangle, or a vector of
    standard deviations.
    """

    mean: Array
    root: Array

    def law(self) -> Gaussian:
        """As a Gaussian; up to 2000 parameters with a matrix also for mean-field, whose
        correlations are known to be zero.
        """
        if self.root.ndim == 2:
            return Gaussian(self.mean, self.root @ self.root.T)
        return Gaussian(
            self.mean, np.diag(self.root**2) if self.mean.size <= FULL_LIMIT else self.root**2
        )

    def spread(self, normals: Array) -> Array:
        """Displacements from the mean that standard normals become."""
        return normals @ self.root.T if self.root.ndim == 2 else normals * self.root

    def finite(self) -> bool:
        """Whether all its numbers are finite."""
        return bool(np.all(np.isfinite(self.mean)) and np.all(np.isfinite(self.root)))


@dataclass(frozen=True)
class Program:
    """What is compiled: the loss and the family."""

    loss: Loss
    rank: str


@dataclass
class Search:
    """The optimisation as it goes: where it is, what it has cost, and the ELBO on the way."""

    guide: Guide
    rate: float
    blocks: int
    shortfall: float = np.inf
    steps: int = 0
    converged: bool = False
    elbo: list[float] = field(default_factory=list)
    elbo_steps: list[int] = field(default_factory=list)


def window(
    program: Program,
    model: Model,
    guide: Guide,
    coordinates: Array,
    search: Search,
    batches: Iterator[Array],
    key: Traced,
    dtype: str,
) -> tuple[Guide, Guide, list[float]]:
    """Run at one rate: the guide averaged over the second half, the last guide, and the mean ELBO
    of each block.
    """
    matrix = coordinates.ndim == 2
    root = (
        scipy.linalg.solve_triangular(coordinates, guide.root, lower=True)
        if matrix
        else guide.root / coordinates
    )
    half = max(1, search.blocks // 2)
    # The density of the guide is that of z: log|P| makes it that of θ, so that windows with
    # different P can be compared.
    volume = float(np.sum(np.log(np.diagonal(coordinates) if matrix else coordinates)))
    with width(dtype):
        problem = model.problem(dtype, guide.mean)
        scale = jnp.asarray(coordinates, dtype)
        first = {
            "auto_loc": jnp.zeros(model.dim, dtype),
            _root_name(program): jnp.asarray(root, dtype),
        }
        rate = jnp.asarray(search.rate, dtype)
        state = _begin(program, problem, scale, key, first)
        total, elbo = None, []
        for number in range(search.blocks):
            state, sums, last, block_losses = _block(
                program, problem, scale, state, jnp.asarray(next(batches)), rate
            )
            elbo.append(volume - float(np.mean(block_losses, dtype=float)))
            if number >= search.blocks - half:
                sums = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), sums)
                total = sums if total is None else jax.tree.map(np.add, total, sums)
    average = jax.tree.map(lambda leaf: leaf / (half * len(block_losses)), total)

    def in_theta(params: PyTree) -> Guide:
        mean, root = (
            np.asarray(params["auto_loc"], dtype=float),
            np.asarray(params[_root_name(program)], dtype=float),
        )
        if matrix:
            return Guide(guide.mean + coordinates @ mean, coordinates @ root)
        return Guide(guide.mean + coordinates * mean, coordinates * root)

    return in_theta(average), in_theta(last), elbo


def _root_name(program: Program) -> str:
    return "auto_scale_tril" if program.rank == "full" else "auto_scale"


def _inference(program: Program, rate: Traced | float) -> SVI:
    """NumPyro's SVI over z, the coordinates of unit spread around the centre."""
    import numpyro
    import optax
    from numpyro.distributions import ImproperUniform, constraints
    from numpyro.infer import SVI, Trace_ELBO, init_to_value
    from numpyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal

    def log_joint(problem: Problem, scale: Traced, rows: PyTree) -> None:
        z = numpyro.sample("z", ImproperUniform(constraints.real_vector, (), problem.centre.shape))
        displacement = scale @ z if scale.ndim == 2 else scale * z
        numpyro.factor(
            "log_joint", -problem.n_data * program.loss.minibatch(problem, displacement, rows)
        )

    family = AutoMultivariateNormal if program.rank == "full" else AutoDiagonalNormal

    def start(site: Any = None) -> Any:
        return init_to_value(site, values={"z": jnp.zeros(program.loss.layout.dimension)})

    return SVI(log_joint, family(log_joint, init_loc_fn=start), optax.adam(rate), Trace_ELBO())


@compiled
def _begin(program: Program, problem: Problem, scale: Traced, key: Traced, first: PyTree) -> PyTree:
    rows = jax.tree.map(lambda leaf: leaf[:1], problem.data)
    return _inference(program, 0.0).init(key, problem, scale, rows, init_params=first)


@compiled
def _block(
    program: Program, problem: Problem, scale: Traced, state: PyTree, indices: Traced, rate: Traced
) -> tuple[PyTree, PyTree, PyTree, Traced]:
    """One step per row of `indices`: the state, the sum of the guide's parameters, the last of
    them, and the losses.
    """
    inference = _inference(program, rate)
    rows = jax.tree.map(lambda leaf: leaf[:1], problem.data)
    # tells it the constraints of the parameters; computes nothing used
    inference.init(state.rng_key, problem, scale, rows)

    def step(carry: PyTree, batch: Traced) -> PyTree:
        state, total = carry
        state, loss = inference.update(
            state, problem, scale, jax.tree.map(lambda leaf: leaf[batch], problem.data)
        )
        return (state, jax.tree.map(jnp.add, total, inference.get_params(state))), loss

    zero = jax.tree.map(jnp.zeros_like, inference.get_params(state))
    (state, total), losses = jax.lax.scan(step, (state, zero), indices)
    return state, total, inference.get_params(state), losses


def epochs(n_data: int, batch_size: int, steps: int, seed: int) -> Iterator[Array]:
    """Row indices for `steps` steps at a time, (steps, S): one permutation of the rows after the
    other.
    """
    generator = stream(seed, Purpose.BBVI, 0)
    left = np.empty(0, dtype=index_dtype(n_data))
    while True:
        parts, found = [left], left.size
        while found < steps * batch_size:
            parts.append(generator.permutation(n_data).astype(index_dtype(n_data)))
            found += n_data
        rows = np.concatenate(parts)
        left = rows[steps * batch_size :]
        yield rows[: steps * batch_size].reshape(steps, batch_size)
