"""The model that a posterior is asked about: a saved file holds none, so that one is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ornstein.checks import brief
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.model.required import require_model

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.types import Array


class Fitted(Protocol):
    """A Posterior."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def mean(self) -> Array: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def curvature(self) -> Curvature | None: ...


def model_of(posterior: Fitted, given: Model | None) -> Model | None:
    """The model that was given, or the run's own; one of other parameters or another number of rows
    than the posterior was made from is refused.
    """
    if given is None or given is posterior.model:
        return posterior.model
    require_model(given)
    if given.dim != posterior.mean.size:
        raise InputError(
            f"the model has {given.dim} parameters, the posterior {posterior.mean.size}"
        )
    if tuple(given.names) != tuple(posterior.names):
        place = next(i for i, name in enumerate(posterior.names) if given.names[i] != name)
        raise InputError(
            f"the model is not the posterior's: parameter {place} is {brief(given.names[place])} in"
            f" the model and {brief(posterior.names[place])} in the posterior"
        )
    known = posterior.curvature
    if known is not None and known.n_data != given.n_data:
        raise InputError(
            f"the model is not the posterior's: it holds {given.n_data} rows, and the posterior was"
            f" made from {known.n_data}"
        )
    return given
