"""The noise of minibatches with fixed numbers of groups of each size.

With S_b groups of the N_b of bucket b, drawn independently within the bucket, the gradient of a
minibatch has the covariance

    Σ_b (N_b/N)² (C_b + K_b[Σ])/S_b,      K_b[Σ] = E_b[A_nΣA_n] − A_bΣA_b,

C_b about the bucket's own mean. What buckets differ in is no noise, so that there is less of it
than with groups drawn alike; and C/S would be wrong.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.curvature.grouped import MOST_PARAMETERS, GroupDerivatives
from ornstein.errors import InputError
from ornstein.model.mixed.model import MixedModel
from ornstein.model.model import Model
from ornstein.rows.strata import Strata
from ornstein.types import Array


def by_strata(model: Model, curvature: Curvature, counts: Array | None = None) -> Curvature:
    """The curvature with the noise of such minibatches in place of C and K: divided by S it is
    that of a minibatch of S groups.

    `counts` of groups of each bucket are chosen in proportion to N_b √tr(A⁻¹C_b) where they are not
    given.
    """
    if not isinstance(model, MixedModel) or model.dim > MOST_PARAMETERS or curvature.diagonal:
        raise InputError(
            "scheme='stratified' is for mixed models (orn.glmm) of at most"
            f" {MOST_PARAMETERS} parameters, whose groups lie in buckets by size: use"
            " 'replacement'"
        )
    derivatives, mode = GroupDerivatives(model), curvature.mode
    each = _within(model, derivatives, mode)
    if counts is None:
        inverse = curvature.posterior_covariance * model.n_data
        sizes = np.sqrt(np.maximum(0.0, np.einsum("ij,bij->b", inverse, each)))
        groups = np.subtract(model.buckets.stops, model.buckets.firsts)
        strata = Strata.of(model.buckets, groups * sizes)
    else:
        strata = Strata(model.buckets, tuple(int(count) for count in counts))
    weights, hessians = strata.weights, derivatives.hessians(mode)
    spans = list(zip(model.buckets.firsts, model.buckets.stops, strict=True))

    def respond(covariance: Array) -> Array:
        assert hessians is not None
        total = np.zeros_like(covariance)
        for weight, (first, stop) in zip(weights, spans, strict=True):
            own = hessians[first:stop]
            mean = own.mean(axis=0)
            moved = own @ covariance
            squares = np.einsum("nij,njk->ik", moved, own) / len(own)
            total += weight * (squares - mean @ covariance @ mean)
        return (total + total.T) / 2.0

    return replace(
        curvature,
        noise=np.einsum("b,bij->ij", weights, each),
        noise_response=None if hessians is None else respond,
        probabilities=strata.probabilities,
        strata=np.array(strata.counts),
    )


def stratified_moments(model: Model, counts: Array, place: Array) -> tuple[Array, Array]:
    """The mean of the gradients, and the second moment that they would have if the noise of these
    minibatches were that of examples drawn alike.
    """
    assert isinstance(model, MixedModel)
    derivatives = GroupDerivatives(model)
    strata = Strata(model.buckets, tuple(int(count) for count in counts))
    noise = np.einsum("b,bij->ij", strata.weights, _within(model, derivatives, place))
    mean = derivatives.gradient_moments(place)[0]
    return mean, noise + np.outer(mean, mean)


def _within(model: MixedModel, derivatives: GroupDerivatives, place: Array) -> Array:
    """C_b of each bucket, (buckets, D, D)."""
    gradients = np.concatenate(list(derivatives.example_gradients(place)))
    found = []
    for first, stop in zip(model.buckets.firsts, model.buckets.stops, strict=True):
        centred = gradients[first:stop] - gradients[first:stop].mean(axis=0)
        found.append(centred.T @ centred / (stop - first))
    return np.array(found)
