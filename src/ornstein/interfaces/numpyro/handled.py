"""NumPyro's handlers, made safe for use inside compiled code, other models and threads."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
from numpyro import handlers
from numpyro.primitives import Messenger

from ornstein.types import Traced

Site = dict[str, Any]  # what NumPyro records of one statement
Sites = dict[str, Site]
Function = Callable[..., object]

# NumPyro's stack of handlers is one list for all threads, and chains are compiled on threads of
# their own.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def alone() -> Iterator[None]:
    """Where models may be run: one thread at a time, unseen by a model that runs around it."""
    with _ONE_AT_A_TIME, handlers.block(), warnings.catch_warnings():
        # that discrete latents should be marked, which plates are missing, …: the density of all
        # data is compared with the sum over rows, and discrete latents are summed out knowingly
        warnings.simplefilter("ignore")
        yield


class EveryRow(Messenger):
    """Runs plates at their full size: a subsample that the model asks for is overruled."""

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "plate":
            msg["value"] = _indices(msg, None)


class SomeRows(Messenger):
    """Runs data plates with this number of rows, and undoes the factor by which NumPyro then scales
    them up.
    """

    def __init__(self, fn: Function, counts: Mapping[str, int], size: int) -> None:
        self.counts, self.size = counts, size
        super().__init__(fn)

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "plate":
            msg["value"] = _indices(msg, self.counts.get(msg["name"]))
        if msg["type"] == "sample":
            for frame in msg["cond_indep_stack"]:
                count = self.counts.get(frame.name)
                if count is not None and count != self.size:
                    _unscale(msg, frame.name, count / self.size)


class Unobserved(Messenger):
    """Takes the observed values away from some sites, so that they are drawn."""

    def __init__(self, fn: Function, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(fn)

    def process_message(self, msg: Site) -> None:
        if msg["type"] == "sample" and msg["name"] in self.names:
            msg["is_observed"], msg["value"] = False, None


def _unscale(msg: Site, plate: str, factor: float) -> None:
    msg.get("plate_to_scale", {}).pop(plate, None)
    if msg["scale"] is not None:
        msg["scale"] = msg["scale"] * factor


def _indices(plate: Site, count: int | None) -> Traced:
    """All rows of a plate, or the first `count`."""
    size = plate["args"][0]
    rows = size if count is None else count
    plate["args"] = (size, rows)
    return jnp.arange(rows)
