"""What a fit leaves behind: a summary and a verdict on the screen, and three files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.errors import FileError
from ornstein.interfaces import console

if TYPE_CHECKING:
    from ornstein.diagnostics.verdict import Verdict
    from ornstein.interfaces.encoding import Encoding
    from ornstein.interfaces.fitting import Table
    from ornstein.posterior import Posterior


def write_results(table: Table, posterior: Posterior, folder: Path, plots: bool = False) -> Verdict:
    """Print the coefficients (original scale) and the verdict; write posterior.nc, fit.orn, report.html and plots if asked."""
    from ornstein.interfaces.report import write_report

    original = table.encoding.original(posterior)
    summary = original.summary()
    console.show_frame(
        summary,
        f"{table.encoding.family} regression of {table.encoding.target!r}, on the scale of the table",
    )
    console.say()
    verdict = posterior.check()
    console.show_verdict(verdict)
    console.say()
    files = [
        (posterior.save(folder / "fit.orn"), "for `ornstein predict` and `ornstein.load`"),
        (
            write_netcdf(original, table.encoding, folder / "posterior.nc"),
            "draws on the scale of the table, for ArviZ",
        ),
        (write_report(posterior, folder / "report.html", verdict=verdict), "open it in a browser"),
    ]
    if plots:
        written = write_plots(posterior, folder)
        files += [(path, "plot") for path in written]
    console.show_files("Written", files)
    return verdict


def write_plots(posterior: Posterior, folder: Path) -> list[Path]:
    """The sections of the report as PNG files, and the marginal intervals on the scale that the chain ran on."""
    from ornstein.interfaces.report.sections import sections
    from ornstein.plots import marginals

    path = folder / "marginals.png"
    marginals(posterior, path=path)
    return [path] + [
        section.png(folder / f"{name}.png")
        for name, section in sections(posterior, posterior.model).items()
    ]


def write_netcdf(original: Posterior, encoding: Encoding, path: Path) -> Path:
    """Draws on the original scale as an ArviZ file with the names of features and classes as coordinates."""
    from ornstein.interfaces.arviz import inference_data

    params = {name: np.asarray(values) for name, values in original.params.items()}
    coordinates = {"feature": list(encoding.feature_names)}
    dimensions = {"coef": ["feature"]}
    if encoding.family == "categorical":
        coordinates |= {"class": list(encoding.classes[1:])}
        dimensions = {"coef": ["feature", "class"], "intercept": ["class"]}
    attributes = {name: str(value) for name, value in original.settings.items()}
    data = inference_data(params, attributes, coordinates, dimensions)
    try:
        data.to_netcdf(str(path), engine="h5netcdf")
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}") from error
    return path
