"""The local picture at the mode: Hessian A of the mean loss, gradient noise C, and how the noise answers to spread.

`measure` finds the mode and takes them exactly, in chunked passes over the data; a Curvature can also be written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from ornstein.derivatives import Autodiff, Derivatives
from ornstein.errors import CurvatureError, InputError
from ornstein.minibatch import is_whole
from ornstein.mode import find_mode
from ornstein.model import FULL_LIMIT, Model
from ornstein.theory import Gaussian

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Curvature:
    """Mode, Hessian and noise of the mean loss; the posterior it stands for is N(mode, A⁻¹/N).

    Args:
        mode: where the gradient of the mean loss vanishes.
        hessian: A, (D, D), or (D,) where only a diagonal is known.
        noise: C, the covariance of single-example gradients at the mode, same shapes.
        n_data: N.
        noise_response: Σ ↦ K[Σ], what a spread Σ of θ adds to C, linear and symmetric (⟨K[Σ], Π⟩ = ⟨Σ, K[Π]⟩, as E[AΣA] − AΣA is);
            None takes the noise as constant.
        prior_hessian: Λ, the Hessian of −log prior, already contained in A as Λ/N; needed only where C is singular.
        approximate: in words, what in it is an approximation.
        hessian_product: v ↦ Av, where the whole A is too large to hold but its largest eigenvalue decides stability.

    >>> cur = Curvature(mode=[0.0], hessian=[[2.0]], noise=[[2.0]], n_data=100)
    >>> round(float(cur.laplace.covariance[0, 0]), 12)
    0.005
    """

    mode: Array
    hessian: Array
    noise: Array
    n_data: int
    noise_response: Callable[[Array], Array] | None = None
    prior_hessian: Array | None = None
    names: tuple[str, ...] = ()
    approximate: str = ""
    hessian_product: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        for name in ("mode", "hessian", "noise"):
            try:
                value = np.asarray(getattr(self, name), dtype=float)
            except (TypeError, ValueError):
                raise InputError(
                    f"{name} must be an array of numbers; got {getattr(self, name)!r}"
                ) from None
            if not np.all(np.isfinite(value)):
                raise InputError(f"{name} holds a value that is not finite")
            object.__setattr__(self, name, value)
        size = self.mode.size
        for name in ("hessian", "noise"):
            value = getattr(self, name)
            if value.shape not in {(size,), (size, size)}:
                raise InputError(
                    f"{name} must have shape {(size, size)} or {(size,)}; it has {value.shape}"
                )
            if value.ndim == 2 and not np.allclose(
                value, value.T, rtol=1e-8, atol=1e-12 * np.abs(value).max()
            ):
                raise InputError(f"{name} must be symmetric")
        if not is_whole(self.n_data) or self.n_data < 1:
            raise InputError(f"n_data must be a whole number, 1 or more; got {self.n_data!r}")
        if not self.names:
            object.__setattr__(
                self, "names", tuple(f"theta[{position}]" for position in range(size))
            )
        self._require_positive_definite()

    @property
    def dim(self) -> int:
        return self.mode.size

    @property
    def diagonal(self) -> bool:
        """Whether only diagonals are known."""
        return self.hessian.ndim == 1

    @cached_property
    def posterior_covariance(self) -> Array:
        """A⁻¹/N."""
        if self.diagonal:
            return 1.0 / (self.n_data * self.hessian)
        inverse = scipy.linalg.cho_solve(scipy.linalg.cho_factor(self.hessian), np.eye(self.dim))
        return (inverse + inverse.T) / (2.0 * self.n_data)

    @cached_property
    def laplace(self) -> Gaussian:
        """The Gaussian posterior at the mode."""
        return Gaussian(self.mode, self.posterior_covariance)

    @cached_property
    def effective_noise(self) -> Array:
        """C + K[A⁻¹/N]: the noise met by a chain that is spread like the posterior."""
        return self.noise_at(self.posterior_covariance)

    def noise_at(self, covariance: Array) -> Array:
        """C + K[Σ] for a chain spread like Σ."""
        return (
            self.noise
            if self.noise_response is None
            else self.noise + self.noise_response(covariance)
        )

    def largest_rate(self, preconditioner: Array) -> float:
        """λ_max(HA) for a diagonal or scalar H, by power iteration where A itself is not held."""
        root = np.sqrt(np.broadcast_to(preconditioner, (self.dim,)))
        if self.hessian_product is None:
            return (
                float(np.max(root**2 * self.hessian))
                if self.diagonal
                else float(np.linalg.eigvalsh(root[:, None] * self.hessian * root)[-1])
            )
        product = self.hessian_product
        return _largest_eigenvalue(lambda vector: root * product(root * vector), self.dim)

    def direction(self, vector: Array, most: int = 3) -> str:
        """A direction in words, by the parameters that matter most in it."""
        order = np.argsort(-np.abs(vector))[:most]
        return ", ".join(
            f"{vector[position]:+.2f} {self.names[position]}"
            for position in order
            if vector[position]
        )

    def _require_positive_definite(self) -> None:
        if self.diagonal:
            worst = int(np.argmin(self.hessian))
            if self.hessian[worst] <= 0:
                raise CurvatureError(
                    f"the Hessian at the mode is not positive: {self.hessian[worst]:.3g} for {self.names[worst]}"
                )
            return
        scale = np.sqrt(np.maximum(np.abs(np.diagonal(self.hessian)), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(self.hessian / np.multiply.outer(scale, scale))
        if values[0] <= 1e-13 * max(1.0, values[-1]):
            raise CurvatureError(
                f"the Hessian at the mode is not positive definite: smallest eigenvalue {values[0]:.3g} (columns scaled to "
                f"one) in the direction {self.direction(vectors[:, 0] / scale / np.linalg.norm(vectors[:, 0] / scale))}. "
                "Columns may be collinear: give the prior a positive precision, drop a column, or, for a network, use "
                "measure(model, hessian='fisher')"
            )


def measure(
    model: Model, structure: str = "auto", *, hessian: str = "exact", mode: Array | None = None
) -> Curvature:
    """Find the mode and measure A, C and K[·] there.

    Args:
        model: what is inferred.
        structure: "full"; "diagonal" (diagonal C, and A taken as C + Λ/N: the prediction is then marked approximate); "auto"
            is full up to 2000 parameters.
        hessian: "exact", or "fisher" to put the mean outer product of gradients for the data part (always positive).
        mode: a flat vector to take as the mode instead of searching for it.

    >>> import numpy as np
    >>> from ornstein.glm import glm
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> cur = measure(glm(X, X @ [1.0, -1.0], noise_scale=1.0, intercept=False))
    >>> np.round(cur.mode, 2)
    array([ 0.99, -0.99])
    """
    if structure not in ("auto", "full", "diagonal"):
        raise InputError(f"structure must be 'auto', 'full' or 'diagonal', not {structure!r}")
    if hessian not in ("exact", "fisher"):
        raise InputError(f"hessian must be 'exact' or 'fisher', not {hessian!r}")
    if not isinstance(model, Model):
        raise InputError(
            f"model must be a Model, for instance orn.glm(X, y); got a {type(model).__name__}"
        )
    if mode is not None and np.shape(mode) != (model.dim,):
        raise InputError(
            f"mode must be a vector of {model.dim} parameters; it has shape {np.shape(mode)}"
        )
    derivatives = model.closed_form() or Autodiff(model)
    full = structure == "full" or (structure == "auto" and model.dim <= FULL_LIMIT)
    curved = _remembering(derivatives.hessian) if full and hessian == "exact" else None
    found = find_mode(model, derivatives, curved) if mode is None else np.asarray(mode, dtype=float)
    return _full(model, derivatives, found, curved) if full else diagonal_curvature(model, found)


def _remembering(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The function, with its last value known: the search for the mode ends with the Hessian there."""
    known: tuple[Array, Array] | None = None

    def remembered(theta: Array) -> Array:
        nonlocal known
        if known is None or not np.array_equal(known[0], theta):
            known = theta.copy(), function(theta)
        return known[1]

    return remembered


def _full(
    model: Model, derivatives: Derivatives, mode: Array, hessian: Callable[[Array], Array] | None
) -> Curvature:
    """All of A and C; without a Hessian the Fisher matrix stands for its data part."""
    first, second = derivatives.gradient_moments(mode)
    prior = model.prior_hessian(mode)
    prior = np.diag(prior) if prior.ndim == 1 else prior
    data_part = second if hessian is None else hessian(mode)
    squared = None if hessian is None else derivatives.squared_hessian(mode)

    def respond(covariance: Array) -> Array:
        assert squared is not None
        return squared(covariance) - data_part @ covariance @ data_part

    return Curvature(
        mode,
        data_part + prior / model.n_data,
        second - np.outer(first, first),
        model.n_data,
        noise_response=None if squared is None else respond,
        prior_hessian=prior,
        names=model.names,
        approximate="the Hessian is the Fisher matrix of the gradients" if hessian is None else "",
    )


def diagonal_curvature(
    model: Model, mode: Array, products: Callable[[Array, Array], Array] | None = None
) -> Curvature:
    """The diagonal picture at a point taken as the mode: C exact on all rows, A taken as C + Λ/N.

    `products` (θ, v) ↦ the mean Hessian times v, where there is a cheaper way to them than the exact one.
    """
    derivatives = model.closed_form() or Autodiff(model)
    first, second = derivatives.diagonal_moments(mode)
    noise = np.maximum(second - first**2, 0.0)
    prior = model.prior_hessian(mode)
    prior = prior if prior.ndim == 1 else np.diagonal(prior)
    product = products or derivatives.hessian_product
    return Curvature(
        mode,
        noise + prior / model.n_data,
        noise,
        model.n_data,
        prior_hessian=prior,
        names=model.names,
        approximate="only diagonals are known, and A is taken as C + Λ/N",
        hessian_product=lambda vector: product(mode, vector) + prior * vector / model.n_data,
    )


def _largest_eigenvalue(
    product: Callable[[Array], Array], dimension: int, rounds: int = 30
) -> float:
    vector = np.random.default_rng(0).normal(size=dimension)
    value = 0.0
    for _ in range(rounds):
        vector /= np.linalg.norm(vector)
        image = product(vector)
        previous, value = value, float(vector @ image)
        vector = image
        if abs(value - previous) <= 1e-3 * abs(value):
            break
    return value
