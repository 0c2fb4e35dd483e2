"""One short file per sampler: a rule that turns a Curvature into a Dynamics.

`REGISTRY` lists them. Public names, saved files, the command line, its help and the documentation
take theirs from it, so that a new sampler is a file, a line here and a row in the battery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from ornstein.errors import InputError

if TYPE_CHECKING:
    from ornstein.dynamics.dynamics import Sampler


@dataclass(frozen=True)
class Entry:
    """A sampler of the library.

    Attributes:
        name: of the class, which is public.
        module: the file in this folder.
        forms: what the command line calls it, each with the settings that makes it so.
        functions: public functions of the file.
        parts: further classes of the file that a saved fit may hold.
    """

    name: str
    module: str
    forms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


REGISTRY = (
    Entry(
        "ConstantSGD",
        "constant_sgd",
        {
            "constant-sgd-full": {"preconditioner": "full"},
            "constant-sgd-diagonal": {"preconditioner": "diagonal"},
            "constant-sgd-sqrt": {"preconditioner": "sqrt"},
            "constant-sgd-scalar": {"preconditioner": "scalar"},
        },
    ),
    Entry(
        "SGLD",
        "sgld",
        {
            "sgld": {},
            "sgld-exact": {"exact": True},
            "sgld-cv": {"exact": True, "control_variates": True, "preconditioner": "full"},
        },
        functions=("robbins_monro",),
        parts=("RelativeSchedule", "RobbinsMonro"),
    ),
    Entry(
        "SGFS",
        "sgfs",
        {
            "sgfs-full": {"preconditioner": "full"},
            "sgfs-diagonal": {"preconditioner": "diagonal"},
        },
    ),
    Entry("SGHMC", "sghmc", {"sghmc": {}}),
    Entry("SGNHT", "sgnht", {"sgnht": {}}, parts=("ThermostatDynamics",)),
    Entry("IASG", "iasg", {"iasg": {}}),
)

FORMS = {form: (entry, settings) for entry in REGISTRY for form, settings in entry.forms.items()}
# Where each public name lives, below the package.
PUBLIC = {
    name: f"samplers.{entry.module}"
    for entry in REGISTRY
    for name in (entry.name, *entry.functions)
}
# Where each class lives that a saved fit may hold, below the package.
STORED = {
    name: f"samplers.{entry.module}" for entry in REGISTRY for name in (entry.name, *entry.parts)
}


def sampler_by_name(form: str) -> Sampler:
    """The sampler that the command line calls so.

    >>> sampler_by_name("constant-sgd-full").name
    "ConstantSGD('full')"
    """
    if form not in FORMS:
        raise InputError(f"unknown sampler {form!r}; choose one of {', '.join(FORMS)}")
    entry, settings = FORMS[form]
    kind = getattr(import_module(f"ornstein.samplers.{entry.module}"), entry.name)
    sampler: Sampler = kind(**settings)
    return sampler
