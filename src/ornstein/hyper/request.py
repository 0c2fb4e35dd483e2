"""What was asked of `orn.em`, checked, as plain data: a checkpoint writes it down and `orn.resume`
reads it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import brief, is_number, is_whole
from ornstein.dynamics.dynamics import Sampler
from ornstein.errors import InputError
from ornstein.posterior.portable import NotPortableError, describe, rebuild
from ornstein.streams import require_seed
from ornstein.types import Array

RECIPES = ("corrected", "paper")
BASELINES = ("grid", "bbvi")
_PLAIN = (
    "recipe",
    "batch_size",
    "seed",
    "scheme",
    "chains",
    "draws",
    "tolerance",
    "max_blocks",
    "bbvi_steps",
)


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `orn.em`, but for the model, the validation data, and how to report and
    save.
    """

    hyperparameters: Sequence[str] | Mapping[str, ArrayLike | None]
    sampler: Sampler | str
    recipe: str
    batch_size: int | str
    seed: int
    real: Sequence[str]
    scheme: str
    chains: int
    draws: int | None
    tolerance: float
    max_blocks: int
    baselines: Sequence[str]
    grid: ArrayLike | None
    bbvi_steps: int

    def __post_init__(self) -> None:
        if self.recipe not in RECIPES:
            raise InputError(f"recipe must be one of {RECIPES}, not {self.recipe!r}")
        unknown = [name for name in self.baselines if name not in BASELINES]
        if isinstance(self.baselines, str) or unknown:
            raise InputError(
                f"baselines must be a sequence of names among {BASELINES}; got {self.baselines!r}"
            )
        if not is_number(self.tolerance) or not self.tolerance > 0:
            raise InputError(f"tolerance must be positive; got {self.tolerance!r}")
        if not isinstance(self.hyperparameters, str | Sequence | Mapping):
            raise InputError(
                "hyperparameters must be names, or a mapping of names; got"
                f" {brief(self.hyperparameters)}"
            )
        require_seed(self.seed)
        if not is_whole(self.max_blocks) or not is_whole(self.chains):
            raise InputError(
                f"max_blocks and chains must be whole numbers; got {self.max_blocks!r} and"
                f" {self.chains!r}"
            )
        if self.max_blocks < 4 or self.chains < 1:
            raise InputError(
                f"max_blocks must be at least 4 and chains at least 1; got {self.max_blocks} and"
                f" {self.chains}"
            )

    def written(self) -> tuple[dict[str, object], dict[str, Array]]:
        """As JSON, with arrays on the side."""
        arrays: dict[str, Array] = {}
        wanted = (
            (self.hyperparameters,)
            if isinstance(self.hyperparameters, str)
            else self.hyperparameters
        )
        words: dict[str, object] = {name: getattr(self, name) for name in _PLAIN}
        words |= {"names": list(wanted), "real": list(self.real), "baselines": list(self.baselines)}
        try:
            words["sampler"] = describe(self.sampler, arrays, "sampler")
        except NotPortableError as error:
            raise InputError(
                f"a checkpoint cannot hold the sampler, because it holds a function: {error}"
            ) from error
        if isinstance(wanted, Mapping):
            arrays |= {
                f"labels/{name}": np.asarray(labels)
                for name, labels in wanted.items()
                if labels is not None
            }
        return words, arrays if self.grid is None else {**arrays, "grid": np.asarray(self.grid)}

    @classmethod
    def read(cls, words: Mapping[str, Any], arrays: Mapping[str, Array]) -> Request:
        """What `written` was called on."""
        plain = {name: words[name] for name in _PLAIN}
        return cls(
            {name: arrays.get(f"labels/{name}") for name in words["names"]},
            rebuild(words["sampler"], arrays),
            real=tuple(words["real"]),
            baselines=tuple(words["baselines"]),
            grid=arrays.get("grid"),
            **plain,
        )
