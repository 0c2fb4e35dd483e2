"""Families of laws, for `family=` where a name does not say enough: `orn.families.StudentT(df=4)`.

>>> StudentT(df=4).name, Bernoulli("probit").link
('student-t', 'probit')
"""

from ornstein.model.families.bernoulli import Bernoulli
from ornstein.model.families.categorical import Categorical
from ornstein.model.families.counts import NegativeBinomial, Poisson
from ornstein.model.families.family import Auxiliary, Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.student_t import StudentT
from ornstein.model.families.table import TABLE, family_of

__all__ = [
    "TABLE",
    "Auxiliary",
    "Bernoulli",
    "Categorical",
    "Family",
    "Gaussian",
    "NegativeBinomial",
    "Poisson",
    "StudentT",
    "family_of",
]
