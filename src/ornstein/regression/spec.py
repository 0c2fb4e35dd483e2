"""What a regression knows of its table: enough to build the same columns from new rows, and to name
what comes out. It is saved as JSON with the fit; nothing in it is ever executed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from ornstein.errors import FileError, InputError
from ornstein.model.tables import NewRows
from ornstein.regression.columns import Columns, Labels
from ornstein.regression.design import Design, design_as_json, design_from_json
from ornstein.regression.expression import Evaluation, Expression
from ornstein.regression.table import as_frame, filled, indicator
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

FORMAT = "ornstein-table-2"


@dataclass(frozen=True, eq=False)
class Spec:
    """A table's columns as a regression sees them.

    Attributes:
        formula: as it was understood, `.` written out. target: its left side.
        family, reason: what was chosen, and why.
        classes: labels of the target; the first is the reference.
        design: the columns of the matrix, with all that they learned.
        parts: designs of auxiliary parameters with columns of their own, by the user's word
            ("zero", "scale"); in the matrix they follow those of `design`.
        offsets: expressions added to the linear predictor.
        fills: what stands for a missing value, by column (`missing="indicator"`).
        means, scales: of the columns of the matrix; target_scale: of the target, 1 for classes and
            counts.
        notes: what else was decided, in sentences. priors: in words, by column and parameter.
    """

    formula: str
    target: str
    family: str
    reason: str
    classes: tuple[str, ...]
    design: Design
    offsets: tuple[str, ...] = ()
    fills: dict[str, float | str] = field(default_factory=dict)
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    target_scale: float = 1.0
    notes: tuple[str, ...] = ()
    priors: dict[str, str] = field(default_factory=dict)
    parts: tuple[tuple[str, Design], ...] = ()

    @property
    def designs(self) -> tuple[Design, ...]:
        return self.design, *(design for _, design in self.parts)

    @property
    def feature_names(self) -> tuple[str, ...]:
        own = (f"{word}:{name}" for word, design in self.parts for name in design.names)
        return *self.design.names, *own

    @property
    def part_widths(self) -> dict[str, int]:
        """How many of the last columns of the matrix belong to each auxiliary parameter."""
        return {word: len(design.names) for word, design in self.parts}

    def matrix(self, table: Columns, rows: int) -> Any:
        """The columns of all designs, side by side."""
        built = [design.build(table, rows) for design in self.designs]
        if len(built) == 1:
            return built[0]
        if all(isinstance(block, np.ndarray) for block in built):
            return np.hstack(built)
        return scipy.sparse.hstack(built, format="csr")

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns of a table that a prediction needs."""
        offsets = (name for text in self.offsets for name in Expression.of(text).column_names)
        made = {indicator(name) for name in self.fills}
        designed = (name for design in self.designs for name in design.column_names)
        read = dict.fromkeys([*designed, *offsets])
        return tuple(name for name in read if name not in made)

    def understood(self, rows: int) -> tuple[str, ...]:
        """What was made of a table of that many rows, in sentences."""
        columns = f"{len(self.column_names)} columns as {len(self.feature_names)} features"
        return f"{rows:,} rows, {columns}", f"family {self.family}: {self.reason}", *self.notes

    @property
    def units(self) -> Array:
        """Factors that bring slopes to the scale of standardised columns and target; the columns of
        other parameters know no target.
        """
        target = np.ones(len(self.scales))
        target[: len(self.design.names)] = self.target_scale
        return np.asarray(self.scales) / target

    def new_rows(self, table: Any) -> NewRows:
        """The design matrix of new rows; those with something missing, unknown or beyond a spline's
        range are marked, with a sentence on why.
        """
        frame = as_frame(table)
        for name in self.column_names:
            if name not in frame.columns:
                raise InputError(f"the table lacks the column {name!r} that the fit was made with")
        frame = filled(frame, self.fills)
        matrix = self.matrix(frame, len(frame))
        offset = offset_of(self.offsets, frame)
        broken = (
            np.isnan(matrix.sum(axis=1))
            if isinstance(matrix, np.ndarray)
            else np.isnan(np.asarray(matrix.sum(axis=1)).ravel())
        )
        if offset is not None:
            broken |= np.isnan(offset)
        said = self._said(frame, broken) if broken.any() else ""
        return NewRows(matrix, offset, ~broken, said)

    def _said(self, frame: pandas.DataFrame, broken: Array) -> str:
        reasons = []
        for name in self.column_names:
            count = int(frame[name].isna().sum())
            if count:
                reasons.append(f"{count:,} with no value in {name!r}")
        for factor in (factor for design in self.designs for factor in design.factors):
            found = factor.evaluate(frame)
            names = factor.expression.column_names
            if isinstance(found, Labels):
                count = int(np.sum(found.codes == -2))
                if count:
                    reasons.append(f"{count:,} with a label of {names[0]!r} that the fit never saw")
                continue
            given = ~frame[list(names)].isna().any(axis=1).to_numpy()
            count = int(np.sum(np.isnan(found).any(axis=1) & given))
            if count:
                reasons.append(f"{count:,} outside the range of {factor.text!r}")
        return (
            f"{int(broken.sum()):,} of {len(broken):,} rows come back empty (NaN):"
            f" {', '.join(reasons) or 'an offset is missing'}"
        )

    def to_json(self) -> str:
        """The text that `from_json` reads."""
        plain = {
            name: getattr(self, name)
            for name in (
                *("formula", "target", "family", "reason", "classes", "offsets", "fills"),
                *("means", "scales", "target_scale", "notes", "priors"),
            )
        }
        described = {"format": FORMAT, **plain, "design": design_as_json(self.design)}
        if self.parts:
            described["parts"] = {word: design_as_json(design) for word, design in self.parts}
        return json.dumps(described, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read what `to_json` wrote; a damaged text is refused."""
        try:
            found = json.loads(text)
            if found.pop("format") != FORMAT:
                raise FileError("the description of the table is of another format")
            design = design_from_json(found.pop("design"))
            parts = tuple(
                (str(word), design_from_json(own)) for word, own in found.pop("parts", {}).items()
            )
            texts: dict[str, Any] = {
                name: str(found[name]) for name in ("formula", "target", "family", "reason")
            }
            lists: dict[str, Any] = {
                name: tuple(str(value) for value in found[name])
                for name in ("classes", "offsets", "notes")
            }
            numbers: dict[str, Any] = {
                name: tuple(float(value) for value in found[name]) for name in ("means", "scales")
            }
            fills = {
                str(name): value if isinstance(value, str) else float(value)
                for name, value in found["fills"].items()
            }
            priors = {str(name): str(prior) for name, prior in found["priors"].items()}
            for offset in lists["offsets"]:
                Expression.of(offset)
            scale = float(found["target_scale"])
            return cls(
                **texts,
                **lists,
                **numbers,
                design=design,
                fills=fills,
                target_scale=scale,
                priors=priors,
                parts=parts,
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, InputError) as error:
            raise FileError(
                f"the description of the table's columns is damaged ({type(error).__name__})"
            ) from error

    def with_numbers(self, means: list[float], scales: list[float], target_scale: float) -> Spec:
        """The same with the means and standard deviations of the columns and of the target."""
        return replace(self, means=tuple(means), scales=tuple(scales), target_scale=target_scale)


def moments(matrix: Any) -> tuple[list[float], list[float]]:
    """Means and standard deviations of columns; 0 for the latter where a column is constant."""
    if isinstance(matrix, np.ndarray):
        means, scales = matrix.mean(axis=0), matrix.std(axis=0)
    else:
        means = np.asarray(matrix.mean(axis=0)).ravel()
        squares = np.asarray(matrix.power(2).mean(axis=0)).ravel()
        scales = np.sqrt(np.maximum(0.0, squares - means**2))
    constant = scales <= 1e-12 * np.maximum(np.abs(means), 1e-300)
    return means.tolist(), np.where(constant, 0.0, scales).tolist()


def offset_of(texts: tuple[str, ...], table: Columns) -> Array | None:
    """The sum of the offsets, one number per row; None where there are none."""
    parts = [Evaluation(Expression.of(text), table, {}, fitting=False).value() for text in texts]
    return np.sum(parts, axis=0) if parts else None
