"""Runs that work in other coordinates than the model's, and their posteriors in the model's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ornstein.curvature.curvature import Curvature, require_curvature
from ornstein.dynamics.prediction import Prediction
from ornstein.model.coordinates import Coordinates
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.theory import Gaussian, Process
from ornstein.theory.modes import as_matrix
from ornstein.types import Array, PyTree

Run = Callable[[Model, Curvature | None, Array | None], Posterior]


def in_working_coordinates(
    model: Model, curvature: Curvature | None, init: PyTree, run: Run
) -> Posterior:
    """What `run` makes of a model, a curvature and a start, in coordinates safe to compute in."""
    require_curvature(curvature)
    worked = model.worked
    if worked is None:
        return run(model, curvature, init)
    coordinates = worked.coordinates
    found = run(
        worked.model,
        None if curvature is None else curvature.in_working(coordinates),
        None if init is None else coordinates.working(model.flat(init)),
    )
    return original(found, coordinates, model)


def original(ran: Posterior, coordinates: Coordinates, model: Model | None = None) -> Posterior:
    """A posterior in the coordinates of a run as one of the model's parameters."""
    draws = coordinates.original(ran.draws)
    prediction = ran.prediction
    return replace(
        ran,
        draws=draws,
        curvature=None
        if ran.curvature is None
        else Curvature.of_working(ran.curvature, coordinates),
        prediction=None if prediction is None else _predicted(prediction, coordinates),
        moments=None if ran.moments is None else _moments(ran.moments, coordinates),
        constrained=None if model is None else model.constrained(draws),
        model=model,
        ran=ran,
        coordinates=coordinates,
    )


def _moments(moments: Gaussian, coordinates: Coordinates) -> Gaussian:
    return Gaussian(
        coordinates.original(moments.mean), coordinates.original_covariance(moments.covariance)
    )


def _predicted(prediction: Prediction, coordinates: Coordinates) -> Prediction:
    covariance, process = prediction.covariance, prediction.process
    return replace(
        prediction,
        covariance=None if covariance is None else coordinates.original_covariance(covariance),
        process=None if process is None else _process(process, coordinates),
    )


def _process(process: Process, coordinates: Coordinates) -> Process:
    size, modes, mapped = process.modes.dimension, process.modes, process.scale
    there, back = coordinates.to_original, coordinates.to_working
    return replace(
        process,
        modes=replace(
            modes,
            basis=there @ as_matrix(modes.basis, size),
            inverse=as_matrix(modes.inverse, size) @ back,
        ),
        scale=None if mapped is None else there @ as_matrix(mapped, size) @ back,
    )


def as_run(posterior: Posterior, model: Model | None) -> tuple[Posterior, Model | None]:
    """A posterior and its model in the coordinates in which it was made."""
    if posterior.ran is None:
        return posterior, model
    worked = None if model is None else model.worked
    return posterior.ran, None if worked is None else worked.model
