"""Polyak–Ruppert averaging: the mean of all iterates of SGD as an estimate of the mode, with its
error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from ornstein.checks import is_number, is_whole
from ornstein.curvature.curvature import Curvature, require_curvature
from ornstein.curvature.measure import measure
from ornstein.errors import InputError
from ornstein.model.model import Model
from ornstein.posterior.posterior import Posterior
from ornstein.rows.scheme import automatic_batch, checked_batch_size, checked_scheme
from ornstein.samplers.iasg import IASG
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.run import run_here
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas

# Rows looked at per batch, at the least: the bias of the constant step is then small against the
# error of the average.
ROWS_PER_BATCH = 10**6


@dataclass(frozen=True, eq=False)
class Average:
    """The running mean of SGD's iterates, and how far it is from the mode.

    Attributes:
        estimate: the mean of all iterates after warm-up, flat; `params` is the same in the model's
            own shape.
        running: the mean after each batch, (batches, D).
        predicted_covariance: of `estimate` around the mode, exact for this many steps at this step
            size. As steps grow it approaches A⁻¹CA⁻¹/(TS), whatever the step: no other use of T
            minibatch gradients does better.
        covariance: the same, estimated from the scatter of the batches' means and nothing else.
        steps, batch_size: T and S.
        batches: the means of the successive batches, as a Posterior with one chain.
    """

    estimate: Array
    running: Array
    predicted_covariance: Array
    covariance: Array
    steps: int
    batch_size: int
    batches: Posterior

    @property
    def params(self) -> PyTree:
        return self.batches.layout.unflatten(self.estimate)

    def intervals(self, probability: float = 0.95) -> pandas.DataFrame:
        """Confidence intervals for the mode by batch means: estimate ± t · standard error, one row
        per parameter.

        They are about the error of SGD, not about the posterior's width.
        """
        import pandas

        if not is_number(probability) or not 0.0 < probability < 1.0:
            raise InputError(f"probability must lie between 0 and 1; got {probability}")
        error = np.sqrt(_diagonal(self.covariance))
        reach = (
            scipy.special.stdtrit(self.batches.draws.shape[1] - 1, (1.0 + probability) / 2.0)
            * error
        )
        table = {
            "estimate": self.estimate,
            "standard_error": error,
            "predicted_error": np.sqrt(_diagonal(self.predicted_covariance)),
            "low": self.estimate - reach,
            "high": self.estimate + reach,
        }
        return pandas.DataFrame(table, index=list(self.batches.names))


def average(
    model: Model,
    *,
    steps: int | str = "auto",
    batches: int = 20,
    batch_size: int | str = "auto",
    scheme: str = "replacement",
    step_size: ArrayLike = "auto",
    preconditioner: str = "auto",
    damping: float = 1.0,
    curvature: Curvature | None = None,
    init: PyTree = None,
    seed: int = 0,
    dtype: str | None = None,
    progress: bool = True,
) -> Average:
    """Average the iterates of constant-rate SGD (Polyak and Juditsky 1992; Mandt, Hoffman and Blei
    2017, section 6.1).

    The step is chosen by the length of the run, so that each of `batches` successive stretches
    holds many relaxation times: their means are then as good as independent, and their scatter
    gives confidence intervals. A longer run takes a smaller step, so that the bias of a constant
    step on a loss that is not quadratic vanishes faster than the error.

    Args:
        model: what is optimised: the mode of its posterior.
        steps: T, after warm-up; "auto" is one pass over the data or a million rows per batch,
            whichever is more.
        batches: how many stretches the run is divided into.
        batch_size, scheme, curvature, init, seed, dtype, progress: as in `sample`.
        step_size, preconditioner, damping: as in `IASG`.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> found = average(
    ...     glm(X, X @ [1.0, -1.0] + rng.normal(size=1000), noise_scale=1.0, intercept=False),
    ...     progress=False,
    ... )
    >>> list(found.intervals().index), found.running.shape
    (['x0', 'x1'], (20, 2))
    """
    require_curvature(curvature)
    if not is_whole(batches) or batches < 5:
        raise InputError(f"batches must be a whole number, 5 or more; got {batches!r}")
    if steps != "auto" and (not is_whole(steps) or int(steps) < 2 * batches):
        raise InputError(
            f"steps must be 'auto' or a whole number, at least two for each of {batches} batches;"
            f" got {steps!r}"
        )
    curvature = measure(model, scheme=scheme) if curvature is None else curvature
    if isinstance(batch_size, str):
        if batch_size != "auto":
            raise InputError(f"batch_size must be a whole number or 'auto', not {batch_size!r}")
        batch_size = automatic_batch(model.n_data)
    batch_size = checked_batch_size(batch_size, model.n_data, checked_scheme(scheme))
    window = (
        max(model.n_data, ROWS_PER_BATCH) // batch_size
        if isinstance(steps, str)
        else int(steps) // int(batches)
    )
    # The target matters only for the linear map, which is taken off again: the mean of the windows
    # is wanted as it is.
    rule = IASG(window, step_size, preconditioner, target="sandwich", damping=damping)
    dynamics = replace(rule.tune(curvature, batch_size, scheme), output_map=None, sampler="average")
    total = dynamics.window * int(batches)
    request = SampleRequest(
        dynamics,
        draws=int(batches),
        chains=1,
        max_steps=2 * total,
        curvature=curvature,
        init=init,
        seed=seed,
        dtype=dtype,
        progress=progress,
    )
    run = run_here(model, request)
    means = run.draws[0]
    estimate = means.mean(axis=0)
    running = np.cumsum(means, axis=0) / np.arange(1, len(means) + 1)[:, None]
    return Average(
        estimate,
        running,
        _predicted(run, total),
        run.covariance / len(means),
        total,
        dynamics.batch_size,
        run,
    )


def _predicted(run: Posterior, total: int) -> Array:
    """Covariance of the mean over all steps: one window as long as the run."""
    return replace(run.delivered_process(), spacing=total, window=total).covariance()


def _diagonal(matrix: Array) -> Array:
    return matrix if matrix.ndim == 1 else np.diagonal(matrix)
