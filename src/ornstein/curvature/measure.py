"""Find the mode, and measure A, C and K[·] there in chunked passes over the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ornstein.checks import FULL_LIMIT
from ornstein.compute.one_thread import one_thread
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.derivatives import Derivatives, derivatives_of
from ornstein.curvature.leverage import by_leverage
from ornstein.curvature.mode import find_mode
from ornstein.curvature.strata import by_strata
from ornstein.errors import InputError
from ornstein.model.coordinates import Worked
from ornstein.model.model import Model
from ornstein.rows.scheme import LEVERAGE, STRATIFIED, checked_scheme
from ornstein.types import Array


@one_thread()
def measure(
    model: Model,
    structure: str = "auto",
    *,
    hessian: str = "exact",
    mode: Array | None = None,
    derivatives: Derivatives | None = None,
    scheme: str = "replacement",
    seed: int = 0,
) -> Curvature:
    """Find the mode and measure A, C and K[·] there.

    Args:
        model: what is inferred.
        structure: "full"; "diagonal" (diagonal C, and A taken as C + Λ/N: the prediction is then
            marked approximate); "auto" is full up to 2000 parameters.
        hessian: "exact", or "fisher" to put the mean outer product of gradients for the data part
            (always positive).
        mode: a flat vector to take as the mode instead of searching for it.
        derivatives: what answers for the full data; None asks the model itself.
        scheme: how minibatches will be drawn. With "leverage", rows that say more about the
            parameters are drawn more often, and C and K[·] are those of such minibatches. With
            "stratified", for mixed models, minibatches have fixed numbers of groups of each size.
        seed: of the places where the search begins again, where `init` leads to no mode.

    A ModeError tells by its `kind` why there is no mode: "no-maximum", "kink" or "not finite".

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> cur = measure(glm(X, X @ [1.0, -1.0], noise_scale=1.0, intercept=False))
    >>> np.round(cur.mode, 2)
    array([ 1., -1.])
    """
    if structure not in ("auto", "full", "diagonal"):
        raise InputError(f"structure must be 'auto', 'full' or 'diagonal', not {structure!r}")
    if hessian not in ("exact", "fisher"):
        raise InputError(f"hessian must be 'exact' or 'fisher', not {hessian!r}")
    if not isinstance(model, Model):
        raise InputError(
            f"model must be a Model, for instance orn.glm(X, y); got a {type(model).__name__}"
        )
    if mode is not None and np.shape(mode) != (model.dim,):
        raise InputError(
            f"mode must be a vector of {model.dim} parameters; it has shape {np.shape(mode)}"
        )
    drawn = checked_scheme(scheme)
    worked = model.worked if derivatives is None else None
    if worked is not None:
        return _worked_out(model, worked, structure, hessian, mode, seed, drawn)
    derivatives = derivatives_of(model) if derivatives is None else derivatives
    full = structure == "full" or (structure == "auto" and model.dim <= FULL_LIMIT)
    curved = _remembering(derivatives.hessian) if full and hessian == "exact" else None
    found = (
        find_mode(model, derivatives, curved, seed)
        if mode is None
        else np.asarray(mode, dtype=float)
    )
    model.require_mode(found)
    if full:
        curvature = _full(model, derivatives, found, curved)
    else:
        curvature = diagonal_curvature(model, found, derivatives=derivatives)
    if drawn == STRATIFIED:
        return by_strata(model, curvature)
    return by_leverage(model, curvature) if drawn == LEVERAGE else curvature


def _worked_out(
    model: Model,
    worked: Worked,
    structure: str,
    hessian: str,
    mode: Array | None,
    seed: int,
    scheme: str,
) -> Curvature:
    """What `measure` finds in the coordinates of a run, in those of the model."""
    coordinates = worked.coordinates
    known = None if mode is None else coordinates.working(np.asarray(mode, dtype=float))
    full = "auto" if structure == "diagonal" else structure
    found = Curvature.of_working(
        measure(worked.model, full, hessian=hessian, mode=known, seed=seed, scheme=scheme),
        coordinates,
    )
    if structure != "diagonal":
        return found
    diagonal = diagonal_curvature(model, found.mode)
    return by_leverage(model, diagonal) if scheme == LEVERAGE else diagonal


def _remembering(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The function, with its last value known: the search for the mode ends with the Hessian
    there.
    """
    known: tuple[Array, Array] | None = None

    def remembered(theta: Array) -> Array:
        nonlocal known
        if known is None or not np.array_equal(known[0], theta):
            known = theta.copy(), function(theta)
        return known[1]

    return remembered


def _full(
    model: Model, derivatives: Derivatives, mode: Array, hessian: Callable[[Array], Array] | None
) -> Curvature:
    """All of A and C; without a Hessian the Fisher matrix stands for its data part."""
    first, second = derivatives.gradient_moments(mode)
    prior = model.prior_hessian(mode)
    prior = np.diag(prior) if prior.ndim == 1 else prior
    data_part = second if hessian is None else hessian(mode)
    squared = None if hessian is None else derivatives.squared_hessian(mode)

    def respond(covariance: Array) -> Array:
        assert squared is not None
        return squared(covariance) - data_part @ covariance @ data_part

    return Curvature(
        mode,
        data_part + prior / model.n_data,
        second - np.outer(first, first),
        model.n_data,
        noise_response=None if squared is None else respond,
        prior_hessian=prior,
        names=model.names,
        approximate="the Hessian is the Fisher matrix of the gradients" if hessian is None else "",
    )


def diagonal_curvature(
    model: Model,
    mode: Array,
    products: Callable[[Array, Array], Array] | None = None,
    derivatives: Derivatives | None = None,
) -> Curvature:
    """The diagonal picture at a point taken as the mode: C exact on all rows, A taken as C + Λ/N.

    `products` (θ, v) ↦ the mean Hessian times v, where there is a cheaper way to them than the
    exact one.
    """
    derivatives = derivatives_of(model) if derivatives is None else derivatives
    first, second = derivatives.diagonal_moments(mode)
    noise = np.maximum(second - first**2, 0.0)
    prior = model.prior_hessian(mode)
    prior = prior if prior.ndim == 1 else np.diagonal(prior)
    product = products or derivatives.hessian_product
    return Curvature(
        mode,
        noise + prior / model.n_data,
        noise,
        model.n_data,
        prior_hessian=prior,
        names=model.names,
        approximate="only diagonals are known, and A is taken as C + Λ/N",
        hessian_product=lambda vector: product(mode, vector) + prior * vector / model.n_data,
    )
