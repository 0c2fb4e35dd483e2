"""What is inferred: a per-example log likelihood, a log prior and the data.

This is the one place that knows N. The loss everywhere else is the *mean* loss

    L(θ) = −(1/N) Σ_n log p(x_n | θ) − (1/N) log p(θ),

so that the posterior is exp(−N·L), and a minibatch replaces the first mean by the mean over S rows.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ornstein import narrow_rows, row_bytes
from ornstein.aligned import aligned
from ornstein.checks import as_numbers
from ornstein.compiled import compiled
from ornstein.errors import InputError
from ornstein.layout import Layout
from ornstein.precision import double, width

Array = Any
NARROW = 16  # columns: what a register holds at most; fewer would leave a part of it empty
FULL_LIMIT = 2000  # parameters: matrices of so many are held whole, of more only their diagonals


class Problem(NamedTuple):
    """All numbers a gradient needs, passed to compiled code as arguments and never closed over.

    Positions are measured from `centre`. A model may put part of the centre into its data (a linear predictor becomes an
    offset): then `likelihood_centre` has zeros there.
    """

    data: Any
    hyperparameters: Any
    n_data: Array
    centre: Array
    likelihood_centre: Array


@dataclass(frozen=True)
class Loss:
    """The mean loss as a function of the displacement from the centre; hashable, so that equal models share compiled code."""

    log_likelihood: Callable[[Any, Any, Any], Array]
    log_prior: Callable[[Any, Any], Array]
    layout: Layout

    @property
    def elementary(self) -> bool:
        """Whether a step is nothing but sums, products and functions of one number: no indexing, sorting or solving."""
        return bool(getattr(self.log_likelihood, "elementary", False))

    def log_likelihoods(self, problem: Problem, displacement: Array, rows: Any) -> Array:
        """log p(x_n | θ) of each of the rows."""
        params = self.layout.unflatten(problem.likelihood_centre + displacement)
        return jax.vmap(self.log_likelihood, (None, 0, None))(params, rows, problem.hyperparameters)

    def prior(self, problem: Problem, displacement: Array) -> Array:
        return self.log_prior(
            self.layout.unflatten(problem.centre + displacement), problem.hyperparameters
        )

    def penalty(self, problem: Problem, displacement: Array) -> Array:
        """The prior's part of `minibatch`."""
        return -self.prior(problem, displacement) / problem.n_data

    def minibatch(self, problem: Problem, displacement: Array, rows: Any) -> Array:
        """The minibatch's estimate of the mean loss: unbiased for L up to a constant."""
        return -jnp.mean(self.log_likelihoods(problem, displacement, rows)) + self.penalty(
            problem, displacement
        )

    def gradient(self, problem: Problem, displacement: Array, batch: Any) -> Array:
        """ĝ, the gradient of `minibatch`; `batch` is row indices, or, where the problem holds no data, the rows themselves."""
        fit = self._slope(self.log_likelihood, problem, displacement, batch)
        # In this order: where the prior comes first, XLA adds the product over the rows to it, in half as much time again.
        return fit + jax.grad(self.penalty, argnums=1)(problem, displacement)

    def gradient_change(self, problem: Problem, displacement: Array, batch: Any) -> Array:
        """ĝ less what it is at the centre, on the same rows."""
        zero, prior = jnp.zeros_like(displacement), jax.grad(self.penalty, argnums=1)
        if not hasattr(self.log_likelihood, "change"):
            return self.gradient(problem, displacement, batch) - self.gradient(problem, zero, batch)
        change = partial(
            self.log_likelihood.change, self.layout.unflatten(problem.likelihood_centre)
        )
        fit = self._slope(change, problem, displacement, batch)
        return fit + (prior(problem, displacement) - prior(problem, zero))

    def _slope(
        self,
        log_likelihood: Callable[..., Array],
        problem: Problem,
        displacement: Array,
        batch: Any,
    ) -> Array:
        """The gradient of −mean log likelihood over the rows of a minibatch."""
        count = jax.tree.leaves(batch)[0].shape[0]
        polynomial = getattr(self.log_likelihood, "polynomial", False)
        if polynomial and narrow_rows.pay(batch if problem.data is None else problem.data, count):
            params, back = jax.vjp(
                lambda shift: self.layout.unflatten(problem.likelihood_centre + shift), displacement
            )

            def slope(row: Any) -> Any:
                return jax.grad(log_likelihood)(params, row, problem.hyperparameters)

            total = narrow_rows.summed_slopes(slope, partial(_rows, problem.data, batch), count)
            return back(jax.tree.map(lambda leaf: -leaf / count, total))[0]

        rows = _rows(problem.data, batch, 0, count)
        # Narrow rows are laid side by side: then a register of the processor holds numbers of many examples, not part of one.
        axes = jax.tree.map(lambda leaf: int(leaf.ndim == 2 and leaf.shape[1] < NARROW), rows)
        rows = jax.tree.map(lambda leaf, axis: jnp.moveaxis(leaf, 0, axis), rows, axes)

        def misfit(shift: Array) -> Array:
            params = self.layout.unflatten(problem.likelihood_centre + shift)
            return -jnp.mean(
                jax.vmap(log_likelihood, (None, axes, None))(params, rows, problem.hyperparameters)
            )

        return jax.grad(misfit)(displacement)


def _rows(data: Any, batch: Any, start: Any, count: int) -> Any:
    """So many rows of a minibatch: those of the data at its indices, or, where there are no data, of the minibatch itself."""
    if jax.tree.leaves(batch)[0].shape[0] > count:
        batch = jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, count), batch)
    if data is None:
        return batch
    return row_bytes.as_numbers(
        jax.tree.map(lambda leaf: leaf.at[batch].get(mode="promise_in_bounds"), data)
    )


@dataclass(frozen=True)
class _WithoutHyper:
    """Lets a function that takes no hyperparameters stand where one that does is called."""

    function: Callable[..., Array]

    def __call__(self, *arguments: Any) -> Array:
        return self.function(*arguments[:-1])


def flat_prior(params: Any, hyperparameters: Any) -> Array:
    """The improper uniform prior."""
    return jnp.zeros(())


class Model:
    """Any JAX log likelihood over one example, with any pytree of parameters.

    Args:
        log_likelihood: `log_likelihood(params, example) -> scalar`, the log density of *one* example, not a mean and not a sum
            over the data; with a third argument it also receives the hyperparameters.
        data: pytree of arrays that share their leading axis N.
        log_prior: `log_prior(params) -> scalar` or `log_prior(params, hyperparameters)`; None is flat.
        init: pytree of parameters, where the search for the mode starts.
        predict: `predict(params, inputs)`, used by `Posterior.predict`.
        hyperparameters: dict of numbers that `orn.em` may move.

    >>> import jax.numpy as jnp
    >>> model = Model(lambda theta, x: -0.5 * (x - theta) ** 2, jnp.arange(5.0), init=jnp.zeros(()))
    >>> model.n_data, model.dim, model.names
    (5, 1, ('theta',))
    """

    def __init__(
        self,
        log_likelihood: Callable[..., Array],
        data: Any,
        log_prior: Callable[..., Array] | None = None,
        init: Any = None,
        predict: Callable[..., Array] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        *,
        names: tuple[str, ...] | None = None,
    ) -> None:
        if init is None:
            raise InputError(
                "init is missing: give a pytree of parameters, for instance zeros of the right shapes"
            )
        self.data = jax.tree.map(_as_array, data)
        self.n_data = _checked_rows(self.data)
        self.hyperparameters = _checked_hyperparameters(hyperparameters)
        layout = Layout.of(init)
        if names is not None and len(names) != layout.dimension:
            raise InputError(f"there are {layout.dimension} parameters but {len(names)} names")
        self.loss = Loss(
            _taking(log_likelihood, 3, "log_likelihood"),
            flat_prior if log_prior is None else _taking(log_prior, 2, "log_prior"),
            layout,
        )
        self.names = names or layout.names()
        self.init = layout.flatten(init)
        self.predict = predict
        if not np.all(np.isfinite(self.init)):
            raise InputError("init holds a value that is not finite")
        self._check_scalars()

    @property
    def layout(self) -> Layout:
        return self.loss.layout

    @property
    def dim(self) -> int:
        return self.layout.dimension

    def problem(
        self, dtype: str = "float32", centre: np.ndarray | None = None, batch_size: int = 0
    ) -> Problem:
        """The model's numbers on the device in the working precision, positions measured from `centre`.

        Where steps on minibatches of `batch_size` rows are to be taken, the data are laid out for them, read like the model's own.
        Call and use it inside `precision.width(dtype)`.
        """
        centre = np.zeros(self.dim) if centre is None else centre
        data, likelihood_centre = self._centred(centre)
        cast = partial(_device, dtype=dtype)
        return Problem(
            self._laid_out(data, dtype, batch_size),
            jax.tree.map(cast, self.hyperparameters),
            cast(np.asarray(float(self.n_data))),
            cast(centre),
            cast(likelihood_centre),
        )

    @property
    def streams(self) -> bool:
        """Whether data are memory-mapped: then minibatches are gathered on the host instead of holding all rows."""
        return any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(self.data))

    def problem_without_data(self, dtype: str, centre: np.ndarray) -> Problem:
        """As `problem`, for a run whose rows are handed in with every step."""
        cast = partial(_device, dtype=dtype)
        hyper, count = (
            jax.tree.map(cast, self.hyperparameters),
            cast(np.asarray(float(self.n_data))),
        )
        return Problem(None, hyper, count, cast(centre), cast(self._likelihood_centre(centre)))

    def gathered(self, indices: np.ndarray, centre: np.ndarray, dtype: str) -> Any:
        """Rows at `indices` (any shape) on the host, in the working precision, for displacements from `centre`."""
        flat, places = np.unique(
            indices, return_inverse=True
        )  # in the order of the file, each once
        rows = self._centred_rows(
            jax.tree.map(lambda leaf: np.asarray(leaf[flat]), self.data), centre
        )
        places = places.reshape(indices.shape)
        return jax.tree.map(
            lambda leaf: leaf.astype(dtype)[places] if leaf.dtype.kind == "f" else leaf[places],
            rows,
        )

    def rows(self, start: int, stop: int) -> Any:
        """Rows start…stop of the data, on the host."""
        return jax.tree.map(lambda leaf: leaf[start:stop], self.data)

    def with_hyperparameters(self, **values: Any) -> Model:
        """The same model at other hyperparameters."""
        unknown = set(values) - set(self.hyperparameters)
        if unknown:
            raise InputError(
                f"unknown hyperparameters {sorted(unknown)}; the model has {sorted(self.hyperparameters)}"
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.hyperparameters = {
            **self.hyperparameters,
            **{k: np.asarray(v, dtype=float) for k, v in values.items()},
        }
        return other

    def scaled_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """−log p(θ)/N and its gradient, in float64."""
        with double():
            value, slope = _prior_value_and_slope(self.loss, self._prior_problem(theta))
        return float(value) / self.n_data, np.asarray(slope) / self.n_data

    def prior_hessian(self, theta: np.ndarray) -> np.ndarray:
        """Λ, the Hessian of −log p(θ); its diagonal only for more than 2000 parameters."""
        with double():
            if self.dim > FULL_LIMIT:
                return np.asarray(_prior_diagonal(self.loss, self._prior_problem(theta)))
            return np.asarray(_prior_hessian(self.loss, self._prior_problem(theta)))

    def scaled_prior_hessian(self, theta: np.ndarray) -> np.ndarray:
        """Λ/N, the prior's part of the Hessian of the mean loss."""
        return self.prior_hessian(theta) / self.n_data

    def _prior_problem(self, theta: np.ndarray) -> Problem:
        return Problem(None, self.hyperparameters, np.asarray(1.0), theta, theta)

    def closed_form(self) -> Any:
        """Closed-form derivatives where the model has them (linear_predictor.py), else None."""
        return None

    def constrained(self, draws: np.ndarray) -> dict[str, np.ndarray] | None:
        """Draws (..., D) on the scale users know, by name, where that is not the scale of the sampler; else None."""
        return None

    def _centred(self, centre: np.ndarray) -> tuple[Any, np.ndarray]:
        """Data and likelihood centre for displacements from `centre`."""
        return self.data, centre

    def _laid_out(self, data: Any, dtype: str, batch_size: int) -> Any:
        return jax.tree.map(partial(_device, dtype=dtype), data)

    def _centred_rows(self, rows: Any, centre: np.ndarray) -> Any:
        """What `_centred` does, for some rows."""
        return rows

    def _likelihood_centre(self, centre: np.ndarray) -> np.ndarray:
        return centre

    def _check_scalars(self) -> None:
        alive = []
        for dtype in ("float64", "float32"):
            with width(dtype):
                example = jax.tree.map(
                    lambda leaf, d=dtype: jax.ShapeDtypeStruct(leaf.shape[1:], _working(leaf, d)),
                    self.data,
                )
                params = jax.eval_shape(
                    self.layout.unflatten, jax.ShapeDtypeStruct((self.dim,), dtype)
                )
                hyper = jax.tree.map(
                    lambda leaf, d=dtype: jax.ShapeDtypeStruct(leaf.shape, d), self.hyperparameters
                )
                alive.append(
                    _require_scalar(
                        "log_likelihood", self.loss.log_likelihood, dtype, params, example, hyper
                    )
                )
                alive.append(
                    _require_scalar("log_prior", self.loss.log_prior, dtype, params, hyper)
                )


@compiled
def _prior_value_and_slope(loss: Loss, problem: Problem) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda shift: -loss.prior(problem, shift))(
        jnp.zeros_like(problem.centre)
    )


@compiled
def _prior_hessian(loss: Loss, problem: Problem) -> Array:
    return jax.hessian(lambda shift: -loss.prior(problem, shift))(jnp.zeros_like(problem.centre))


@compiled
def _prior_diagonal(loss: Loss, problem: Problem) -> Array:
    """Diagonal of the prior's Hessian; exact for priors that factorise over coordinates."""
    slope = jax.grad(lambda shift: -loss.prior(problem, shift))
    zero = jnp.zeros_like(problem.centre)
    return jax.jvp(slope, (zero,), (jnp.ones_like(zero),))[1]


def _taking(function: Callable[..., Array], count: int, what: str) -> Callable[..., Array]:
    """The function as one of `count` arguments, the last of which are the hyperparameters."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a function, not {function!r}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters) or len(required) == count - 1:
        return _WithoutHyper(function)
    if len(required) == count:
        return function
    raise InputError(
        f"{what} must take {count - 1} arguments, or {count} with the hyperparameters; it takes {len(required)}"
    )


def _require_scalar(what: str, function: Callable[..., Array], dtype: str, *arguments: Any) -> Any:
    """Trace the function in one width; the caller keeps what is returned until the other width has been tried."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    except Exception as error:
        raise InputError(
            f"{what} fails on an example of the data: {type(error).__name__}: {_first_line(error)}"
        ) from error
    shape = getattr(result, "shape", None)
    if shape != ():
        raise InputError(
            f"{what} must return a scalar for one example; it returned {_describe(result)}"
        )
    if not np.issubdtype(result.dtype, np.floating):
        raise InputError(
            f"{what} must return a real number; it returned one of dtype {result.dtype}"
        )
    for constant in program.consts:
        # JAX remembers a NumPy array in the first width it was used in, and fails once the other one is asked for.
        if dtype == "float32" and isinstance(constant, np.ndarray) and constant.dtype.itemsize == 8:
            raise InputError(
                f"{what} uses a NumPy array of dtype {constant.dtype} and shape {constant.shape} from outside: make it "
                "a JAX array first (array = jnp.asarray(array)), or hand it over in data or hyperparameters"
            )
    _require_derivatives(what, function, *arguments)
    return program


def _require_derivatives(
    what: str, function: Callable[..., Array], params: Any, *rest: Any
) -> None:
    """Trace the second derivatives, which a call to the host or a hand-made gradient may not have."""

    def twice(point: Any, *given: Any) -> Any:
        return jax.jvp(lambda moved: jax.grad(function)(moved, *given), (point,), (point,))

    try:
        jax.eval_shape(twice, params, *rest)
    except Exception as error:
        raise InputError(
            f"{what} cannot be differentiated twice: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _checked_hyperparameters(values: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    if values is not None and not isinstance(values, Mapping):
        raise InputError(
            f"hyperparameters must be a dict of numbers by name; got a {type(values).__name__}"
        )
    checked = {
        name: as_numbers(f"hyperparameter {name!r}", value)
        for name, value in (values or {}).items()
    }
    for name, value in checked.items():
        if not np.all(np.isfinite(value)):
            raise InputError(f"hyperparameter {name!r} holds a value that is not finite")
    return checked


def _describe(result: Any) -> str:
    shape = getattr(result, "shape", None)
    return f"an array of shape {shape}" if shape is not None else f"a {type(result).__name__}"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def _as_array(leaf: Any) -> Any:
    if type(leaf).__module__.split(".")[0] == "zarr":
        from ornstein.streaming import spilled_array

        return spilled_array(leaf)
    return leaf if isinstance(leaf, np.ndarray | jax.Array) else np.asarray(leaf)


def _checked_rows(data: Any) -> int:
    leaves = jax.tree.leaves(data)
    if not leaves:
        raise InputError("data holds no arrays")
    if any(leaf.ndim == 0 for leaf in leaves):
        raise InputError(
            "every array in data needs a leading axis over the examples; one is a scalar"
        )
    lengths = {int(leaf.shape[0]) for leaf in leaves}
    if len(lengths) != 1:
        raise InputError(f"arrays in data have different lengths: {sorted(lengths)}")
    (n_data,) = lengths
    if n_data == 0:
        raise InputError("data holds no rows")
    for leaf in leaves:
        if leaf.dtype.kind not in "fiub":
            raise InputError(f"data must be numeric; an array has dtype {leaf.dtype}")
        if leaf.dtype.kind == "f":
            require_finite("data", leaf)
    return n_data


def require_finite(what: str, array: Any, names: tuple[str, ...] | None = None) -> None:
    """Refuse NaN and infinity, looking at a bounded number of rows at a time."""
    step = max(1, 2**22 // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, array.shape[0], step):
        bad = ~np.isfinite(np.asarray(array[start : start + step], dtype=float))
        if bad.any():
            row = start + int(np.argwhere(bad)[0][0])
            column = (
                f" in column {names[int(np.argwhere(bad)[0][1])]!r}"
                if names and bad.ndim == 2
                else ""
            )
            raise InputError(f"{what} holds a value that is not finite{column}, first in row {row}")


def _working(leaf: Any, dtype: str) -> np.dtype:
    return np.dtype(dtype) if np.dtype(leaf.dtype).kind == "f" else np.dtype(leaf.dtype)


def _device(leaf: Any, dtype: str) -> Array:
    """On the device, floats in the working precision, integers in 32 bits; integers that do not fit become floats."""
    kind = np.dtype(leaf.dtype).kind
    if kind != "f" and (kind not in "iu" or _fits_32_bits(leaf)):
        return jnp.asarray(leaf)
    if not isinstance(leaf, np.ndarray):
        return jnp.asarray(leaf, dtype=dtype)
    numbers = aligned(leaf.shape, dtype)
    numbers[...] = leaf
    return jax.device_put(numbers)


def _fits_32_bits(leaf: Any) -> bool:
    """Whether no integer would wrap around on the way to 32 bits."""
    return bool(leaf.dtype.itemsize <= 4 or (leaf.min() >= -(2**31) and leaf.max() < 2**31))
