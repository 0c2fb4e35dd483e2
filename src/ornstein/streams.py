"""Random streams: one per seed, purpose and number, so that no two uses share their numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from ornstein.errors import InputError


class Purpose(IntEnum):
    """What a stream is for. Values are part of what "same seed, same draws" means: they stay."""

    ROWS = 0
    NORMALS = 1
    MEAN_FIELD = 6
    STARTS = 7
    NUTS = 8
    BBVI = 9
    LOW_RANK = 10
    NOISE_ALONG = 11
    ORDER = 12
    VERDICT = 13
    EXTRAPOLATION = 17
    CLIMB = 18
    MODE = 29
    LEVERAGE = 30
    HMC = 31
    PLAN = 32
    EFFECTS = 40


def require_seed(seed: object) -> None:
    """Refuse what NumPy cannot make a stream of random numbers from.

    >>> require_seed(-1)
    Traceback (most recent call last):
    ornstein.errors.InputError: seed must be a whole number, 0 or more; got -1
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or seed < 0:  # type: ignore[operator]
        raise InputError(f"seed must be a whole number, 0 or more; got {seed!r}")


def generator(seed: int) -> np.random.Generator:
    """The generator of a seed that serves one purpose only."""
    require_seed(seed)
    return np.random.default_rng(seed)


def sequence(seed: int, purpose: Purpose, *numbers: int) -> np.random.SeedSequence:
    """The seed of one stream: the chain, round or task that it belongs to, then its purpose."""
    require_seed(seed)
    return np.random.SeedSequence(seed, spawn_key=(*numbers, int(purpose)))


def stream(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """A generator of its own.

    >>> one, other = (stream(0, Purpose.STARTS, chain).random() for chain in (0, 1))
    >>> one == stream(0, Purpose.STARTS, 0).random(), one == other
    (True, False)
    """
    return np.random.Generator(np.random.SFC64(sequence(seed, purpose, *numbers)))


def derived_seed(seed: int, *numbers: int) -> int:
    """A seed for another run, which makes streams of its own from it."""
    return int(np.random.SeedSequence(seed, spawn_key=numbers).generate_state(1)[0])
