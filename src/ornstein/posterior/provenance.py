"""Versions of what computed the draws."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import jax
import numpy as np

if TYPE_CHECKING:
    pass


def provenance() -> dict[str, str]:
    """Versions of what computed the draws."""
    import scipy

    from ornstein._version import __version__

    return {
        "ornstein": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
