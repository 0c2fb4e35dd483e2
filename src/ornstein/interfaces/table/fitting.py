"""A table in, a Posterior out: what `ornstein fit`, `compare` and `demo` have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ornstein.errors import FileError
from ornstein.interfaces.table.encoding import Encoding
from ornstein.interfaces.table.folder import ParquetFolder

if TYPE_CHECKING:
    import pandas

    from ornstein.model.regression import GLM
    from ornstein.posterior.posterior import Posterior


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame, what its columns mean, and the regression they make."""

    frame: pandas.DataFrame | ParquetFolder
    encoding: Encoding
    prior_precision: float = 1.0

    @classmethod
    def of(
        cls,
        frame: pandas.DataFrame | ParquetFolder,
        target: str,
        family: str = "auto",
        categorical: Iterable[str] = (),
        drop: Iterable[str] = (),
        prior_precision: float = 1.0,
    ) -> Table:
        return cls(
            frame,
            Encoding.of(frame, target, family, tuple(categorical), tuple(drop)),
            prior_precision,
        )

    @cached_property
    def model(self) -> GLM:
        """On the standardised scale, with an intercept under a flat prior."""
        from ornstein.entrances import glm

        encoding = self.encoding
        settings: dict[str, Any] = {
            "family": encoding.family,
            "prior_precision": self.prior_precision,
        }
        if isinstance(self.frame, ParquetFolder):
            return glm(self.frame.encoded(encoding), encoding.target, **settings)
        return glm(encoding.features(self.frame), encoding.response(self.frame), **settings)

    def sample(self, sampler: Any, source: str, **options: Any) -> Posterior:
        """Draws on the standardised scale; the table's encoding and the prior travel in the
        settings.
        """
        from ornstein.entrances import sample

        return self.described(sample(self.model, sampler, **options), source)

    def resume(self, folder: Path, source: str, **options: Any) -> Posterior:
        """Go on with a run of this table whose checkpoints are in `folder`."""
        from ornstein.entrances import resume

        return self.described(resume(folder, self.model, **options), source)

    def described(self, posterior: Posterior, source: str) -> Posterior:
        """The posterior with where it came from and how to undo the encoding."""
        described = {
            "source": source,
            "rows": len(self.frame),
            "prior_precision": self.prior_precision,
            "table": self.encoding.to_json(),
        }
        return replace(posterior, settings={**posterior.settings, **described})


def encoding_of(posterior: Posterior, path: str = "this posterior") -> Encoding:
    """The encoding that travelled with a posterior."""
    if "table" not in posterior.settings:
        raise FileError(
            f"{path} was not made from a table by `ornstein fit`: it does not say what its columns"
            " were"
        )
    return Encoding.from_json(posterior.settings["table"])
