"""What a fit leaves behind: three files, then a summary and a verdict on the screen.

Files come first: whatever may happen to a terminal or a pipe, the fit is on the disk by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.interfaces.cli import console
from ornstein.posterior.files import replacing
from ornstein.posterior.prior_words import outweighed, priors_of, sentence, shares_of_priors

if TYPE_CHECKING:
    import pandas

    from ornstein.critique.critique import Critique
    from ornstein.posterior.history import Attempt
    from ornstein.posterior.posterior import Posterior
    from ornstein.regression.spec import Spec
    from ornstein.verdict.verdict import Verdict


@dataclass(frozen=True)
class Results:
    """The coefficients on the scale of the table, the verdict on the draws, the critique of the
    model, files with what each is for, and parameters of which the prior says more than the data.
    """

    spec: Spec
    summary: pandas.DataFrame
    verdict: Verdict
    critique: Critique
    files: list[tuple[Path, str]]
    history: tuple[Attempt, ...] = ()
    outweighed: tuple[str, ...] = ()


def write_results(posterior: Posterior, folder: Path, plots: bool = False) -> Results:
    """Write fit.orn, posterior.nc, report.html and plots if asked; nothing is printed yet."""
    from ornstein.interfaces.report import write_report
    from ornstein.interfaces.table.fitting import from_table, shown

    files = [(posterior.save(folder / "fit.orn"), "for `ornstein predict` and `ornstein.load`")]
    try:
        spec, readable = from_table(posterior)[1], shown(posterior)
        draws = write_netcdf(readable, spec, folder / "posterior.nc")
        files.append((draws, "draws on the scale of the table, for ArviZ"))
        verdict, critique = posterior.check(), posterior.critique()
        summary = readable.summary()
        summary = summary.assign(prior=priors_of(summary.index, spec.priors))
        shares = shares_of_priors(posterior.model, posterior.mean, posterior.covariance)
        weak = outweighed(posterior.names, shares)
        page = write_report(
            posterior,
            folder / "report.html",
            verdict=verdict,
            critique=critique,
            summary=summary,
        )
        files.append((page, "open it in a browser"))
        if plots:
            files += [(path, "plot") for path in write_plots(posterior, folder)]
        return Results(spec, summary, verdict, critique, files, posterior.history, weak)
    except BaseException:
        written = ", ".join(str(path) for path, _ in files)
        console.warn(f"not everything was written; the fit is in {written}")
        raise


def show_results(results: Results) -> None:
    """Print the coefficients, the verdict, and which files were written."""
    console.show_frame(
        results.summary,
        f"{results.spec.family} regression of {results.spec.target!r}, on the scale of the table",
    )
    if results.outweighed:
        console.say(sentence(results.outweighed))
    console.say()
    console.show_verdict(results.verdict)
    console.say()
    console.show_critique(results.critique)
    for attempt in results.history:
        console.say(f"Tried {attempt}", style="dim")
    console.say()
    console.show_files("Written", results.files)


def write_plots(posterior: Posterior, folder: Path) -> list[Path]:
    """The sections of the report as PNG files, and the marginal intervals on the scale that the
    chain ran on.
    """
    from ornstein.interfaces.report.sections import sections
    from ornstein.posterior.plots import marginals

    path = folder / "marginals.png"
    marginals(posterior, path=path)
    return [path] + [
        section.png(folder / f"{name}.png")
        for name, section in sections(posterior, posterior.model).items()
    ]


def write_netcdf(readable: Posterior, spec: Spec, path: Path) -> Path:
    """Draws on the original scale as an ArviZ file with the names of features and classes as
    coordinates.
    """
    from ornstein.posterior.arviz import inference_data, netcdf_bytes

    params = {name: np.asarray(values) for name, values in readable.params.items()}
    coordinates: dict[str, list[str]] = {}
    dimensions: dict[str, list[str]] = {}
    if "coef" in params:  # not of a mixed model, which names each coefficient
        coordinates = {"feature": list(spec.feature_names)}
        dimensions = {"coef": ["feature"]}
        if len(spec.classes) > 2 or params["coef"].ndim == 4:
            coordinates |= {"class": list(spec.classes[1:])}
            dimensions = {"coef": ["feature", "class"], "intercept": ["class"]}
    attributes = {name: str(value) for name, value in readable.settings.items()}
    content = netcdf_bytes(inference_data(params, attributes, coordinates, dimensions))
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path
