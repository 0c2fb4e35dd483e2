"""Ways to a posterior, one file per way: what it will deliver and cost, and its run.

`REGISTRY` lists them in the order of the plan's table. A new way is a file and a line here.
"""

from __future__ import annotations

from ornstein.checks import FULL_LIMIT
from ornstein.errors import InputError
from ornstein.samplers import FORMS
from ornstein.ways.laplace import Laplace
from ornstein.ways.lockstep import LockstepHmc
from ornstein.ways.low_rank import LowRank
from ornstein.ways.situation import Situation
from ornstein.ways.stochastic import StochasticGradients
from ornstein.ways.trajectories import MetricNuts, Nuts
from ornstein.ways.variational import GaussianVi
from ornstein.ways.way import Way
from ornstein.ways.weighted import WeightedLaplace
from ornstein.ways.wide import WideHmc, WideLaplace, WideVi

# Steps of a tenth of their bound leave about so much of what Laplace's approximation is off by.
FOLLOWED = 0.1

REGISTRY: tuple[Way, ...] = (
    Laplace(),
    GaussianVi(),
    WeightedLaplace(),
    StochasticGradients("constant-sgd-full", "gradient noise shaped like the posterior"),
    StochasticGradients("constant-sgd-diagonal", "as close as one rate per parameter gets"),
    StochasticGradients("constant-sgd-scalar", "as close as a single rate gets"),
    StochasticGradients("sgfs-full", "Fisher scoring with injected noise"),
    StochasticGradients("iasg", "means over windows of iterates"),
    StochasticGradients(
        "sgld-cv", "small steps with injected noise; a draw costs few minibatches", FOLLOWED
    ),
    LockstepHmc(),
    MetricNuts(),
    Nuts(),
    LowRank(),
)

# With more than 2000 parameters: for regressions from their rows, and for everything else.
WIDE: tuple[Way, ...] = (WideLaplace(), WideVi(), WideHmc())
LAST: tuple[Way, ...] = tuple(way for way in REGISTRY if way.name == "constant-sgd-diagonal")


def ways_of(situation: Situation) -> tuple[Way, ...]:
    """The ways there are for a model: the plan's rows."""
    if situation.wide is not None:
        return WIDE
    few = situation.dim <= FULL_LIMIT or situation.needs_nuts
    return REGISTRY if few else LAST


def way_by_name(name: str) -> Way | None:
    """The way of this name; None where there is none.

    >>> way_by_name("laplace").name, way_by_name("sideways")
    ('laplace', None)
    """
    return next((way for way in REGISTRY if way.name == name), None)


def require_way(name: str) -> str:
    """The name, refused where no way and no sampler has it.

    >>> require_way("sgld")
    'sgld'
    """
    names = list(dict.fromkeys([*(way.name for way in REGISTRY), *FORMS]))
    if name not in names:
        raise InputError(f"unknown sampler {name!r}; choose auto or one of {', '.join(names)}")
    return name
