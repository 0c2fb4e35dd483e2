"""Does the gradient jump near the mode? Then second derivatives say nothing about the posterior.

Where the loss is smooth, the gradient changes between two points by what the Hessian on the way
adds up to. At a kink (a Laplace prior at zero, a Laplace or quantile likelihood, whose every row
has one) it changes by more, and the Hessian shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.optimize

from ornstein.curvature.newton import Lifted
from ornstein.errors import ModeError
from ornstein.streams import Purpose, stream
from ornstein.types import Array

Loss = Callable[[Array], tuple[float, Array]]

# posterior standard deviations on either side of the mode
NEAR, NEARER = 0.3, 0.03
SUSPICIOUS = 0.1  # a share of the gradient's change that the Hessian at the mode leaves unexplained
KINKED = 0.2  # and the Hessian on the way
RAYS = 3
WIDER = 60  # doublings of a distance before the loss counts as falling without end


def kink_at(place: Array) -> ModeError:
    """The error for a kink at a place."""
    return ModeError(
        "the loss has a kink at the mode: its gradient jumps there, as with a Laplace prior or a"
        " Laplace or quantile likelihood, and second derivatives do not describe the posterior. Use"
        " NUTS (orn.nuts), or a smooth density such as Student's t",
        kind="kink",
        place=place,
    )


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def is_kink(
    loss: Loss,
    curved: Callable[[Array], Array],
    mode: Array,
    at_mode: Lifted,
    n_data: int,
    seed: int,
) -> bool:
    """Whether the gradient near a mode changes by what no second derivative tells; two gradients
    where it does not.
    """
    normal = stream(seed, Purpose.MODE, 0).standard_normal(mode.size)
    deviation = at_mode.rounding() @ normal / np.sqrt(n_data)
    change = _change(loss, mode, NEAR * deviation)
    expected = 2.0 * NEAR * (curved(mode) @ deviation)
    if _length(at_mode, change - expected) <= SUSPICIOUS * _length(at_mode, expected):
        return False
    kinked = all(
        _unexplained(loss, curved, mode, share * deviation, at_mode) for share in (NEAR, NEARER)
    )
    curved(mode)  # the last place asked for
    return kinked


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def kink_below(
    loss: Loss,
    curved: Callable[[Array], Array],
    start: Array,
    place: Array,
    n_data: int,
    seed: int,
) -> ModeError | None:
    """The error for a kink at the lowest place near one where a search from `start` got stuck; None
    where the gradient changes as second derivatives say, or the loss falls without end.
    """
    found = scipy.optimize.minimize(
        loss, place, jac=True, method="L-BFGS-B", options={"maxiter": 100, "ftol": 0.0, "gtol": 0.0}
    )
    lowest = found.x if np.isfinite(found.fun) and np.all(np.isfinite(found.x)) else place
    moved = lowest - start
    if np.any(moved) and not loss(lowest + moved)[0] > loss(lowest)[0] + 0.5 / n_data:
        return None
    votes = 0
    for number in range(RAYS):
        ray = stream(seed, Purpose.MODE, 0, number).standard_normal(place.size)
        ray *= np.maximum(np.abs(lowest), 1e-3)
        reach = _reach(loss, lowest, ray, n_data)
        if reach is None:
            return None
        votes += _unexplained(loss, curved, lowest, NEAR * reach * ray, None)
    return kink_at(lowest) if 2 * votes > RAYS else None


def _reach(loss: Loss, lowest: Array, ray: Array, n_data: int) -> float | None:
    """How far along a ray the log density has fallen by a half, a posterior standard deviation."""
    level = loss(lowest)[0] + 0.5 / n_data
    length = 1e-6
    for _ in range(WIDER):
        ahead, behind = (loss(lowest + side * length * ray)[0] for side in (1.0, -1.0))
        if not (np.isfinite(ahead) and np.isfinite(behind)):
            return None
        if min(ahead, behind) >= level:
            return length
        length *= 2.0
    return None


def _change(loss: Loss, mode: Array, shift: Array) -> Array:
    return loss(mode + shift)[1] - loss(mode - shift)[1]


def _unexplained(
    loss: Loss,
    curved: Callable[[Array], Array],
    mode: Array,
    shift: Array,
    metric: Lifted | None,
) -> bool:
    """Whether the Hessian on the way, by Simpson's rule, leaves more than a fifth of the gradient's
    change unexplained.
    """
    change = _change(loss, mode, shift)
    matrices = [curved(mode + part * shift) for part in (-1.0, 0.0, 1.0)]
    if not all(np.all(np.isfinite(matrix)) for matrix in matrices):
        return False
    summed = (matrices[0] + 4.0 * matrices[1] + matrices[2]) / 3.0 @ shift
    return _length(metric, change - summed) > KINKED * max(
        _length(metric, change), _length(metric, summed)
    )


def _length(metric: Lifted | None, slope: Array) -> float:
    """Of a slope, in posterior standard deviations up to a factor, where the curvature is known."""
    return float(np.sqrt(abs(slope @ (slope if metric is None else metric.solve(slope)))))
