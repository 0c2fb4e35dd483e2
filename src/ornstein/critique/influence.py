"""Does one row decide the answer?"""

from __future__ import annotations

import numpy as np

from ornstein.critique.bounds import INFLUENCE
from ornstein.critique.evidence import Evidence
from ornstein.critique.finding import Finding, graded, skipped

NAME, MOST_PARAMETERS, NAMED = "influence", 2000, 3


def influence(evidence: Evidence) -> Finding:
    """How far leaving out a row moves the posterior mean, in standard deviations, to first order:
    Σg/(1 − h), with g the row's slope and h its share of the curvature.
    """
    law = evidence.model.likelihood.law
    covariance = evidence.posterior.covariance
    if law.classes or covariance.ndim == 1 or len(covariance) > MOST_PARAMETERS:
        return skipped(NAME, "it needs one predictor per row and a whole covariance")
    own = np.asarray(evidence.model._linear.predictor_of) == 0
    features = np.asarray(evidence.model._linear.feature_of)[own]
    extended = np.column_stack([evidence.columns, np.ones(len(evidence.rows))])[:, features]
    leverage = np.einsum("ni,ij,nj->n", extended, covariance[np.ix_(own, own)], extended)
    first, second = evidence.slopes
    moved = np.abs(first) * np.sqrt(leverage) / np.maximum(1.0 + leverage * second, 0.05)
    order = np.argsort(-moved)
    shown = [place for place in order[:NAMED] if moved[place] > INFLUENCE] or [order[0]]
    rows = ", ".join(str(evidence.rows[place]) for place in shown)
    number = float(moved[order[0]])
    sentence = f"leaving out row {rows} (from 0) moves the posterior by {number:.2f} sd"
    if not number > INFLUENCE:
        return Finding(NAME, "fits", number, INFLUENCE, f"at most: {sentence}")
    remedy = "look at these rows; fit without them to see what changes"
    return Finding(NAME, graded(number, INFLUENCE), number, INFLUENCE, sentence, remedy)
