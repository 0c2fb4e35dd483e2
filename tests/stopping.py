"""Runs that are stopped and resumed, and what must not differ then."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np

import ornstein as orn
from ornstein.engine.chain import Chain


def same(some, other):
    assert some.draws.shape == other.draws.shape
    np.testing.assert_array_equal(some.draws, other.draws)
    np.testing.assert_array_equal(some.mean, other.mean)
    np.testing.assert_array_equal(some.covariance, other.covariance)
    for name in ("thin", "warmup", "steps", "states", "complete", "batch_size", "scheme"):
        assert some.settings[name] == other.settings[name], name


@contextmanager
def stopping_before(piece):
    """Ctrl-C in place of the given piece of a chain's way (None: never); yields the pieces begun.

    How many there are does not depend on which thread comes first.
    """
    advance, begun, lock = Chain.advance, [], threading.Lock()

    def advanced(self, *arguments):
        with lock:
            begun.append(self.number)
            if len(begun) == piece:
                raise KeyboardInterrupt
        return advance(self, *arguments)

    Chain.advance = advanced
    try:
        yield begun
    finally:
        Chain.advance = advance


def whole_and_resumed(folder, model, sampler, **options):
    """A run, and the same one stopped after two thirds of its pieces and resumed."""
    with stopping_before(None) as pieces:
        whole = orn.sample(model, sampler, progress=False, **options)
    with stopping_before(1 + 2 * len(pieces) // 3):
        partial = orn.sample(model, sampler, progress=False, checkpoint=folder, every=0, **options)
    assert not partial.settings["complete"]
    return whole, orn.resume(folder, model, progress=False)
