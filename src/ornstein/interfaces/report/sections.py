"""Which figures a posterior gets, in the order of the report: covariance, chains, calibration."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.errors import InputError, PredictionWarning
from ornstein.interfaces.report import figures
from ornstein.interfaces.report.calibration import calibrate
from ornstein.interfaces.report.theme import Draw, as_png, as_svg
from ornstein.model.families.likelihood import Predict
from ornstein.posterior.statistics import split_r_hat
from ornstein.regression.mixed import table_of

if TYPE_CHECKING:
    from ornstein.model.model import Model
    from ornstein.posterior.averaged_rows import Rows
    from ornstein.posterior.curve import Curve
    from ornstein.posterior.posterior import Posterior

MOST_CELLS, MOST_TRACES, EXACT_ERRORS = 14, 3, 200
# Of effects: figures, columns that are tried for them, columns of a matrix, rows and draws.
MOST_EFFECTS, TRIED, MOST_COLUMNS, EFFECT_ROWS, EFFECT_DRAWS = 6, 12, 500, 1000, 100


@dataclass(frozen=True)
class Panel:
    """A figure with its name (letters and dashes), a description for those who cannot see it, and a
    caption.
    """

    name: str
    draw: Draw
    description: str
    caption: str = ""
    size: tuple[float, float] = (4.2, 3.0)

    def svg(self) -> str:
        return as_svg(self.draw, self.name, self.description, self.size)


@dataclass(frozen=True)
class Section:
    """Rows of panels, and the numbers that the text around them quotes."""

    rows: tuple[tuple[Panel, ...], ...]
    facts: dict[str, object]

    def png(self, path: Path) -> Path:
        """All panels of the section in one file."""
        largest = max((panel.size for row in self.rows for panel in row), key=lambda size: size[1])
        return as_png([[panel.draw for panel in row] for row in self.rows], path, largest)


def sections(posterior: Posterior, model: Model | None) -> dict[str, Section]:
    """Those sections that this posterior has what it takes for."""
    found: dict[str, Section] = {}
    if not posterior.draws.shape[1]:
        return found
    law = figures.Predicted.of(posterior)
    if law is not None:
        if posterior.mean.size > 1:
            found["covariance"] = _covariance(law)
        found["chains"] = _chains(law)
    parts = {"calibration": _calibration(posterior, model), "effects": _effects(posterior, model)}
    return found | {name: part for name, part in parts.items() if part is not None}


def _covariance(law: figures.Predicted) -> Section:
    """Ellipses of the pairs that tell most, and heat maps of the parameters that differ most."""
    posterior, size = law.posterior, law.mode.size
    scores = figures.covariance_scores(law) if size <= EXACT_ERRORS else None
    rank = (
        np.abs(scores).max(axis=0) if scores is not None else np.abs(posterior.mean) / posterior.sd
    )
    among = np.sort(np.argsort(-rank)[:MOST_CELLS])
    names = [posterior.names[place] for place in among]
    predicted = figures.block(law.covariance, among)
    unit = np.sqrt(np.diagonal(predicted))
    scale = np.multiply.outer(unit, unit)
    square = (4.2, 3.9)
    caption = "Covariance that theory predicts, in predicted standard deviations"
    maps = [
        Panel(
            "covariance-predicted",
            figures.heat_map(predicted / scale, names, 1.0, 2, "Predicted"),
            caption,
            caption,
            square,
        )
    ]
    caption = (
        "Covariance of the draws, in the same units: ones on the diagonal if variances are as"
        " predicted"
    )
    draw = figures.heat_map(
        figures.block(posterior.covariance, among) / scale, names, 1.0, 2, "Found in the draws"
    )
    maps.append(Panel("covariance-found", draw, caption, caption, square))
    if scores is not None:
        chosen = scores[np.ix_(among, among)]
        limit = max(4.0, float(np.abs(chosen).max()))
        caption = (
            f"Their difference in Monte-Carlo standard errors; full colour is ±{limit:.1f}, chance"
            " reaches about 3"
        )
        maps.append(
            Panel(
                "covariance-difference",
                figures.heat_map(chosen, names, limit, 1, "Difference"),
                caption,
                caption,
                square,
            )
        )
    pairs = [
        Panel(
            f"ellipses-{place}",
            figures.ellipses(law, first, second),
            f"predicted and found ellipses of {posterior.names[first]} and"
            f" {posterior.names[second]}",
        )
        for place, (first, second) in enumerate(figures.telling_pairs(law, among), start=1)
    ]
    return Section((tuple(pairs), tuple(maps)), {"shown": len(among), "size": size})


def _chains(law: figures.Predicted) -> Section:
    """Trace and autocorrelation of the slowest direction and of the parameters with the largest
    R-hat.
    """
    posterior, modes = law.posterior, law.process.modes
    covectors = [("slowest direction", modes.slowest)]
    r_hat = [
        split_r_hat(posterior.draws[:, :, place])
        for place in range(min(posterior.mean.size, EXACT_ERRORS))
    ]
    for place in np.argsort(-np.array(r_hat), kind="stable")[: MOST_TRACES - 1]:
        covectors.append((posterior.names[place], np.eye(1, posterior.mean.size, place)[0]))
    traces, correlations = [], []
    displacements = posterior.draws - law.mode
    for place, (name, covector) in enumerate(covectors, start=1):
        series = displacements @ covector
        unit = float(np.std(series)) or 1.0
        traces.append(
            Panel(f"trace-{place}", figures.trace(series / unit, name), f"trace of {name}")
        )
        draw = figures.autocorrelation(law, covector, series, name)
        correlations.append(Panel(f"autocorrelation-{place}", draw, f"autocorrelation of {name}"))
    return Section((tuple(traces), tuple(correlations)), {"relaxation": modes.relaxation_time})


def _calibration(posterior: Posterior, model: Model | None) -> Section | None:
    """For regressions whose rows are at hand."""
    from ornstein.model.regression import GLM

    if not isinstance(model, GLM):
        return None
    found = calibrate(posterior, model)
    size = (4.2, 3.6)
    caption = (
        "On the dotted line, observed and promised shares agree. Band: 95 % interval of the"
        " observed"
        " share."
    )
    panels = [
        Panel(
            "calibration",
            figures.reliability(found.reliability),
            "promised and observed share",
            caption,
            size,
        )
    ]
    if found.transforms is not None:
        draw = figures.histogram(
            found.transforms, 20, "place of the row in its predictive distribution"
        )
        caption = (
            "Flat is right; a hump means too wide, a bowl too narrow, a slope biased. Grey: where"
            " 95 % of bars would lie."
        )
        panels.append(
            Panel("transforms", draw, "histogram of probability integral transforms", caption, size)
        )
    facts = {"sentence": found.sentence, "rows": found.rows, "all": found.rows == model.n_data}
    return Section((tuple(panels),), facts)


def _effects(posterior: Posterior, model: Model | None) -> Section | None:
    """The average expectation along the columns that move it most."""
    from ornstein.model.regression import GLM
    from ornstein.posterior.averaged_rows import Rows

    predict = posterior.predict_function
    if not isinstance(model, GLM) or not isinstance(predict, Predict):
        return None
    spec = table_of(predict)
    columns = model.feature_names if spec is None else spec.column_names
    if len(columns) > MOST_COLUMNS:
        return None
    rows = Rows.of(None, model, predict, "effects")
    curves = [_curve(posterior, rows, name) for name in columns[:TRIED]]
    known = [curve for curve in curves if curve is not None]
    known.sort(key=lambda curve: -float(np.max(np.ptp(curve.draws.mean(axis=0), axis=0))))
    panels = tuple(
        Panel(
            f"effect-{place}",
            figures.effect(curve),
            f"average expectation along {printable(curve.column)}",
        )
        for place, curve in enumerate(known[:MOST_EFFECTS], start=1)
    )
    facts: dict[str, object] = {"shown": len(panels), "all": len(columns)}
    return Section((panels,), facts) if panels else None


def _curve(posterior: Posterior, rows: Rows, name: str) -> Curve | None:
    from ornstein.posterior.effects import curve_along
    from ornstein.posterior.questions import at_draws_of

    predicted = at_draws_of(posterior, EFFECT_DRAWS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PredictionWarning)
            return curve_along(predicted, rows, name, EFFECT_ROWS)
    except InputError:  # a column that cannot be set alone
        return None
