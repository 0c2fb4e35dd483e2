"""What values must be and how large things may be, and how to show in one line what was given
instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ornstein.errors import InputError
from ornstein.types import Array, Traced

FULL_LIMIT = 2000  # parameters: up to here matrices are held whole, beyond only their diagonals
LARGEST_ALLOCATION = 2 * 10**9  # bytes
FEWER_DRAWS = "ask for fewer draws or chains, or use keep='moments'"


def is_number(value: object) -> bool:
    """Whether a value is one finite real number; True and False are not.

    >>> is_number(1), is_number(np.float32(0.5)), is_number("1"), is_number(np.nan), is_number(True)
    (True, True, False, False, False)
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool
    )
    return bool(number and np.isfinite(value))  # type: ignore[call-overload]


def brief(value: object) -> str:
    """A value's repr on one line and not too long; a number of NumPy's like one of Python's.

    >>> brief(np.eye(2)), brief(np.float64(0.5))
    ('array([[1., 0.], [0., 1.]])', '0.5')
    """
    plain = value.item() if isinstance(value, np.generic) else value
    text = " ".join(repr(plain).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def printable(name: object, most: int | None = 80) -> str:
    r"""A name from outside (a column, a label, a file) as text that is safe to show, on one line.

    What a terminal would obey instead of showing (control characters, escape sequences, overrides
    of the writing direction), and what nobody would see, is written as an escape.

    >>> printable("size \x1b[2J\u202e\n"), printable("Größe [red]"), printable(3)
    ('size \\x1b[2J\\u202e\\n', 'Größe [red]', '3')
    """
    text = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in str(name)[: None if most is None else most + 1]
    )
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def as_numbers(what: str, value: ArrayLike) -> np.ndarray:
    """A float64 array of what was given, finite or not; text is not a number, even if it looks like
    one, and neither is a masked value.
    """
    try:
        array = np.asarray(value)
        text = array.dtype.kind == "O" and any(isinstance(item, str | bytes) for item in array.flat)
        if text or array.dtype.kind not in "fiubO" or np.ma.is_masked(value):
            raise TypeError
        return array.astype(float)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} must be a number or an array of numbers; got {brief(value)}"
        ) from None


def checked_damping(damping: float) -> None:
    """Refuse a damping μ outside (0, 1]."""
    if not is_number(damping) or not 0.0 < damping <= 1.0:
        raise InputError(f"damping must lie in (0, 1]; got {brief(damping)}")


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, also one written as a float; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return bool(np.isfinite(value) and float(value).is_integer())


def require_finite(what: str, array: Array | Traced, names: tuple[str, ...] | None = None) -> None:
    """Refuse NaN and infinity, looking at a bounded number of rows at a time."""
    step = max(1, 2**22 // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, array.shape[0], step):
        bad = ~np.isfinite(np.asarray(array[start : start + step], dtype=float))
        if bad.any():
            row = start + int(np.argwhere(bad)[0][0])
            column = (
                f" in column {names[int(np.argwhere(bad)[0][1])]!r}"
                if names and bad.ndim == 2
                else ""
            )
            raise InputError(f"{what} holds a value that is not finite{column}, first in row {row}")


def require_memory(what: str, *shape: int, remedy: str = FEWER_DRAWS, number: int = 8) -> None:
    """Refuse an allocation above 2 GB, with its size; a `number` takes 8 bytes unless said."""
    size = number * int(np.prod([float(length) for length in shape]))
    if size > LARGEST_ALLOCATION:
        raise InputError(
            f"{what} of shape {shape} would take {size / 1e9:.1f} GB, above the limit of"
            f" {LARGEST_ALLOCATION / 1e9:.0f} GB: {remedy}"
        )
