"""Small drawing helpers for the paper's figures: a colour-blind-safe palette, ellipses, covariance
panels, files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.posterior.files import replacing
from ornstein.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)


def figure(width: float, height: float) -> Figure:
    """A matplotlib Figure outside pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def ellipse(
    axes: Axes,
    covariance: Array,
    centre: Array,
    colour: str,
    label: str,
    style: str = "-",
    sds: float = 3.0,
) -> None:
    """The curve `sds` standard deviations from the centre of a two-dimensional Gaussian."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2.0 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    curve = centre[:, None] + sds * vectors @ (np.sqrt(np.maximum(values, 0.0))[:, None] * circle)
    axes.plot(*curve, style, color=colour, label=label, linewidth=1.8)


def covariance_panel(axes: Axes, covariance: Array, limit: float, title: str) -> AxesImage:
    """A covariance as a heat map on a symmetric diverging scale."""
    image = axes.imshow(covariance, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    return image


def principal_plane(covariance: Array) -> Array:
    """The directions of smallest and largest posterior variance, as rows."""
    _, vectors = np.linalg.eigh(covariance)
    return np.stack([vectors[:, 0], vectors[:, -1]])


def write_figure(drawn: Figure, folder: Path, name: str) -> list[Path]:
    """The figure as PNG and SVG."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    with replacing(paths[0]) as temporary:
        drawn.savefig(temporary, dpi=150)
    with replacing(paths[1]) as temporary:
        drawn.savefig(temporary, metadata={"Date": None})
    return paths
