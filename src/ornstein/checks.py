"""Whether what was handed over is a number, and how to show in one line what was handed over instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from ornstein.errors import InputError


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
    """A value's repr on one line and not too long.

    >>> brief(np.eye(2))
    'array([[1., 0.], [0., 1.]])'
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def as_numbers(what: str, value: Any) -> np.ndarray:
    """A float64 array of what was given, finite or not."""
    try:
        if np.iscomplexobj(value):
            raise TypeError
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{what} must be a number or an array of numbers; got {brief(value)}"
        ) from None


def checked_damping(damping: Any) -> None:
    """Refuse a damping μ outside (0, 1]."""
    if not is_number(damping) or not 0.0 < damping <= 1.0:
        raise InputError(f"damping must lie in (0, 1]; got {brief(damping)}")
