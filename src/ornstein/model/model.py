"""What is inferred: a per-example log likelihood, a log prior and the data.

This is the one place that knows N. The loss everywhere else is the *mean* loss

    L(θ) = −(1/N) Σ_n log p(x_n | θ) − (1/N) log p(θ),

so that the posterior is exp(−N·L), and a minibatch replaces the first mean by the mean over S rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from ornstein import markup
from ornstein.checks import FULL_LIMIT
from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.both_widths import checked_loss
from ornstein.model.contract import checked_hyperparameters, checked_rows, taking
from ornstein.model.coordinates import Worked
from ornstein.model.exchange import ROWS, HiddenUnits, hidden_units
from ornstein.model.linear import LinearPredictor
from ornstein.model.loss import (
    NO_TRAITS,
    Loss,
    Problem,
    prior_diagonal,
    prior_hessian,
    prior_value_and_slope,
    prior_values_and_slopes,
)
from ornstein.model.on_device import on_device
from ornstein.model.parameters import Layout
from ornstein.rows.feed import Feed
from ornstein.types import Array, PyTree, Traced

CHUNK_NUMBERS = 2**24  # of the data, in float64: 128 MB
NAMED = 12  # parameters in a notebook

Span: TypeAlias = tuple[int, int, int]  # first, end, and how many the chunk is filled up to


def spans_of(first: int, stop: int, most: int, block: int) -> Iterator[Span]:
    """The examples from `first` to `stop` in chunks of equal length.

    >>> list(spans_of(0, 300, 100, 64))
    [(0, 128, 128), (128, 256, 128), (256, 300, 128)]
    """
    most = min(max(1, most), stop - first)
    most = most if most <= block else -(-most // block) * block
    for start in range(first, stop, most):
        yield start, min(start + most, stop), most


def flat_prior(params: PyTree, hyperparameters: PyTree) -> Traced:
    """The improper uniform prior."""
    return jnp.zeros(())


@dataclass(frozen=True)
class Reweighted:
    """A log likelihood whose examples are {"row": an example, "factor": how much it counts}."""

    log_likelihood: Callable[..., Traced]

    def __call__(self, params: PyTree, example: PyTree, hyperparameters: PyTree) -> Traced:
        return example["factor"] * self.log_likelihood(params, example["row"], hyperparameters)


class Model:
    """Any JAX log likelihood over one example, with any pytree of parameters.

    Args:
        log_likelihood: `log_likelihood(params, example) -> scalar`, the log density of *one*
            example, not a mean and not a sum over the data; with a third argument it also receives
            the hyperparameters.
        data: pytree of arrays that share their leading axis N.
        log_prior: `log_prior(params) -> scalar` or `log_prior(params, hyperparameters)`; None is
            flat.
        init: pytree of parameters, where the search for the mode starts.
        predict: `predict(params, inputs)`, used by `Posterior.predict`.
        hyperparameters: dict of numbers that `orn.em` may move.

    >>> import jax.numpy as jnp
    >>> model = Model(lambda theta, x: -0.5 * (x - theta) ** 2, jnp.arange(5.0), init=jnp.zeros(()))
    >>> model.n_data, model.dim, model.names
    (5, 1, ('theta',))
    """

    data: PyTree
    n_data: int
    hyperparameters: dict[str, np.ndarray]
    loss: Loss
    names: tuple[str, ...]
    init: np.ndarray
    predict: Callable[..., Traced] | None

    def __init__(
        self,
        log_likelihood: Callable[..., Traced],
        data: PyTree,
        log_prior: Callable[..., Traced] | None = None,
        init: PyTree = None,
        predict: Callable[..., Traced] | None = None,
        hyperparameters: Mapping[str, ArrayLike] | None = None,
        *,
        names: tuple[str, ...] | None = None,
    ) -> None:
        if init is None:
            raise InputError(
                "init is missing: give a pytree of parameters, for instance zeros of the right"
                " shapes"
            )
        tables.require_one_index(
            (f"array {i}", leaf) for i, leaf in enumerate(jax.tree.leaves(data))
        )
        arrays = jax.tree.map(_as_array, data)
        layout = Layout.of(init)
        if names is not None and len(names) != layout.dimension:
            raise InputError(f"there are {layout.dimension} parameters but {len(names)} names")
        vars(self).update(
            data=arrays,
            n_data=checked_rows(arrays),
            hyperparameters=checked_hyperparameters(hyperparameters),
            loss=Loss(
                taking(log_likelihood, 3, "log_likelihood"),
                flat_prior if log_prior is None else taking(log_prior, 2, "log_prior"),
                layout,
            ),
            names=names or layout.names(),
            init=layout.flatten(init),
            predict=predict,
        )
        if not np.all(np.isfinite(self.init)):
            raise InputError("init holds a value that is not finite")
        self._check_scalars()

    @property
    def layout(self) -> Layout:
        return self.loss.layout

    @property
    def dim(self) -> int:
        return self.layout.dimension

    def flat(self, params: PyTree) -> np.ndarray:
        """Parameters, a pytree or a flat vector already, as one finite float64 vector."""
        whole = isinstance(params, np.ndarray) and params.shape == (self.dim,)
        vector = np.asarray(params if whole else self.layout.flatten(params), dtype=float)
        if not np.all(np.isfinite(vector)):
            raise InputError("init holds a value that is not finite")
        return vector

    def problem(
        self, dtype: str = "float32", centre: np.ndarray | None = None, batch_size: int = 0
    ) -> Problem:
        """The model's numbers on the device in the working precision, positions measured from
        `centre`.

        Where steps on minibatches of `batch_size` rows are to be taken, the data are laid out for
        them, read like the model's own. Call and use it inside `precision.width(dtype)`.
        """
        centre = np.zeros(self.dim) if centre is None else centre
        data, likelihood_centre = self._centred(centre)
        cast = partial(on_device, dtype=dtype)
        return Problem(
            self._laid_out(data, dtype, batch_size),
            jax.tree.map(cast, self.hyperparameters),
            cast(np.asarray(float(self.n_data))),
            cast(centre),
            cast(likelihood_centre),
        )

    @property
    def streams(self) -> bool:
        """Whether data are memory-mapped: then minibatches are gathered on the host instead of
        holding all rows.
        """
        return any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(self.data))

    def problem_without_data(self, dtype: str, centre: np.ndarray) -> Problem:
        """As `problem`, for a run whose rows are handed in with every step."""
        cast = partial(on_device, dtype=dtype)
        hyper, count = (
            jax.tree.map(cast, self.hyperparameters),
            cast(np.asarray(float(self.n_data))),
        )
        return Problem(None, hyper, count, cast(centre), cast(self._likelihood_centre(centre)))

    def gathered(self, indices: np.ndarray, centre: np.ndarray, dtype: str) -> PyTree:
        """Rows at `indices` (any shape) on the host, in the working precision, for displacements
        from `centre`.
        """
        # in the order of the file, each once
        flat, places = np.unique(indices, return_inverse=True)
        rows = self._centred_rows(
            jax.tree.map(lambda leaf: np.asarray(leaf[flat]), self.data), centre
        )
        places = places.reshape(indices.shape)
        return jax.tree.map(
            lambda leaf: leaf.astype(dtype)[places] if leaf.dtype.kind == "f" else leaf[places],
            rows,
        )

    def feed(self, centre: np.ndarray, dtype: str, batch_size: int) -> Feed | None:
        """What hands over minibatches of `batch_size` rows where not all are held, else None."""
        if not self.streams:
            return None
        leaves = jax.tree.leaves(self.data)
        row_bytes = sum(np.dtype(dtype).itemsize * math.prod(leaf.shape[1:]) for leaf in leaves)
        gather = partial(self.gathered, centre=centre, dtype=dtype)
        return Feed(gather, batch_size * row_bytes, gather(np.zeros(0, dtype=int)))

    def rows(self, start: int, stop: int) -> PyTree:
        """Rows start…stop of the data, on the host."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.data)

    @property
    def work(self) -> int:
        """What a pass over all examples costs, in rows of D numbers."""
        return self.n_data

    def spans(self, rows: int, block: int) -> Iterator[Span]:
        """Examples to be looked at together, in passes over all of them.

        At most about `rows`, each taken as D numbers of work, and no more than fit in memory; many
        are a multiple of `block`.
        """
        numbers = sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(self.data))
        return spans_of(0, self.n_data, min(rows, CHUNK_NUMBERS // max(1, numbers)), block)

    def with_hyperparameters(self, **values: ArrayLike) -> Model:
        """The same model at other hyperparameters."""
        unknown = set(values) - set(self.hyperparameters)
        if unknown:
            raise InputError(
                f"unknown hyperparameters {sorted(unknown)}; the model has"
                f" {sorted(self.hyperparameters)}"
            )
        return self.replace(
            hyperparameters={
                **self.hyperparameters,
                **{k: np.asarray(v, dtype=float) for k, v in values.items()},
            }
        )

    def replace(self, **changes: object) -> Self:
        """A copy with other attributes; a Model itself never changes."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_data:,} rows, {self.dim:,} parameters)"

    def _repr_html_(self) -> str:
        named = "".join(f", {name}" for name in self.names[:NAMED])
        more = f" and {self.dim - NAMED:,} more" if self.dim > NAMED else ""
        return markup.sentence(f"{self!r}{named.replace(', ', ': ', 1)}{more}")

    def reweighted(self, factors: np.ndarray) -> Model:
        """The same rows, the log likelihood of each multiplied by its factor."""
        likelihood = Reweighted(self.loss.log_likelihood)
        return self.replace(
            data={"row": self.data, "factor": np.asarray(factors, dtype=float)},
            loss=replace(self.loss, log_likelihood=likelihood, traits=NO_TRAITS),
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Model cannot be changed: use model.replace({name}=…)")

    def scaled_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """−log p(θ)/N and its gradient, in float64."""
        with double():
            value, slope = prior_value_and_slope(self.loss, self._prior_problem(theta))
        return float(value) / self.n_data, np.asarray(slope) / self.n_data

    def scaled_priors(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """−log p(θ)/N and its gradient at points (M, D), in float64: shapes (M,) and (M, D)."""
        with double():
            origin = self._prior_problem(np.zeros(self.dim))
            values, slopes = prior_values_and_slopes(self.loss, origin, points)
        return np.asarray(values) / self.n_data, np.asarray(slopes) / self.n_data

    def prior_hessian(self, theta: np.ndarray) -> np.ndarray:
        """Λ, the Hessian of −log p(θ); its diagonal only for more than 2000 parameters."""
        with double():
            if self.dim > FULL_LIMIT:
                return np.asarray(prior_diagonal(self.loss, self._prior_problem(theta)))
            return np.asarray(prior_hessian(self.loss, self._prior_problem(theta)))

    def scaled_prior_hessian(self, theta: np.ndarray) -> np.ndarray:
        """Λ/N, the prior's part of the Hessian of the mean loss."""
        return self.prior_hessian(theta) / self.n_data

    def _prior_problem(self, theta: np.ndarray) -> Problem:
        return Problem(None, self.hyperparameters, np.asarray(1.0), theta, theta)

    @property
    def linear(self) -> LinearPredictor | None:
        """How the parameters enter the likelihood, where that is through linear predictors."""
        return None

    @property
    def undivided(self) -> str:
        """Why the model is no sum over examples, so that only NUTS on all its data can sample it;
        empty where it is one.
        """
        return ""

    @property
    def observations(self) -> int:
        """How many values the data hold to learn from: the examples, where each is one."""
        return self.n_data

    def starts(self, count: int, seed: int) -> Array | None:
        """Where chains start that know no mode, (count, D); None leaves it to them."""
        return None

    @property
    def one_valley(self) -> bool:
        """Whether the search for the mode ends in the same place wherever it starts, as far as is
        known: then it starts once.
        """
        return False

    @cached_property
    def hidden_units(self) -> HiddenUnits | None:
        """Arrays whose entries can be exchanged, as those of a network can."""
        places = np.unique(np.linspace(0, self.n_data - 1, ROWS).astype(int))
        rows = jax.tree.map(lambda leaf: np.asarray(leaf[places]), self.data)
        return hidden_units(self.loss, self.init, rows, self.hyperparameters)

    @property
    def network_by_nuts(self) -> bool:
        """Whether `orn.sample` takes NUTS to a network as a whole, instead of refusing it."""
        return False

    @property
    def worked(self) -> Worked | None:
        """The same model in coordinates that are safe to compute in; None where its own are."""
        return None

    def elsewhere(self, generator: np.random.Generator) -> Array:
        """Points (k, D) from which a search for other modes may start."""
        return self.init[None]

    def require_mode(self, theta: np.ndarray) -> None:
        """Refuse what was found as the mode but is the way to none."""

    def constrained(self, draws: np.ndarray) -> dict[str, np.ndarray] | None:
        """Draws (..., D) on the scale users know, by name, where that is not the scale of the
        sampler; else None.
        """
        return None

    def _centred(self, centre: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Data and likelihood centre for displacements from `centre`."""
        return self.data, centre

    def _laid_out(self, data: PyTree, dtype: str, batch_size: int) -> PyTree:
        return jax.tree.map(partial(on_device, dtype=dtype), data)

    def _centred_rows(self, rows: PyTree, centre: np.ndarray) -> PyTree:
        """What `_centred` does, for some rows."""
        return rows

    def _likelihood_centre(self, centre: np.ndarray) -> np.ndarray:
        return centre

    def _check_scalars(self) -> None:
        loss = checked_loss(self.loss, self.data, self.hyperparameters, self.dim)
        vars(self).update(loss=loss)


def _as_array(leaf: object) -> Array | jax.Array:
    if type(leaf).__module__.split(".")[0] == "zarr":
        from ornstein.model.on_disk import spilled_array

        return spilled_array(leaf)
    return tables.plain(leaf, "data")
