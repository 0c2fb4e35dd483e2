"""Fits that version 0.1 made from a table: standardised draws with a description of its own.

slope_j = s_y β_j / s_j,     intercept = m_y + s_y α − Σ_j slope_j m_j,     σ = s_y exp(log σ)
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.errors import FileError, InputError
from ornstein.model.parameters import Layout
from ornstein.posterior.posterior import Posterior
from ornstein.regression.design import Design, design_from_json
from ornstein.regression.formula import quoted
from ornstein.regression.regress import TablePredict
from ornstein.regression.spec import Spec
from ornstein.types import Array

if TYPE_CHECKING:
    from ornstein.model.families.likelihood import Likelihood


def is_earlier(posterior: Posterior) -> bool:
    """Whether a posterior carries the description of version 0.1."""
    return "table" in posterior.settings


def modernised(posterior: Posterior) -> Posterior:
    """The same fit in the units of its table, with a design of today."""
    try:
        found = json.loads(posterior.settings["table"])
        design = _design(found["columns"])
        means = np.concatenate([column["means"] for column in found["columns"]])
        scales = np.concatenate([column["scales"] for column in found["columns"]])
        centre, unit = float(found["target_mean"]), float(found["target_scale"])
        spec = Spec(
            " + ".join(factor.text for factor in design.factors),
            str(found["target"]),
            str(found["family"]),
            str(found["reason"]),
            tuple(map(str, found["classes"])),
            design,
            means=tuple(means.tolist()),
            scales=tuple(scales.tolist()),
            target_scale=unit,
            notes=tuple(map(str, found["notes"])),
        )
        likelihood: Likelihood = posterior.predict_function.likelihood  # type: ignore[union-attr]
        params = _in_units(posterior.params, means, scales, centre, unit)
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise FileError(
            f"the description of the table's columns is damaged ({type(error).__name__})"
        ) from error
    if params["coef"].ndim == 4:
        likelihood = replace(likelihood, coef_reference=True, intercept_reference=True)
    layout = Layout.of({name: values[0, 0] for name, values in params.items()})
    lead = posterior.draws.shape[:2]
    draws = np.concatenate([params[path].reshape(*lead, -1) for path in layout.paths], axis=2)
    settings = {name: value for name, value in posterior.settings.items() if name != "table"}
    predict = TablePredict.of(likelihood, spec)
    return Posterior(draws, layout.names(), layout, settings, predict_function=predict)


def _design(columns: list[dict[str, Any]]) -> Design:
    factors, blocks = [], []
    for place, column in enumerate(columns):
        labels = bool(column["levels"])
        text = f"C({quoted(column['name'])})" if labels else quoted(column["name"])
        levels = column["levels"] if labels else None
        learned = {text: {"levels": levels}} if labels else {}
        fields = [] if labels else [""]
        factors.append({"text": text, "levels": levels, "fields": fields, "learned": learned})
        blocks.append({"factors": [place], "reduced": [labels], "scale": 1.0})
    return design_from_json({"factors": factors, "blocks": blocks, "intercept": True})


def _in_units(
    params: dict[str, Array], means: Array, scales: Array, centre: float, unit: float
) -> dict[str, Array]:
    """Coefficients on the scale of the table; classes relative to the first one."""
    coef, intercept = params["coef"], params["intercept"]
    if coef.ndim == 4:
        if coef.shape[-1] > intercept.shape[-1]:
            coef = coef[..., 1:] - coef[..., :1]
        slopes = coef / scales[:, None]
        return {
            "coef": slopes,
            "intercept": intercept - np.einsum("j,...jk->...k", means, slopes),
        }
    slopes = coef * (unit / scales)
    original = {"coef": slopes, "intercept": centre + unit * intercept - slopes @ means}
    if "log_scale" in params:
        original["log_scale"] = params["log_scale"] + np.log(unit)
    return original
