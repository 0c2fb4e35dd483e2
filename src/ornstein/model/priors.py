"""Prior laws of single parameters, for `orn.glm(priors={...})`.

A prior on a parameter that must be positive (a noise scale, a dispersion) is that law's part above
zero: `Normal(0, 1)` is half-normal there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import ClassVar

import jax.numpy as jnp

from ornstein.checks import brief, is_number
from ornstein.errors import InputError
from ornstein.types import Traced


@dataclass(frozen=True)
class Normal:
    """Normal with a mean and a standard deviation.

    >>> Normal(0, 2.5)
    Normal(mean=0, sd=2.5)
    """

    mean: float
    sd: float

    positive: ClassVar[tuple[str, ...]] = ("sd",)

    def __post_init__(self) -> None:
        _require_numbers(self)

    @staticmethod
    def log_density(x: Traced, mean: Traced, sd: Traced) -> Traced:
        return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


@dataclass(frozen=True)
class StudentT:
    """Student-t with degrees of freedom, location and scale: heavier tails than a normal.

    >>> StudentT(4, 0, 1)
    StudentT(df=4, loc=0, scale=1)
    """

    df: float
    loc: float
    scale: float

    positive: ClassVar[tuple[str, ...]] = ("df", "scale")

    def __post_init__(self) -> None:
        _require_numbers(self)

    @staticmethod
    def log_density(x: Traced, df: Traced, loc: Traced, scale: Traced) -> Traced:
        return -0.5 * (df + 1.0) * jnp.log1p(((x - loc) / scale) ** 2 / df) - jnp.log(scale)


@dataclass(frozen=True)
class Flat:
    """No prior: every value counts the same (for a positive parameter every value of its logarithm,
    which is what the sampler moves).

    >>> Flat()
    Flat()
    """

    positive: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def log_density(x: Traced) -> Traced:
        return jnp.zeros(())


@dataclass(frozen=True)
class Gamma:
    """Gamma with a shape and a rate; for positive parameters.

    >>> Gamma(2, 0.1)
    Gamma(shape=2, rate=0.1)
    """

    shape: float
    rate: float

    positive: ClassVar[tuple[str, ...]] = ("shape", "rate")

    def __post_init__(self) -> None:
        _require_numbers(self)

    @staticmethod
    def log_density(x: Traced, shape: Traced, rate: Traced) -> Traced:
        return (shape - 1.0) * jnp.log(x) - rate * x


@dataclass(frozen=True)
class InverseGamma:
    """Inverse gamma with a shape and a scale; for positive parameters. It keeps them from zero and
    lets them be large.

    >>> InverseGamma(1, 0.05)
    InverseGamma(shape=1, scale=0.05)
    """

    shape: float
    scale: float

    positive: ClassVar[tuple[str, ...]] = ("shape", "scale")

    def __post_init__(self) -> None:
        _require_numbers(self)

    @staticmethod
    def log_density(x: Traced, shape: Traced, scale: Traced) -> Traced:
        return -(shape + 1.0) * jnp.log(x) - scale / x


@dataclass(frozen=True)
class Beta:
    """Beta with two shapes; for probabilities.

    >>> Beta(1, 1)
    Beta(a=1, b=1)
    """

    a: float
    b: float

    positive: ClassVar[tuple[str, ...]] = ("a", "b")

    def __post_init__(self) -> None:
        _require_numbers(self)

    @staticmethod
    def log_density(x: Traced, a: Traced, b: Traced) -> Traced:
        return (a - 1.0) * jnp.log(x) + (b - 1.0) * jnp.log1p(-x)


Prior = Normal | StudentT | Flat | Gamma | InverseGamma | Beta
# What a coefficient may have: the others are laws of positive numbers.
OnCoefficients = Normal | StudentT | Flat


def numbers_of(prior: Prior) -> tuple[float, ...]:
    """The numbers of a prior, in the order in which its `log_density` takes them."""
    return tuple(float(value) for value in astuple(prior))


def density_of(kind: type[Prior]) -> Callable[..., Traced]:
    """log p(x), up to a constant, as a function of x and the prior's numbers."""
    return kind.log_density


def words(prior: Prior) -> str:
    """The prior as a summary prints it.

    >>> words(Normal(0.0, 2.5)), words(Flat())
    ('Normal(0, 2.5)', 'Flat')
    """
    given = ", ".join(f"{number:.4g}" for number in numbers_of(prior))
    return f"{type(prior).__name__}({given})" if given else type(prior).__name__


def _require_numbers(prior: Prior) -> None:
    for field in fields(prior):
        value, name = getattr(prior, field.name), f"{type(prior).__name__}'s {field.name}"
        if not is_number(value):
            raise InputError(f"{name} must be a finite number; got {brief(value)}")
        if field.name in prior.positive and value <= 0:
            raise InputError(f"{name} must be positive; got {brief(value)}")
