"""The sites and arguments of a NumPyro model sorted: latents, data plates, rows and what stays
fixed, or the reason why the model cannot be minibatched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.numpyro.running import KINDS, Evaluation, Fixed, Site, Sites, as_numpy
from ornstein.types import Array, PyTree, Traced


def classified(sites: Sites) -> tuple[list[Site], tuple[str, ...], int]:
    """Latent sites, the data plates and their size; or the reason why the model cannot be
    minibatched.
    """
    for site in sites.values():
        if site["type"] in ("param", "mutable", "control_flow"):
            raise InputError(
                f"the model holds a {site['type']} statement ({site['name']!r}): only sample,"
                " deterministic, factor and plate statements can be split into a prior and a"
                " likelihood of single rows"
            )
    samples = [site for site in sites.values() if site["type"] == "sample"]
    latents = sorted(
        (site for site in samples if not site["is_observed"]), key=lambda site: site["name"]
    )
    if not latents:
        raise InputError("the model has no latent site: there is nothing to infer")
    for site in latents:
        if site["fn"].support.is_discrete:
            raise InputError(
                f"the latent site {site['name']!r} is discrete: gradients do not reach it. Sum it"
                " out of the model"
            )
    observed = [site for site in samples if site["is_observed"]]
    plates, n_data = _data_plates(observed)
    for site in observed:
        _require_fitting(site)
    for site in latents:
        local = [frame.name for frame in site["cond_indep_stack"] if frame.name in plates]
        if local:
            raise InputError(
                f"the latent site {site['name']!r} lies inside the data plate {local[0]!r}, one"
                " value per example: a minibatch moves only the values of its own rows, so the"
                " noise of stochastic gradients does not sample the others. Integrate it out, as"
                " orn.glmm does with the effects of groups (an example is then a group), or use"
                " NUTS"
            )
    return latents, plates, n_data


def _data_plates(observed: list[Site]) -> tuple[tuple[str, ...], int]:
    """The plates along the leading axis of observed sites; of several sizes the largest."""
    if not observed:
        raise InputError(
            "the model has no observed site: hand over the data, as for NumPyro's MCMC.run"
        )
    leading = [
        frame
        for site in observed
        for frame in site["cond_indep_stack"]
        if -frame.dim == len(site["fn"].batch_shape)
    ]
    if not leading:
        raise InputError(
            f"no plate runs over the leading axis of the observed site {observed[0]['name']!r}: put"
            " it into `with numpyro.plate('data', N):` with the rows first"
        )
    n_data = max(frame.size for frame in leading)
    return tuple(sorted({frame.name for frame in leading if frame.size == n_data})), n_data


def _require_fitting(site: Site) -> None:
    """Refuse observed values of another number than their plates have rows; one value may stand for
    all.
    """
    event = len(site["fn"].event_shape)
    shape = np.shape(site["value"])
    values = shape[: len(shape) - event]
    for frame in site["cond_indep_stack"]:
        length = values[frame.dim] if -frame.dim <= len(values) else 1
        if length not in (1, frame.size):
            raise InputError(
                f"the observed site {site['name']!r} has {length} values along its plate"
                f" {frame.name!r} of {frame.size} rows"
            )


def split_arguments(
    model_fn: Callable[..., object],
    arguments: dict[str, PyTree],
    sites: Sites,
    plates: tuple[str, ...],
    n_data: int,
) -> tuple[Evaluation, dict[str, Traced]]:
    """Which leaves of the arguments are rows, and the rows."""
    paths, tree = jax.tree_util.tree_flatten_with_path(arguments)
    leaves: list[Fixed | str] = []
    rows: dict[str, Traced] = {}
    for path, leaf in paths:
        value = as_numpy(leaf)
        if isinstance(value, np.ndarray) and value.ndim > 0 and value.shape[0] == n_data:
            name = ".".join(
                str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
                for key in path
            )
            rows[name] = value
            leaves.append(name)
        else:
            leaves.append(Fixed(value))
    if not rows:
        raise InputError(
            f"no argument of the model has a leading axis of {n_data}, the size of the plate"
            f" {plates[0]!r}: hand the data over as arguments, so that rows can be taken from them"
        )
    for name, value in rows.items():
        if value.dtype.kind not in KINDS:
            raise InputError(f"the argument {name!r} must be numeric, not of dtype {value.dtype}")
    observed = [
        site
        for site in sites.values()
        if site["type"] == "sample"
        and site["is_observed"]
        and any(f.name in plates for f in site["cond_indep_stack"])
    ]
    responses = [
        name
        for name, value in rows.items()
        if any(same_values(value, site["value"]) for site in observed)
    ]
    evaluation = Evaluation(
        model_fn,
        tree,
        tuple(leaves),
        tuple(rows),
        tuple(value.shape[1:] for value in rows.values()),
        tuple(value.dtype.kind for value in rows.values()),
        tuple(responses),
        plates,
        tuple(site["name"] for site in observed),
    )
    return evaluation, rows


def unconstrained_shape(site: Site) -> tuple[int, ...]:
    """Shape of the unconstrained value of a latent site."""
    from numpyro.distributions.transforms import biject_to

    return tuple(biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"])))


def coordinate_names(latents: list[Site]) -> tuple[str, ...]:
    """'beta[0]', 'log sigma', 'unconstrained p[1]': the coordinates the sampler moves in."""
    from numpyro.distributions import transforms

    names = []
    for site in latents:
        transform = transforms.biject_to(site["fn"].support)
        while isinstance(transform, transforms.IndependentTransform):
            transform = transform.base_transform
        plain = isinstance(transform, transforms.IdentityTransform)
        prefix = (
            ""
            if plain
            else "log "
            if isinstance(transform, transforms.ExpTransform)
            else "unconstrained "
        )
        shape = unconstrained_shape(site)
        for index in np.ndindex(*shape):
            names.append(
                f"{prefix}{site['name']}" + (f"[{','.join(map(str, index))}]" if shape else "")
            )
    return tuple(names)


def same_values(left: Array | Traced, right: Array | Traced) -> bool:
    """Whether two arrays have the same shape and hold the same numbers."""
    return np.shape(left) == np.shape(right) and bool(np.all(np.asarray(left) == np.asarray(right)))


def listed(names: Iterable[str]) -> str:
    """Names in quotes, for a message."""
    return ", ".join(repr(name) for name in names) or "nothing"
