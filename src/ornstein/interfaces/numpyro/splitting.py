"""The sites and arguments of a NumPyro model sorted: latents, data plates, rows and what stays
fixed; or the reason why the model cannot be divided into rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import transforms

from ornstein.errors import InputError
from ornstein.interfaces.numpyro.arguments import KINDS, Fixed, as_numpy
from ornstein.interfaces.numpyro.frames import Frame
from ornstein.interfaces.numpyro.handled import Function, Site
from ornstein.interfaces.numpyro.outside import Outside, arrays_outside
from ornstein.interfaces.numpyro.running import Evaluation, Rows, gap
from ornstein.interfaces.numpyro.whole import Whole
from ornstein.model import tables
from ornstein.types import Array, PyTree, Traced


class IndivisibleError(InputError):
    """The model cannot be divided into rows; it can be run on all its data."""


def require_sound(whole: Whole) -> None:
    """Refuse what no way can take, with the reason."""
    samples = whole.unobserved
    for site in whole.sites.values():
        if site["type"] == "mutable" or (site["type"] == "param" and not _random(site, samples)):
            raise InputError(
                f"the model holds a {site['type']} statement ({site['name']!r}), whose value"
                " no sampler updates: give it a prior (numpyro.sample), or pass its value"
                " as a number"
            )
    if not samples:
        raise InputError("the model has no latent site: there is nothing to infer")
    if not whole.observed:
        raise InputError("the model has no observed site: pass the data, as for NumPyro's MCMC.run")
    for site in whole.discrete:
        _require_summable(site)
    if not whole.latents:
        raise InputError("all latents are discrete, and are summed out: there is nothing to infer")
    for site in whole.observed:
        _require_fitting(site)


def _random(param: Site, latents: list[Site]) -> bool:
    """Whether it holds the parameters of a network that are latents here (random_nnx_module)."""
    module, _, rest = str(param["name"]).partition("$")
    return rest == "params" and any(str(site["name"]).startswith(module) for site in latents)


def _require_summable(site: Site) -> None:
    if not site["fn"].has_enumerate_support:
        raise InputError(
            f"the latent site {site['name']!r} is discrete, and its {type(site['fn']).__name__} has"
            " infinitely many values to sum over: sum it out by hand, or choose a distribution"
            " with few values"
            " (Categorical, Bernoulli, Binomial)"
        )
    try:
        import funsor  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"the latent site {site['name']!r} is discrete: NumPyro sums it out with funsor, pip"
            " install 'ornstein[enumeration]'"
        ) from error


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


@dataclass(frozen=True)
class Division:
    """The sites that are rows, their plates and their number."""

    observed: tuple[str, ...]
    plates: tuple[str, ...]
    size: int


def divided(whole: Whole) -> Division:
    """The longest leading axis of observed sites, with a plate or without."""
    if any(site["type"] == "param" for site in whole.sites.values()):
        raise IndivisibleError(
            "its parameters are those of a network, whose posterior has many modes and ridges"
        )
    leading = {site["name"]: _leading(site) for site in whole.observed}
    size = max(leading.values())
    if size < 2:
        raise IndivisibleError("no observed site has a leading axis of rows")
    observed = tuple(name for name, length in leading.items() if length == size)
    sites = [whole.sites[name] for name in observed]
    plates = {
        frame.name
        for site in sites
        for frame in site["cond_indep_stack"]
        if frame.size == size and -frame.dim == len(_batch_shape(site))
    }
    for site in whole.latents:
        local = [frame.name for frame in site["cond_indep_stack"] if frame.name in plates]
        if local:
            raise IndivisibleError(
                f"the latent site {site['name']!r} lies inside the data plate {local[0]!r}, one"
                " value per example, of which a minibatch would move only its own. If it is an"
                " effect of groups, a mixed model integrates it out and draws whole groups:"
                " orn.glmm, or orn.regress('y ~ x + (1 | group)', table)"
            )
    return Division(observed, tuple(sorted(plates)), size)


def _leading(site: Site) -> int:
    shape = _batch_shape(site)
    return shape[0] if shape else 0


def _batch_shape(site: Site) -> tuple[int, ...]:
    """That of the log density of an observed site."""
    law, value = site["fn"], np.shape(site["value"])
    values = value[: len(value) - len(law.event_shape)]
    return tuple(jnp.broadcast_shapes(tuple(law.batch_shape), values))


def evaluations(
    whole: Whole, division: Division, model_fn: Function, arguments: dict[str, PyTree]
) -> Iterator[tuple[Evaluation, dict[str, Array]]]:
    """Ways to run the model on some rows: with frames by their columns, and as matrices."""
    if any(tables.is_frame(leaf) for leaf in jax.tree.leaves(arguments)):
        columns = jax.tree.map(lambda leaf: Frame.of(leaf) if _pandas(leaf) else leaf, arguments)
        yield _evaluation(whole, division, model_fn, jax.tree.map(as_numpy, columns))
    try:
        matrices = jax.tree.map(as_numpy, arguments)
    except InputError as error:
        raise IndivisibleError(str(error)) from error
    yield _evaluation(whole, division, model_fn, matrices)


def _pandas(leaf: object) -> bool:
    return tables.is_frame(leaf) and type(leaf).__module__.startswith("pandas")


def _evaluation(
    whole: Whole, division: Division, model_fn: Function, arguments: dict[str, PyTree]
) -> tuple[Evaluation, dict[str, Array]]:
    leaves: list[Fixed | str] = []
    rows: dict[str, Array] = {}
    paths, tree = jax.tree_util.tree_flatten_with_path(arguments)
    for path, value in paths:
        if _is_rows(value, division.size):
            name = ".".join(
                str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))
                for key in path
            )
            rows[name] = value
            leaves.append(name)
        else:
            leaves.append(Fixed(value))
    outside: list[tuple[Outside, str]] = []
    for number, found in enumerate(arrays_outside(model_fn, division.size)):
        outside.append((found, f"outside {number}"))
        rows[outside[-1][1]] = np.asarray(found.array)
    if not rows:
        raise IndivisibleError(
            f"no array with {division.size} rows is among its arguments, nor found outside"
        )
    shapes = tuple(value.shape[1:] for value in rows.values())
    kinds = tuple(value.dtype.kind for value in rows.values())
    gaps = tuple(
        name for name, value in rows.items() if value.dtype.kind == "f" and np.isnan(value).any()
    )
    observed = [whole.sites[name]["value"] for name in division.observed]
    responses = tuple(
        name for name, value in rows.items() if any(same_values(value, other) for other in observed)
    )
    described = Rows(tuple(rows), shapes, kinds, gaps, responses)
    for name in gaps:
        rows[gap(name)] = np.isnan(rows[name])
        rows[name] = np.nan_to_num(rows[name], posinf=np.inf, neginf=-np.inf)
    evaluation = Evaluation(
        model_fn,
        tree,
        tuple(leaves),
        tuple(outside),
        described,
        division.plates,
        division.size,
        division.observed,
        tuple(str(site["name"]) for site in whole.discrete),
        whole.nesting,
    )
    return evaluation, rows


def _is_rows(value: object, size: int) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.ndim > 0
        and value.shape[0] == size
        and value.dtype.kind in KINDS
    )


def coordinate_names(latents: list[Site]) -> tuple[str, ...]:
    """'beta[0]', 'log sigma', 'unconstrained p[1]': the coordinates the sampler moves in."""
    names = []
    for site in latents:
        transform = transforms.biject_to(site["fn"].support)
        shape = tuple(transform.inverse_shape(jnp.shape(site["value"])))
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
        for index in np.ndindex(*shape):
            names.append(
                f"{prefix}{site['name']}" + (f"[{','.join(map(str, index))}]" if shape else "")
            )
    return tuple(names)


def same_values(left: Array | Traced, right: Array | Traced) -> bool:
    """Whether two arrays have the same shape and hold the same numbers."""
    one, other = np.asarray(left), np.asarray(right)
    if one.shape != other.shape:
        return False
    nan = one.dtype.kind == "f" and other.dtype.kind == "f"
    return bool(np.array_equal(one, other, equal_nan=nan))


def listed(names: Iterable[str]) -> str:
    """Names in quotes, for a message."""
    return ", ".join(repr(name) for name in names) or "nothing"
