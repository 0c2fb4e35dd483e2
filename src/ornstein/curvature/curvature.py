"""The local picture at the mode: Hessian A of the mean loss, gradient noise C, and how the noise
depends on the spread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.linalg

from ornstein.checks import is_whole, printable
from ornstein.errors import CurvatureError, InputError
from ornstein.model.coordinates import Coordinates
from ornstein.theory import Gaussian
from ornstein.types import Array


@dataclass(frozen=True, eq=False)
class Curvature:
    """Mode, Hessian and noise of the mean loss; the posterior it stands for is N(mode, A⁻¹/N).

    Args:
        mode: where the gradient of the mean loss vanishes.
        hessian: A, (D, D), or (D,) where only a diagonal is known.
        noise: C, the covariance of single-example gradients at the mode, same shapes.
        n_data: N.
        noise_response: Σ ↦ K[Σ], what a spread Σ of θ adds to C, linear and symmetric (⟨K[Σ], Π⟩ =
            ⟨Σ, K[Π]⟩, as E[AΣA] − AΣA is); None takes the noise as constant.
        prior_hessian: Λ, the Hessian of −log prior, already contained in A as Λ/N; needed only
            where C is singular.
        approximate: in words, what in it is an approximation.
        probabilities: of drawing each row, (N,), where `noise` and `noise_response` are those of
            minibatches drawn by leverage, or stratified; None where all rows are drawn alike.
        strata: how many groups of each size, of those shared out, where minibatches are stratified.
        hessian_product: v ↦ Av, where the whole A is too large to hold but its largest eigenvalue
            decides stability.
        working: the same in other coordinates, in which a run takes its steps, where rounding would
            decide in these; and `coordinates`, from them to these.

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
    probabilities: Array | None = None
    strata: Array | None = None
    working: Curvature | None = field(default=None, repr=False)
    coordinates: Coordinates | None = field(default=None, repr=False)

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
        if self.working is None:
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
        if self.working is not None and self.coordinates is not None:
            return self.coordinates.original_covariance(self.working.posterior_covariance)
        if self.diagonal:
            return 1.0 / (self.n_data * self.hessian)
        try:
            inverse = _inverse(self.hessian)
        except np.linalg.LinAlgError:
            # Scales of the parameters so different that only a diagonal of ones can be factorised.
            scale = np.sqrt(np.diagonal(self.hessian))
            inverse = _inverse(self.hessian / np.multiply.outer(scale, scale))
            inverse = inverse / np.multiply.outer(scale, scale)
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

    @classmethod
    def of_working(cls, working: Curvature, coordinates: Coordinates) -> Curvature:
        """What was measured in the coordinates of a run, in those of the model."""
        return working._moved(
            coordinates.original,
            coordinates.original_precision,
            coordinates.working_covariance,
            working=working,
            coordinates=coordinates,
        )

    def in_working(self, coordinates: Coordinates) -> Curvature:
        """The same in the coordinates of a run; as it was measured there, where it was."""
        if self.working is not None:
            return self.working
        return self._moved(
            coordinates.working, coordinates.working_precision, coordinates.original_covariance
        )

    def _moved(
        self,
        point: Callable[[Array], Array],
        precision: Callable[[Array], Array],
        covariance_back: Callable[[Array], Array],
        working: Curvature | None = None,
        coordinates: Coordinates | None = None,
    ) -> Curvature:
        """The same in other coordinates, to which `point` and `precision` lead."""
        response, prior = self.noise_response, self.prior_hessian

        def respond(covariance: Array) -> Array:
            assert response is not None
            return precision(response(covariance_back(covariance)))

        return replace(
            self,
            mode=point(self.mode),
            hessian=precision(self.hessian),
            noise=precision(self.noise),
            noise_response=None if response is None else respond,
            prior_hessian=None if prior is None else precision(prior),
            hessian_product=None,
            working=working,
            coordinates=coordinates,
        )

    def direction(self, vector: Array, most: int = 3) -> str:
        """A direction in words, by the parameters that matter most in it."""
        order = np.argsort(-np.abs(vector))[:most]
        return ", ".join(
            f"{vector[position]:+.2f} {printable(self.names[position])}"
            for position in order
            if vector[position]
        )

    def _require_positive_definite(self) -> None:
        diagonal = self.hessian if self.diagonal else np.diagonal(self.hessian)
        worst = int(np.argmin(diagonal))
        if diagonal[worst] <= 0:
            raise CurvatureError(
                f"the Hessian at the mode is not positive definite: {diagonal[worst]:.3g} in the"
                f" direction +1.00 {printable(self.names[worst])}. Neither the data nor"
                " the prior determine that parameter: give it a proper prior, drop it, start"
                " the search"
                " elsewhere (init), or, for a network, use measure(model, hessian='fisher')"
            )
        if self.diagonal:
            return
        scale = np.sqrt(diagonal)
        values, vectors = np.linalg.eigh(self.hessian / np.multiply.outer(scale, scale))
        # less than rounding leaves of the eigenvalues of so large a matrix
        if values[0] <= max(1e-13, self.dim * np.finfo(float).eps) * max(1.0, values[-1]):
            raise CurvatureError(
                "the Hessian at the mode is not positive definite: smallest eigenvalue"
                f" {values[0]:.3g} (columns scaled to one) in the direction"
                f" {self.direction(vectors[:, 0] / scale / np.linalg.norm(vectors[:, 0] / scale))}."
                " Columns may be collinear: give the prior a positive precision, drop a column,"
                " or, for a network, use measure(model, hessian='fisher')"
            )


def require_curvature(curvature: object) -> None:
    """Refuse what is neither a Curvature nor None."""
    if curvature is not None and not isinstance(curvature, Curvature):
        raise InputError(
            "curvature must be a Curvature, for instance orn.measure(model); got a"
            f" {type(curvature).__name__}"
        )


def _inverse(matrix: Array) -> Array:
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(matrix), np.eye(len(matrix)))


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
