"""The list that the other files of this folder fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A model function with what it is called with."""

    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One model of the list.

    Attributes:
        name: for tests and tables.
        build: makes the call; nothing is simulated before.
        symmetric: latents are exchangeable or have signs of no meaning, so that means can be
            compared only after sorting or not at all.
    """

    name: str
    build: Callable[[], Call]
    symmetric: bool = False


MODELS: dict[str, Case] = {}


def case(name: str, symmetric: bool = False) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """Put what a function builds on the list."""

    def listed(build: Callable[[], Call]) -> Callable[[], Call]:
        assert name not in MODELS, name
        MODELS[name] = Case(name, build, symmetric)
        return build

    return listed
