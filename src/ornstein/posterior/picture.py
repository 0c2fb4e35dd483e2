"""A figure that notebooks show by itself, whether or not pyplot has been imported."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure of matplotlib; a cell of a notebook that ends with it shows it.

    >>> Picture(figsize=(1.0, 1.0))._repr_png_()[:4]
    b'\\x89PNG'
    """

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
