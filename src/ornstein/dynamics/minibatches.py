"""How a sampler's minibatches are drawn, and how much noise that leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ornstein.curvature.curvature import Curvature
from ornstein.errors import InputError
from ornstein.rows.scheme import (
    LEVERAGE,
    STRATIFIED,
    checked_batch_size,
    checked_scheme,
    effective_batch,
)


@dataclass(frozen=True)
class Minibatches:
    """Minibatches of `size` rows drawn by `scheme`: the covariance of their gradient is
    C/`effective`.

    Attributes:
        size: S, in rows.
        scheme: "replacement", "without-replacement", "slices", "leverage" or "stratified".
        effective: S/f, which stands for S in every formula; f is the finite-population factor of
            the scheme.

    >>> from ornstein import Curvature
    >>> curvature = Curvature(mode=[0.0], hessian=[[1.0]], noise=[[1.0]], n_data=11)
    >>> Minibatches.of(curvature, 6, "without-replacement").effective
    12.0
    """

    size: int
    scheme: str
    effective: float

    @classmethod
    def of(cls, curvature: Curvature, batch_size: int, scheme: str = "replacement") -> Self:
        """Minibatches of the data that the curvature is of; refuses what they cannot give."""
        scheme, n_data = checked_scheme(scheme), curvature.n_data
        size = checked_batch_size(batch_size, n_data, scheme)
        require_noise_of(curvature, scheme)
        return cls(size, scheme, effective_batch(scheme, n_data, size))


def require_noise_of(curvature: Curvature, scheme: str) -> None:
    """Refuse a curvature whose noise is that of minibatches drawn in another way."""
    known, drawn = "rows drawn alike", None
    if curvature.strata is not None:
        known, drawn = "fixed numbers of groups of each size", STRATIFIED
    elif curvature.probabilities is not None:
        known, drawn = "rows drawn by leverage", LEVERAGE
    if drawn != (scheme if scheme in (LEVERAGE, STRATIFIED) else None):
        raise InputError(
            f"the curvature holds the noise of {known}, the scheme is {scheme!r}: use"
            f" orn.measure(model, scheme={scheme!r})"
        )
