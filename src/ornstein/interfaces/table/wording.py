"""Numbers as people write them, on the page and in the terminal."""

from __future__ import annotations

import numpy as np


def number(value: object, digits: int = 4) -> str:
    """A number as people write it.

    >>> number(0.000123456), number(1234567.0), number(4000), number("text")
    ('0.0001235', '1,234,567', '4,000', 'text')
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    real = float(value)
    return f"{real:,.0f}" if 10.0**digits <= abs(real) < 1e9 else f"{real:.{digits}g}"
