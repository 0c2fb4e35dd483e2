"""What to do where the data leave a direction without gradient noise: dead columns, more parameters
than rows, softmax shifts.

SGD never moves along such a direction, so its law is degenerate there. With a proper prior the
missing noise is injected as "prior noise": take C' = C + Λ/N for the noise everywhere and inject R
= HΛH/(NS). The law stays exactly what the tuning says.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ornstein.curvature.curvature import Curvature
from ornstein.errors import CurvatureError
from ornstein.theory.matrices import Array
from ornstein.theory.modes import congruence

# Below the first ratio of noise to curvature, times N/S, the exactly tuned step flips sign each
# step and relaxes in over 10 steps for no good reason. Below the second there is no noise but that
# of rounding: nothing to tune.
SCARCE, SINGULAR = 0.05, 1e-9


@dataclass(frozen=True, eq=False)
class SampledNoise:
    """The noise to tune for, and the part of it that must be injected (None: nothing)."""

    noise: Array
    prior_part: Array | None = None
    notes: tuple[str, ...] = ()

    def injected(self, step: Array, batch_size: float) -> Array | None:
        """R = H(Λ/N)H f/S for this step."""
        if self.prior_part is None:
            return None
        whole = step if step.ndim else np.broadcast_to(step, (self.prior_part.shape[0],))
        return congruence(whole, self.prior_part) / batch_size


def sampled_noise(curvature: Curvature, noise: Array, batch_size: float) -> SampledNoise:
    """The noise itself where it is rich enough; with prior noise where it is not; an error where
    there is none at all.
    """
    ratio, where = _scarcest(curvature, noise)
    enough = SCARCE * batch_size / curvature.n_data
    if ratio >= enough:
        return SampledNoise(noise)
    prior = curvature.prior_hessian
    if prior is not None and np.any(prior):
        part = prior / curvature.n_data
        part = _positive_part(np.diag(part) if part.ndim == 1 and noise.ndim == 2 else part)
        lifted, _ = _scarcest(curvature, noise + part)
        if lifted >= SINGULAR:
            return SampledNoise(
                noise + part, part, (f"{_said(ratio, where)}: prior noise is injected",)
            )
    if ratio >= SINGULAR:
        return SampledNoise(noise, notes=(f"{_said(ratio, where)}: the chain is slow there",))
    raise CurvatureError(
        f"the gradient noise C is singular: the direction {where} has {max(ratio, 0.0):.1e} of its"
        " curvature in noise, so SGD does not explore it. Give that direction a proper prior"
        " (prior_precision > 0), drop it, or use a sampler that injects noise"
    )


def _said(ratio: float, where: str) -> str:
    return (
        f"the data leave the direction {where} (almost) without gradient noise ({ratio:.1e} of its"
        " curvature)"
    )


def _positive_part(matrix: Array) -> Array:
    """A hierarchy's prior need not be log-concave at the mode; any covariance may be injected, so
    its positive part will do.
    """
    if matrix.ndim == 1:
        return np.maximum(matrix, 0.0)
    values, vectors = np.linalg.eigh(matrix)
    return matrix if values[0] >= 0.0 else (vectors * np.maximum(values, 0.0)) @ vectors.T


def _scarcest(curvature: Curvature, noise: Array) -> tuple[float, str]:
    """Smallest ratio of noise to curvature over all directions, and the direction in words."""
    if noise.ndim == 1:
        ratio = noise / curvature.hessian
        worst = int(np.argmin(ratio))
        return float(ratio[worst]), curvature.names[worst]
    values, vectors = scipy.linalg.eigh(noise, curvature.hessian)
    direction = vectors[:, 0] / np.linalg.norm(vectors[:, 0])
    return float(values[0]), curvature.direction(direction)
