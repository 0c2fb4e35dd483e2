"""When a run takes its steps in the frame of its preconditioner, and in what numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from ornstein.dynamics.dynamics import Dynamics
from ornstein.engine.chain import Frame
from ornstein.model import frame
from ornstein.model.loss import Loss, Problem
from ornstein.model.model import Model
from ornstein.model.regression import GLM
from ornstein.sampling.warmup import Tuned
from ornstein.types import Array

# Of a matrix that is taken for a diagonal, or a multiple of the identity.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Stepped:
    """What a run steps on: loss, problem, the numbers of the steps, and the frame they are in."""

    loss: Loss
    problem: Problem
    dynamics: Dynamics
    frame: Frame


def in_frame(model: Model, tuned: Tuned, dtype: str, retunes: bool) -> Stepped | None:
    """The run in the frame of its full preconditioner, where it pays; call it inside
    `precision.width`.

    A sampler that is tuned again has no one frame.
    """
    dynamics, mode = tuned.dynamics, tuned.curvature.mode
    if dynamics.preconditioner.ndim < 2 or retunes:
        return None
    if not isinstance(model, GLM) or not frame.fits(model):
        return None
    made = frame.framed(model, mode, dynamics.preconditioner, dtype, dynamics.batch_size)
    injected = None if dynamics.injected is None else _seen_from(made.frame, dynamics.injected)
    moved = replace(dynamics, preconditioner=np.asarray(1.0), injected=injected)
    return Stepped(made.loss, made.problem, moved, Frame(mode, made.frame))


def _seen_from(matrix: Array, covariance: Array) -> Array:
    """L⁻¹RL⁻ᵀ, as a number or a diagonal where it is one."""
    size = len(matrix)
    whole = covariance if covariance.ndim == 2 else np.diag(np.broadcast_to(covariance, (size,)))
    half = scipy.linalg.solve(matrix, whole)
    seen = scipy.linalg.solve(matrix, half.T)
    seen = (seen + seen.T) / 2.0
    diagonal = np.maximum(np.diagonal(seen), 0.0)
    if np.max(np.abs(seen - np.diag(diagonal))) > ROUNDING * diagonal.max():
        return np.asarray(seen)
    if np.ptp(diagonal) <= ROUNDING * diagonal.max():
        return np.asarray(diagonal.mean())
    return diagonal
