"""Figures and the colours of their lines; pyplot and its global state are not touched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ornstein.errors import FileError
from ornstein.posterior.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by all common kinds of colour vision (its yellow, faint on
# white, replaced); markers and lines differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255")


def empty_figure(width: float, height: float) -> Figure:
    """A figure without panels."""
    from ornstein.posterior.picture import Picture

    return Picture(figsize=(width, height), layout="constrained")


def single_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one panel."""
    figure = empty_figure(width, height)
    return figure, figure.subplots()


def _ours(path: str | Path) -> dict[str, str] | None:
    """By which a later run of the command line knows the file for one of its own."""
    known = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
    name = known.get(Path(path).suffix.lower())
    return None if name is None else {name: "ornstein"}


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in the format that the ending of the name says."""
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=150, metadata=_ours(path))
    except ValueError as error:
        raise FileError(f"cannot write the plot to {path}: {error}") from error
