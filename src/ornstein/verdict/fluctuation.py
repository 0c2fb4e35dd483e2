"""The fluctuation–dissipation relation, as a gauge: what the gradient takes out of the chain
against what the noise puts in.
"""

from __future__ import annotations

import numpy as np

from ornstein.rows.scheme import effective_batch
from ornstein.theory.modes import as_matrix
from ornstein.verdict.subject import Subject


def fluctuation_dissipation(subject: Subject) -> float:
    """2E[(θ−θ̂)ᵀ∇L] / (tr(H E[ĝĝᵀ]) + tr(H⁻¹R)): near 1 in a stationary chain without momentum.

    A gauge and not a test: over time it telescopes, so that a z-score of it has no power. Its
    quadratic parts come from all states, what is left from a few draws. NaN where it needs what is
    not at hand: the model, velocities, single iterates.
    """
    law, model = subject.law, subject.model
    if (
        law is None
        or model is None
        or subject.large
        or law.dynamics.window > 1
        or law.dynamics.damping != 1.0
    ):
        return float("nan")
    hessian, mode = law.curvature.hessian, law.curvature.mode
    batch = effective_batch(law.dynamics.scheme, law.curvature.n_data, law.dynamics.batch_size)
    shift = subject.posterior.mean - mode
    spread = as_matrix(subject.posterior.covariance, law.dimension) + np.outer(shift, shift)
    drift, seen = float(np.sum(hessian * spread)), hessian @ spread @ hessian
    looked_at = subject.gradients_at_draws
    for draw, first, second in looked_at:
        slope, linear = first + model.scaled_prior(draw)[1], hessian @ (draw - mode)
        drift += float((draw - mode) @ (slope - linear)) / len(looked_at)
        seen += (np.outer(slope, slope) - np.outer(linear, linear)) / len(looked_at)
        if not law.dynamics.control_variates:
            seen += (second - np.outer(first, first)) / (batch * len(looked_at))
    step = as_matrix(law.dynamics.preconditioner, law.dimension)
    put_in = float(np.sum(step * seen))
    if law.dynamics.injected is not None:
        put_in += float(
            np.trace(np.linalg.solve(step, as_matrix(law.dynamics.injected, law.dimension)))
        )
    return 2.0 * drift / put_in
