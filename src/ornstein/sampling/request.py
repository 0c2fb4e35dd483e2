"""What a caller asks of `sample`, as frozen data; what cannot be done is refused at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ornstein.checks import brief, is_whole
from ornstein.curvature.curvature import Curvature, require_curvature
from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.errors import InputError
from ornstein.posterior.low_rank import rank_of
from ornstein.streams import require_seed
from ornstein.types import PyTree


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """The arguments of `ornstein.sample` that describe a run; there they are explained.

    >>> SampleRequest(draws=0)
    Traceback (most recent call last):
    ornstein.errors.InputError: draws must be a positive whole number; got 0
    """

    sampler: Sampler | Dynamics | None = None
    batch_size: int | str = "auto"
    scheme: str = "replacement"
    draws: int = 1000
    chains: int = 4
    thin: int | str = "auto"
    warmup: int | str = "auto"
    max_steps: int = 20_000_000
    curvature: Curvature | None = None
    init: PyTree = None
    seed: int = 0
    dtype: str | None = None
    keep: str = "draws"
    progress: bool = True
    checkpoint: str | Path | None = None
    every: str | float = "60s"
    first_chain: int = 0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        for name in ("draws", "chains", "max_steps"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise InputError(f"{name} must be a positive whole number; got {value!r}")
        total = self.draws * self.chains
        if total > self.max_steps:
            raise InputError(
                f"{total:.3g} draws over all chains are more than max_steps={self.max_steps:.3g}"
                " steps can give"
            )
        if total < 2:
            raise InputError(
                "draws times chains must be at least 2: one draw alone has no covariance"
            )
        if self.dtype not in (None, "float32", "float64"):
            raise InputError(f"dtype must be 'float32' or 'float64', not {self.dtype!r}")
        if self.keep not in ("draws", "moments") and rank_of(self.keep) is None:
            raise InputError(
                "keep must be 'draws', 'moments', 'low-rank' or 'low-rank:K' with a rank K; got"
                f" {self.keep!r}"
            )
        require_seed(self.seed)
        if not is_whole(self.first_chain) or self.first_chain < 0:
            raise InputError(
                f"first_chain must be a whole number, 0 or more; got {brief(self.first_chain)}"
            )
        require_folder(self.checkpoint)
        require_curvature(self.curvature)
        if self.extrapolate and self.checkpoint is not None:
            raise InputError(
                "extrapolate=True makes two runs, of which a checkpoint would hold the first: leave"
                " one of them out"
            )

    @property
    def working_dtype(self) -> str:
        return self.dtype or "float32"

    @property
    def chain_numbers(self) -> range:
        return range(self.first_chain, self.first_chain + int(self.chains))


def require_folder(checkpoint: object) -> None:
    """Refuse what is neither the path of a folder nor None."""
    if not isinstance(checkpoint, str | os.PathLike | None):
        raise InputError(f"checkpoint must be the path of a folder; got {brief(checkpoint)}")
