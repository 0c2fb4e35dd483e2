"""The report: one HTML file that needs nothing else; two verdicts and coefficients first."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import printable
from ornstein.interfaces.report.sections import sections
from ornstein.interfaces.report.terms import terms_of
from ornstein.interfaces.table.earlier import is_earlier
from ornstein.interfaces.table.fitting import from_table, shown
from ornstein.interfaces.table.wording import number
from ornstein.model.regression import GLM
from ornstein.posterior.files import replacing
from ornstein.posterior.own_model import model_of
from ornstein.posterior.prior_words import outweighed, priors_of, shares_of_priors
from ornstein.regression.mixed import MixedTablePredict
from ornstein.regression.regress import TablePredict

if TYPE_CHECKING:
    import pandas

    from ornstein.critique.critique import Critique
    from ornstein.model.model import Model
    from ornstein.posterior.posterior import Posterior
    from ornstein.regression.spec import Spec
    from ornstein.verdict.verdict import Verdict

MOST_ROWS = 60
HALF_TRACK = 47.0  # per cent of a bar's track, from zero in the middle to the end of a term's scale
SMALL = 6  # decimals beyond which small numbers are written with a power of ten
MEANING = {
    "trusted": ("No problems found. You can use these draws as the posterior."),
    "caution": (
        "Use these draws with care: at least one finding is outside its bound. Read"
        " it and its remedy."
    ),
    "not trusted": (
        "Do not use these draws as the posterior: at least one finding is far outside its bound."
    ),
}
FITS = {
    "fits": "The data look as the model says they would.",
    "doubtful": "The model misses something: read the findings with a remedy.",
    "does not fit": "The model does not describe these data: read the findings with a remedy.",
    "skipped": "The rows could not be checked.",
}
ORDER = ("not trusted", "caution", "trusted", "note", "skipped")
VERSIONS = ("ornstein", "jax", "numpy", "scipy", "python")
NOT_SHOWN = ("table", "source", "rows", *VERSIONS)


def write_report(
    posterior: Posterior,
    path: str | Path,
    *,
    model: Model | None = None,
    verdict: Verdict | None = None,
    critique: Critique | None = None,
    title: str | None = None,
    summary: pandas.DataFrame | None = None,
) -> Path:
    """Write the report of a fit; `model` where the posterior was loaded and has none, for what
    needs the data; `verdict`, `critique` and `summary` where they are known.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ornstein.interfaces.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    environment.filters["number"] = number
    page = environment.get_template("report.html.j2").render(
        **_context(posterior, model, verdict, critique, title, summary)
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def _shown(value: object) -> object:
    """What the page shows of a value, before it is escaped for HTML: all text is taken for foreign
    but what a filter has marked as safe.
    """
    plain = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, most=None) if plain else value


def _context(
    posterior: Posterior,
    model: Model | None,
    verdict: Verdict | None,
    critique: Critique | None,
    title: str | None,
    summary: pandas.DataFrame | None,
) -> dict[str, object]:
    model = model_of(posterior, model)
    verdict = posterior.check(model) if verdict is None else verdict
    critique = posterior.critique(model) if critique is None else critique
    judged = any(finding.level in MEANING for finding in verdict.findings)
    spec = None
    mixed = isinstance(posterior.predict_function, MixedTablePredict)
    if mixed or is_earlier(posterior) or isinstance(posterior.predict_function, TablePredict):
        posterior_of_table, spec = from_table(posterior)
        summary = shown(posterior_of_table).summary() if summary is None else summary
    elif summary is None:
        summary = posterior.summary()
    known = _priors(model, spec)
    priors = dict(zip(map(str, summary.index), priors_of(summary.index, known), strict=True))
    shares = shares_of_priors(model, posterior.mean, posterior.covariance)
    return {
        "title": title or _title(spec),
        "verdict": verdict,
        "judged": judged,
        "critique": critique,
        "critique_meaning": FITS[critique.level],
        "findings": sorted(verdict.findings, key=lambda finding: ORDER.index(finding.level)),
        "meaning": MEANING[verdict.level],
        "facts": _facts(posterior),
        "spec": spec,
        "coefficients": _coefficients(summary, None if mixed else spec, priors),
        "outweighed": outweighed(posterior.names, shares),
        "hidden": max(0, len(summary) - MOST_ROWS),
        "sections": sections(posterior, model),
        "settings": {
            name: value for name, value in posterior.settings.items() if _is_shown(name, value)
        },
        "history": posterior.history,
        "notes": posterior.dynamics.notes if posterior.dynamics is not None else (),
        "versions": {
            name: posterior.settings[name] for name in VERSIONS if name in posterior.settings
        },
        "style": (Path(__file__).parent / "style.css").read_text(encoding="utf-8"),
    }


def _is_shown(name: str, value: object) -> bool:
    plain = isinstance(value, str | int | float | bool | np.number)
    return name not in NOT_SHOWN and plain and value != ""


def _title(spec: Spec | None) -> str:
    if spec is None:
        return "Posterior"
    return f"{spec.target}, explained by {len(spec.column_names)} columns"


def _priors(model: Model | None, spec: Spec | None) -> Mapping[str, str]:
    """By column and parameter, in words; nothing where they are not known."""
    if isinstance(model, GLM):
        return model.priors
    return {} if spec is None else spec.priors


def _facts(posterior: Posterior) -> list[tuple[str, str]]:
    settings, curvature = posterior.settings, posterior.curvature
    chains, draws, size = posterior.draws.shape
    facts = [("parameters", f"{size:,}"), ("draws", f"{chains} × {draws:,}")]
    if curvature is not None:
        facts.insert(0, ("rows", f"{curvature.n_data:,}"))
    if posterior.dynamics is not None:
        facts += [
            ("sampler", posterior.dynamics.sampler),
            ("batch", f"{posterior.dynamics.batch_size:,}"),
        ]
    elif "sampler" in settings:
        facts.append(("method", str(settings["sampler"])))
    if "steps" in settings:
        facts.append(("steps", f"{settings['steps']:,}"))
    if "seconds" in settings:
        facts.append(("sampling", f"{settings['seconds']:.1f} s"))
    return facts


def _coefficients(
    summary: pandas.DataFrame, spec: Spec | None, priors: Mapping[str, str]
) -> dict[str, object]:
    """Rows of the table. Bars are in the units of the numbers: those of one term share a scale."""
    interval = list(summary.columns[2:4]) if "mcse" in summary else None
    low = summary[interval[0]] if interval else summary["mean"] - 2 * summary["sd"]
    high = summary[interval[1]] if interval else summary["mean"] + 2 * summary["sd"]
    strength = (summary["mean"].abs() / summary["sd"]).to_numpy()
    order = [int(position) for position in np.sort(np.argsort(-strength)[:MOST_ROWS])]
    terms = terms_of(summary.index, spec)
    reach: dict[object, float] = {}
    for position in order:
        end = max(abs(float(low.iloc[position])), abs(float(high.iloc[position])))
        reach[terms[position].key] = max(reach.get(terms[position].key, 0.0), end)

    def bar(position: int) -> dict[str, object]:
        scale = HALF_TRACK / (reach[terms[position].key] or 1.0)
        ends = float(low.iloc[position]), float(high.iloc[position])
        return {
            "low": 50.0 + scale * ends[0],
            "width": scale * (ends[1] - ends[0]),
            "mean": 50.0 + scale * float(summary["mean"].iloc[position]),
            "away": ends[0] > 0 or ends[1] < 0,
        }

    numbers = summary.drop(columns="prior", errors="ignore")
    rows = [
        {
            "name": summary.index[position],
            "reference": terms[position].reference,
            "prior": priors.get(str(summary.index[position]), ""),
            "values": _written(numbers.iloc[position].to_dict()),
            "bar": bar(position),
        }
        for position in order
    ]
    return {"rows": rows, "interval": interval}


def _written(values: dict[Hashable, float]) -> dict[Hashable, str]:
    """Mean and interval to a hundredth of the standard deviation or so; minus signs as wide as plus
    signs.

    >>> _written({"mean": -1.2345, "sd": 0.04}), _written({"mean": 1.0531e-05, "sd": 6.57e-07})
    ({'mean': '−1.2345', 'sd': '0.0400'}, {'mean': '1.053e−05', 'sd': '6.6e−07'})
    """
    spread = values["sd"]
    decimals = (
        int(np.clip(2 - np.floor(np.log10(spread)), 0, 12))
        if np.isfinite(spread) and spread > 0
        else 4
    )
    # a row of zeros says less than a power of ten
    if decimals > SMALL and max(abs(values["mean"]), spread) < 10.0**-3:
        shown = {
            name: max(0, int(np.floor(np.log10(abs(value) or spread))) + decimals - 1)
            for name, value in values.items()
        }
        written = {name: f"{value:.{shown[name]}e}" for name, value in values.items()}
    else:
        written = {
            name: number(value, 4) if abs(value) >= 1e9 else f"{value:,.{decimals}f}"
            for name, value in values.items()
        }
    if "ess_bulk" in values:
        written |= {"ess_bulk": f"{values['ess_bulk']:,.0f}", "r_hat": f"{values['r_hat']:.3f}"}
    return {name: text.replace("-", "−") for name, text in written.items()}
