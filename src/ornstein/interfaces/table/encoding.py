"""From a table to a design matrix and back: indicators for labels, standardised columns,
coefficients on the original scale.

Every column of the design matrix, indicators included, is standardised to mean 0 and standard
deviation 1, and so is the target of a gaussian regression. The prior is on that scale, where one
precision means the same for every column; what is reported is on the scale of the table:

    slope_j = s_y β_j / s_j,     intercept = m_y + s_y α − Σ_j slope_j m_j,     σ = s_y exp(log σ)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import printable
from ornstein.errors import FileError, InputError
from ornstein.interfaces.table import reading
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas

    from ornstein.posterior.posterior import Posterior

MOST_CLASSES = 50


@dataclass(frozen=True)
class Column:
    """A column of the table and the columns of the design matrix it becomes; no levels means a
    number.
    """

    name: str
    levels: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The first level is the reference and has no column of its own."""
        return tuple(f"{self.name}={level}" for level in self.levels[1:]) or (self.name,)

    def raw(self, series: pandas.Series) -> Array:
        """Rows × design columns, not yet standardised."""
        return _raw(series, self.levels)

    def standardised(self, series: pandas.Series) -> Array:
        return (self.raw(series) - np.array(self.means)) / np.array(self.scales)


@dataclass(frozen=True)
class Encoding:
    """What a table's columns mean: enough to encode new rows and to bring coefficients back to the
    original scale.

    Attributes:
        target, family: what is explained, and how; `reason` says why that family, `notes` what else
            was decided.
        classes: labels of a bernoulli or categorical target; the first is the reference.
        columns: the features.
        target_mean, target_scale: of a gaussian target; 0 and 1 elsewhere.
    """

    target: str
    family: str
    reason: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    target_mean: float = 0.0
    target_scale: float = 1.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        frame: reading.Columns,
        target: str,
        family: str = "auto",
        categorical: Iterable[str] = (),
        drop: Iterable[str] = (),
    ) -> Encoding:
        """Look at a table: `categorical` columns of numbers are taken as labels, `drop` columns are
        left out.
        """
        reading.require_column(frame, target, "the target")
        for option, names in (("--drop", drop), ("--categorical", categorical)):
            for name in names:
                reading.require_column(frame, name, option)
        kept = [name for name in frame.columns if name not in set(drop) or name == target]
        if kept == [target]:
            raise InputError(f"the table has no columns besides the target {target!r}")
        reading.require_complete(frame, kept)
        family, reason = _family(frame[target], family)
        columns = {
            name: _column(frame[name], name in set(categorical)) for name in kept if name != target
        }
        constant = [name for name, column in columns.items() if column is None]
        varying = tuple(column for column in columns.values() if column is not None)
        if not varying:
            raise InputError(
                "every column besides the target is constant: there is nothing to explain it with"
            )
        notes = (f"left out, constant: {reading.shown(constant)}",) if constant else ()
        mean, scale = (
            (0.0, 1.0) if family != "gaussian" else _moments(frame[target].to_numpy(dtype=float))
        )
        classes = _classes(frame[target]) if family in ("bernoulli", "categorical") else ()
        return cls(target, family, reason, classes, varying, mean, scale, notes)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def means(self) -> Array:
        return np.concatenate([column.means for column in self.columns])

    @property
    def scales(self) -> Array:
        return np.concatenate([column.scales for column in self.columns])

    def features(self, frame: pandas.DataFrame) -> pandas.DataFrame:
        """The standardised design matrix of these rows."""
        import pandas

        for column in self.columns:
            if column.name not in frame.columns:
                raise InputError(
                    f"the table lacks the column {column.name!r} that the fit was made with"
                )
        reading.require_complete(frame, [column.name for column in self.columns])
        blocks = [column.standardised(frame[column.name]) for column in self.columns]
        return pandas.DataFrame(np.concatenate(blocks, axis=1), columns=list(self.feature_names))

    def response(self, frame: pandas.DataFrame) -> Array:
        """The target as `orn.glm` takes it: standardised numbers, counts, or labels."""
        series = frame[self.target]
        if self.classes:
            found = reading.labels(series)
            return found.astype(int) if _all_whole(self.classes) else found
        return (series.to_numpy(dtype=float) - self.target_mean) / self.target_scale

    def original(self, posterior: Posterior) -> Posterior:
        """The posterior's draws on the scale of the table: σ in place of log σ, classes relative to
        the first one.

        A softmax does not change when all logits move together, and only the prior says where they
        are: differences between classes are what the data tell.
        """
        from ornstein.model.parameters import Layout
        from ornstein.posterior.posterior import Posterior

        params = self._original_params(posterior.params)
        layout = Layout.of({name: values[0, 0] for name, values in params.items()})
        lead = posterior.draws.shape[:2]
        draws = np.concatenate([params[path].reshape(*lead, -1) for path in layout.paths], axis=2)
        others = (
            [f"[{label}]" for label in self.classes[1:]] if self.family == "categorical" else [""]
        )
        names = [
            f"{name}{other}" for name in (*self.feature_names, "intercept") for other in others
        ]
        names += ["sigma"] if "sigma" in params else []
        return Posterior(draws, tuple(names), layout, {**posterior.settings, "scale": "original"})

    def _original_params(self, params: dict[str, Array]) -> dict[str, Array]:
        coef, intercept = params["coef"], params["intercept"]
        if self.family == "categorical":
            if coef.shape[-1] == len(self.classes):
                coef = coef[..., 1:] - coef[..., :1]
            slopes = coef / self.scales[:, None]
            return {
                "coef": slopes,
                "intercept": intercept - np.einsum("j,...jk->...k", self.means, slopes),
            }
        slopes = coef * (self.target_scale / self.scales)
        original = {
            "coef": slopes,
            "intercept": self.target_mean + self.target_scale * intercept - slopes @ self.means,
        }
        if "log_scale" in params:
            original["sigma"] = self.target_scale * np.exp(params["log_scale"])
        return original

    @property
    def standardising(self) -> Array:
        """Factors that bring the slopes of `original` to the standardised scale, in their order
        there.
        """
        repeats = len(self.classes) - 1 if self.family == "categorical" else 1
        return np.repeat(self.scales / self.target_scale, repeats)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Encoding:
        try:
            values: dict[str, Any] = json.loads(text)
            columns = tuple(
                Column(
                    column["name"], *(tuple(column[part]) for part in ("levels", "means", "scales"))
                )
                for column in values.pop("columns")
            )
            classes, notes = tuple(values.pop("classes")), tuple(values.pop("notes"))
            return cls(columns=columns, classes=classes, notes=notes, **values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FileError(
                f"the description of the table's columns is damaged ({type(error).__name__})"
            ) from error


def _column(series: pandas.Series, as_labels: bool) -> Column | None:
    """The column with its means and scales; None where it never changes."""
    levels = reading.levels(series) if as_labels or reading.is_category(series) else ()
    raw = _raw(series, levels)
    moments = [_moments(values) for values in raw.T]
    if not moments or any(scale <= 0.0 for _, scale in moments):
        return None
    return Column(
        str(series.name),
        levels,
        tuple(mean for mean, _ in moments),
        tuple(scale for _, scale in moments),
    )


def _raw(series: pandas.Series, levels: tuple[str, ...]) -> Array:
    if not levels:
        if reading.is_category(series):
            raise InputError(
                f"column {series.name!r} must be numeric, as in the fit; it holds"
                f" {str(series.iloc[0])!r}"
            )
        return series.to_numpy(dtype=float)[:, None]
    found = reading.labels(series)
    unknown = sorted(set(found) - set(levels))
    if unknown:
        raise InputError(
            f"column {series.name!r} holds {reading.shown(unknown, most=3)}, which the fit has not"
            f" seen; its labels are {reading.shown(levels)}"
        )
    return (found[:, None] == np.array(levels[1:], dtype=object)[None, :]).astype(float)


def _moments(values: Array) -> tuple[float, float]:
    """Mean and standard deviation; 0 for the latter where the values differ by rounding only."""
    mean, scale = float(values.mean()), float(values.std())
    return mean, scale if scale > 1e-12 * max(abs(mean), 1e-300) else 0.0


def _family(series: pandas.Series, family: str) -> tuple[str, str]:
    """The family and why: only two values or labels change it from gaussian, for whole numbers may
    be anything.
    """
    from ornstein.model.families.table import TABLE

    name = str(series.name)
    if family != "auto":
        if family not in TABLE:
            raise InputError(f"unknown family {family!r}; choose auto or one of {', '.join(TABLE)}")
        if family in ("gaussian", "poisson") and reading.is_category(series):
            raise InputError(
                f"the target {name!r} holds labels ({series.iloc[0]!r}); the {family} family needs"
                " numbers"
            )
        reading.require_not_infinite(series)
        _require_variety(series)
        return family, "as asked for"
    is_label = reading.is_category(series)
    _require_variety(series)
    count = series.nunique()
    if count == 2:
        return "bernoulli", f"the target {name!r} has two different values"
    if is_label:
        return "categorical", f"the target {name!r} has {count} different labels"
    values = series.to_numpy(dtype=float)
    reason = f"the target {name!r} is numeric"
    if np.all(values == np.floor(values)) and values.min() >= 0 and count <= MOST_CLASSES:
        reason += (
            "; its whole numbers may be counts or labels: then ask for --family poisson or"
            " categorical"
        )
    return "gaussian", reason


def _require_variety(series: pandas.Series) -> None:
    if series.nunique() < 2:
        raise InputError(
            f"the target {series.name!r} has only one value, {printable(series.iloc[0])};"
            " there is nothing to explain"
        )


def _classes(series: pandas.Series) -> tuple[str, ...]:
    """In the order of `numpy.unique`, which `orn.glm` uses."""
    found = sorted(set(reading.labels(series)))
    if len(found) > MOST_CLASSES:
        raise InputError(
            f"the target {series.name!r} has {len(found):,} different labels, more than"
            f" {MOST_CLASSES}; is it the right column?"
        )
    return tuple(sorted(found, key=int) if _all_whole(found) else found)


def _all_whole(found: Iterable[str]) -> bool:
    return all(label.lstrip("-").isdecimal() for label in found)
