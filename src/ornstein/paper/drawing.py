"""Small drawing helpers for the paper's figures: a colour-blind-safe palette, ellipses, covariance panels, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray

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


def figure(width: float, height: float) -> Any:
    """A matplotlib Figure outside pyplot's global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def ellipse(
    axes: Any,
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


def covariance_panel(axes: Any, covariance: Array, limit: float, title: str) -> Any:
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


def write_figure(drawn: Any, folder: Path, name: str) -> list[Path]:
    """The figure as PNG and SVG."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    drawn.savefig(paths[0], dpi=150)
    drawn.savefig(paths[1], metadata={"Date": None})
    return paths
