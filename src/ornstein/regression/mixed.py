"""A formula with group terms and a table as a mixed model that knows its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.checks import require_memory
from ornstein.errors import FileError, InputError
from ornstein.model import tables
from ornstein.model.mixed.checked import checked_weights, joined, response
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import FAMILIES
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.predict import MixedPredict, NewGroupRows, later_link
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.mixed.table import Rows
from ornstein.model.priors import Flat, Normal
from ornstein.regression.columns import require_column, shown
from ornstein.regression.design import Design
from ornstein.regression.formula import Formula
from ornstein.regression.groups import (
    GroupFactor,
    effect_features,
    group_columns,
    group_factors,
    shown_terms,
)
from ornstein.regression.regress import (
    EMPTY,
    Regression,
    Request,
    TablePredict,
    by_column,
    formula_of,
    regression,
    require_known,
    standardised,
    weights_of,
    with_indicators,
)
from ornstein.regression.spec import Spec, moments, offset_of
from ornstein.regression.table import as_frame, complete, filled
from ornstein.regression.target import Target, target_of
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class MixedTablePredict(MixedPredict):
    """The same for the rows of a table, by the names of its columns."""

    spec: Spec = EMPTY
    groups: tuple[GroupFactor, ...] = ()

    def new_rows(self, inputs: Any) -> NewGroupRows:
        """Rows of a table. Those with something missing or unknown are marked."""
        if isinstance(inputs, NewGroupRows):
            return inputs
        frame = as_frame(inputs)
        new = self.spec.new_rows(frame)
        assert new.complete is not None
        for name in (name for factor in self.groups for name in factor.effect_columns):
            require_column(frame.columns, name, "the fit's")
        x = new.matrix if isinstance(new.matrix, np.ndarray) else new.matrix.toarray()
        known = filled(frame, self.spec.fills)
        z = np.concatenate([factor.matrix(known, len(known)) for factor in self.groups], axis=1)
        whole = new.complete & ~np.isnan(z.sum(axis=1))
        said = new.said
        if not said and not whole.all():
            said = (
                f"{int((~whole).sum()):,} of {len(whole):,} rows come back empty (NaN): the columns"
                " of their groups' effects are missing or unknown"
            )
        labels = tuple(self._labels(factor, frame) for factor in self.groups)
        return NewGroupRows(x, z, labels, new.offset, whole, said)

    @staticmethod
    def _labels(factor: GroupFactor, frame: pandas.DataFrame) -> Array | None:
        """None where the table lacks the columns, or a label."""
        if any(name not in frame.columns for name in factor.columns):
            return None
        found = factor.labels(frame)
        if np.any(found.codes < 0):
            return None
        return np.array(found.levels, dtype=object)[found.codes]

    def table_json(self) -> str:
        """What it knows of the table, as a text."""
        described = [factor.as_json() for factor in self.groups]
        return json.dumps({"groups": described}, ensure_ascii=False)

    @classmethod
    def of_table(cls, plain: MixedPredict, spec: Spec, text: str) -> MixedTablePredict:
        """What a file holds of it, refused where the parts do not fit each other."""
        groups = tuple(GroupFactor.from_json(part) for part in json.loads(text)["groups"])
        found = with_table(plain, spec, groups)
        counts = tuple((factor.name, len(factor.effects)) for factor in groups)
        own = len(plain.columns) - plain.intercept
        if counts != plain.factors or len(spec.feature_names) != own:
            raise FileError("the description of the groups does not fit the parameters")
        return found


def with_table(
    plain: MixedPredict, spec: Spec, groups: tuple[GroupFactor, ...]
) -> MixedTablePredict:
    """The prediction of new rows by the names of their columns."""
    known = {field.name: getattr(plain, field.name) for field in fields(MixedPredict)}
    return MixedTablePredict(**known, spec=spec, groups=groups)


def from_formula(request: Request, data: Any) -> Regression | MixedModel:
    """The Model of a formula on the rows of a table; one with group terms is a mixed model, which
    `curvature.nodes.settled` makes ready.
    """
    frame = as_frame(data, request.decimal)
    if not isinstance(request.weights, str):
        tables.require_one_index((("data", frame), ("weights", request.weights)))
    formula, notes = formula_of(request, frame)
    return _mixed(request, frame, formula, notes) if formula.groups else regression(request, frame)


def spec_of(model: Regression | MixedModel) -> Spec:
    """What a model that a formula made knows of its table."""
    spec = table_of(model.predict)
    assert spec is not None
    return spec


def table_of(predict: object) -> Spec | None:
    """What a prediction knows of its table; None where there was none."""
    return predict.spec if isinstance(predict, TablePredict | MixedTablePredict) else None


def _mixed(
    request: Request, frame: pandas.DataFrame, formula: Formula, left_out: tuple[str, ...]
) -> MixedModel:
    assert formula.response is not None
    terms, response_part = formula.groups, formula.response
    if request.parts:
        raise InputError(f"a mixed model takes no terms for its {request.parts[0][0]!r}")
    weighted = (request.weights,) if isinstance(request.weights, str) else ()
    offset_names = [name for part in formula.offsets for name in part.column_names]
    others = [*response_part.column_names, *offset_names, *group_columns(terms), *weighted]
    # of columns that the coefficients have not, none says where they are missing
    others += [name for name in effect_features(terms) if name not in formula.column_names]
    features = [name for name in formula.column_names if name not in others]
    require_known(frame, [*features, *others], formula, weighted)
    rows = complete(frame, features, others, request.missing, formula.label_names)
    formula = replace(with_indicators(formula, rows.fills), response=response_part, groups=terms)
    target = target_of(response_part, rows.frame, request.family, request.link)
    _require_family(target)
    factors = group_factors(terms, rows.frame)
    design = Design.learned(formula, rows.frame)
    matrix = _dense(design, rows.frame)
    labels = [factor.labels(rows.frame) for factor in factors]
    sizes = " and ".join(
        f"{len(found.levels):,} groups of {factor.name}"
        for factor, found in zip(factors, labels, strict=True)
    )
    spec = Spec(
        f"{formula.text} + {shown_terms(terms)}",
        response_part.text.strip("`"),
        target.law.name,
        target.reason,
        target.classes,
        design,
        tuple(part.text for part in formula.offsets),
        rows.fills,
        notes=(
            *frame.attrs.get("notes", ()),
            *left_out,
            *((rows.note,) if rows.note else ()),
            sizes,
        ),
    )
    scale = float(np.std(target.values)) if target.law.follows_response else 1.0
    spec = spec.with_numbers(*moments(matrix), scale)
    intercept = design.intercept and target.law.intercepts
    x, columns = matrix, spec.feature_names
    if intercept:
        x, columns = np.column_stack([x, np.ones(len(x))]), (*columns, "intercept")
    z = np.concatenate([factor.matrix(rows.frame, len(x)) for factor in factors], axis=1)
    name = target.law.name
    table = Rows(
        x,
        None if _is_intercept_alone(factors) else z,
        _response(target),
        labels[0].codes if len(labels) == 1 else np.column_stack([part.codes for part in labels]),
        offset_of(spec.offsets, rows.frame),
        weight=checked_weights(weights_of(request.weights, rows.frame, rows.kept), len(x)),
    )
    effects = tuple(f"{effect}|{f.name}" for f in factors for effect in f.effects)
    covariance = Covariance(effects, tuple(block for f in factors for block in f.blocks))
    levels = tuple(np.array(found.levels, dtype=object) for found in labels)
    counted = tuple((f.name, len(f.effects)) for f in factors)
    link = later_link(name, target.law.link)
    predict = MixedPredict(name, covariance, columns, intercept, counted, link)
    model = joined(table, predict, levels, _priors(request, spec, columns))
    return model.replace(predict=with_table(predict, spec, factors), frame=rows.given)


def _is_intercept_alone(factors: tuple[GroupFactor, ...]) -> bool:
    return len(factors) == 1 and factors[0].effects == ("intercept",)


def _dense(design: Design, frame: pandas.DataFrame) -> Array:
    """The columns of the fixed effects, which may be none."""
    require_memory("the table of columns", len(frame), len(design.names))
    matrix = design.build(frame, len(frame))
    found = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    bad = ~np.isfinite(found)
    if bad.any():
        column = int(np.argmax(bad.any(axis=0)))
        raise InputError(
            f"{design.names[column]!r} is not finite in {int(bad[:, column].sum()):,} rows, first"
            f" in row {int(np.argmax(bad[:, column])) + 1}"
        )
    constant = [
        name for name, size in zip(design.names, np.ptp(found, axis=0), strict=True) if not size
    ]
    if constant and design.intercept:
        raise InputError(
            f"{constant[0]!r} is the same in every row, as the intercept is: leave it out"
        )
    return found


def _require_family(target: Target) -> None:
    law = target.law
    if law.name not in FAMILIES:
        raise InputError(
            f"mixed models support the families {', '.join(FAMILIES)}; got {law.name}:"
            f" {target.reason}"
        )
    if law.settings:
        raise InputError(f"the {law.name} family of a mixed model has no fixed numbers")


def _response(target: Target) -> Array:
    """Numbers that the family can have; labels are codes already."""
    if target.classes:
        return np.asarray(target.values, dtype=float)
    return response(target.values, target.law.name, len(target.values))


def _priors(request: Request, spec: Spec, columns: tuple[str, ...]) -> MixedPriors | str | None:
    """The priors of the coefficients, by column where a dict gives some of them."""
    given: Any = request.priors
    if given is None or isinstance(given, str | MixedPriors):
        if given is None and request.prior_precision is not None:
            return _by_precision(request.prior_precision, spec, columns)
        return given
    if not isinstance(given, Mapping):
        raise InputError(
            "priors of a mixed model are None, 'flat', orn.MixedPriors(…) or a dict by column"
        )
    chosen = by_column(given, spec) or {}
    unknown = [name for name in chosen if name not in columns]
    if unknown:
        raise InputError(
            f"priors name {unknown[0]!r}, which is not a coefficient; the coefficients are"
            f" {shown(columns)}. For the groups' effects use orn.MixedPriors(effect_scale=…)"
        )
    return MixedPriors(coef_sd={name: _sd(name, prior) for name, prior in chosen.items()})


def _sd(name: str, prior: object) -> float:
    if isinstance(prior, Flat):
        return np.inf
    if isinstance(prior, Normal) and prior.mean == 0:
        return float(prior.sd)
    raise InputError(
        f"the prior of {name!r} in a mixed model is Normal(0, sd) or Flat(); got {prior!r}"
    )


def _by_precision(precision: float, spec: Spec, columns: tuple[str, ...]) -> MixedPriors:
    values = standardised(precision, spec)
    assert values is not None
    flat = np.full(len(columns) - len(values), 0.0)
    with np.errstate(divide="ignore"):
        return MixedPriors(coef_sd=1.0 / np.sqrt(np.concatenate([values, flat])))
