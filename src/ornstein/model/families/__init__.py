"""Families of laws, for `family=` where a name does not say enough: `orn.families.StudentT(df=4)`.

>>> StudentT(df=4).name, Bernoulli("probit").link
('student-t', 'probit')
"""

from ornstein.model.families.bernoulli import Bernoulli
from ornstein.model.families.beta import Beta
from ornstein.model.families.binomial import Binomial
from ornstein.model.families.categorical import Categorical
from ornstein.model.families.counts import NegativeBinomial, Poisson
from ornstein.model.families.family import Auxiliary, Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.ordinal import Ordinal
from ornstein.model.families.positive import Gamma, LogNormal
from ornstein.model.families.quantile import Quantile
from ornstein.model.families.student_t import StudentT
from ornstein.model.families.survival import Exponential, Weibull
from ornstein.model.families.table import TABLE, family_of
from ornstein.model.families.zeros import (
    HurdleNegativeBinomial,
    HurdlePoisson,
    ZeroInflatedNegativeBinomial,
    ZeroInflatedPoisson,
)

__all__ = [
    "TABLE",
    "Auxiliary",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Exponential",
    "Family",
    "Gamma",
    "Gaussian",
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Quantile",
    "StudentT",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "family_of",
]
