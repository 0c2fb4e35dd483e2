"""The table of families: to add one, write its page and add a line here."""

from __future__ import annotations

import difflib
from functools import lru_cache

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model.families.bernoulli import Bernoulli
from ornstein.model.families.beta import Beta
from ornstein.model.families.binomial import Binomial
from ornstein.model.families.categorical import Categorical
from ornstein.model.families.counts import NegativeBinomial, Poisson
from ornstein.model.families.family import Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.ordinal import Ordinal
from ornstein.model.families.positive import Gamma, LogNormal
from ornstein.model.families.quantile import Quantile
from ornstein.model.families.student_t import StudentT
from ornstein.model.families.survival import Exponential, Weibull
from ornstein.model.families.zeros import (
    HurdleNegativeBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

TABLE: dict[str, type[Family]] = {
    page.name: page
    for page in (
        Gaussian,
        Bernoulli,
        Categorical,
        Poisson,
        NegativeBinomial,
        StudentT,
        Binomial,
        Gamma,
        Beta,
        LogNormal,
        Exponential,
        Weibull,
        Ordinal,
        ZeroInflatedPoisson,
        ZeroInflatedNegativeBinomial,
        HurdlePoisson,
        HurdleNegativeBinomial,
        Quantile,
    )
}


def family_of(family: str | Family, link: str | None = None) -> Family:
    """The family of that name, or the family itself, with that link; or a sentence on which there
    are.

    >>> family_of("Negative binomial").name
    'negative-binomial'
    >>> family_of("bernoulli", "probit").link
    'probit'
    """
    if isinstance(family, Family):
        if link not in (None, family.link):
            raise InputError(f"the family already has the link {family.link!r}; got link={link!r}")
        return family
    name = _hyphenated(family)
    if name not in TABLE:
        close = difflib.get_close_matches(name, TABLE, n=1, cutoff=0.75)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InputError(f"unknown family {brief(family)}; {hint}choose one of {', '.join(TABLE)}")
    if link is not None and not isinstance(link, str):
        raise InputError(f"link must be a name; got {brief(link)}")
    return TABLE[name](link=(link or "").strip().lower())


def _hyphenated(family: object) -> str:
    if not isinstance(family, str):
        raise InputError(
            f"family must be a name or one of orn.families; got {brief(family)}. The names are"
            f" {', '.join(TABLE)}"
        )
    return "-".join(family.lower().replace("_", " ").replace("-", " ").split())


@lru_cache(maxsize=256)
def rebuilt(name: str, link: str, settings: tuple[tuple[str, float], ...]) -> Family:
    """A family from the plain values that `Likelihood` holds."""
    if name not in TABLE:
        raise InputError(f"unknown family {brief(name)}")
    return TABLE[name](link=link, **dict(settings))
