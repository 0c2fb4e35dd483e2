"""Ordinary NumPyro models: the likelihood over the data plate and the prior taken apart, so that minibatches can be drawn.

The parameters are NumPyro's unconstrained values: with z = T(u) the constrained value of a latent site,

    log prior(u) = Σ log p(z) + log |∂T/∂u|,     log likelihood of row n = the log densities inside the plate, run on row n.

One row is run by slicing every argument whose leading axis is the plate's and by making the plate one row long. Nothing in a
Python function promises that this is right (it may centre its data, or close over them), so it is held against NumPyro's own
full-data density at the start, near the mode and around it, and refused where they differ. Every row as a minibatch of one is
then enumerated, so that agreement also says that the minibatch estimate is unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ornstein.baselines import numpyro_library
from ornstein.compiled import compiled
from ornstein.derivatives import Autodiff
from ornstein.errors import InputError
from ornstein.interfaces.numpyro_running import (
    KINDS,
    Evaluation,
    Fixed,
    Sites,
    WholeDensity,
    as_numpy,
    bound,
    whole_trace,
)
from ornstein.model import Model
from ornstein.precision import double

Array = Any

_ROW_BY_ROW = (
    "Everything the data plate depends on must come row by row through arguments with that leading axis: standardise and count "
    "before the model, hand sizes over as numbers, and do not take data from outside the function"
)


def from_numpyro(model_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> NumPyroModel:
    """A NumPyro model and its data as a Model, to be minibatched.

    `orn.sample` then delivers `post.params`, `post.summary()` and `post.to_arviz()` under the model's own site names on the
    constrained scale, with deterministic sites that do not depend on the data; `post.draws`, `mean` and `covariance` are of the
    unconstrained values, on which the sampler works. `post.predict` gives the mean of the observed site for new rows: one array
    where the model has one argument besides the response, else a dict of arrays by argument name.

    The observed sites must lie in a `numpyro.plate` over the rows, and the data must be arguments with a leading axis of the
    plate's size. Latents of groups that rows point to are welcome; a latent inside the data plate is refused, because a
    minibatch sees only some of its values, and so are discrete latents.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def regression(x, y):
    ...     slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    ...     sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    ...     with numpyro.plate("data", len(y)):
    ...         numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)
    >>> x = np.random.default_rng(0).normal(size=500)
    >>> model = from_numpyro(regression, x, 2.0 * x + np.cos(x))
    >>> model.n_data, model.names
    (500, ('log sigma', 'slope'))
    """
    numpyro_library()
    arguments = bound(model_fn, args, kwargs)
    sites = whole_trace(model_fn, arguments)
    latents, plates, n_data = _classified(sites)
    evaluation, rows = _split_arguments(model_fn, arguments, sites, plates, n_data)
    with double():
        start = {site["name"]: np.zeros(_unconstrained_shape(site)) for site in latents}
        names = _coordinate_names(latents)
    model = NumPyroModel(evaluation, rows, start, names)
    whole = WholeDensity(model_fn, arguments)
    model._settle(whole)
    return model


class NumPyroModel(Model):
    """A model made by `from_numpyro`; `evaluation` says how one row is run."""

    def __init__(
        self,
        evaluation: Evaluation,
        rows: dict[str, Array],
        start: dict[str, Array],
        names: tuple[str, ...],
    ) -> None:
        self.evaluation = evaluation
        self.delivered: tuple[str, ...] = tuple(sorted(start))
        predict = Predict(evaluation) if evaluation.predictable else None
        try:
            super().__init__(
                LogLikelihood(evaluation), rows, LogPrior(evaluation), start, predict, names=names
            )
        except InputError as error:
            raise InputError(
                f"the model cannot be run on one row of {_listed(evaluation.rows)}: {error}. {_ROW_BY_ROW}"
            ) from error

    def constrained(self, draws: np.ndarray) -> dict[str, np.ndarray] | None:
        """Draws (..., D) of the unconstrained values as constrained values by site name, deterministic sites included."""
        if draws.size == 0:
            return None
        flat = np.asarray(draws, dtype=float).reshape(-1, self.dim)
        with double():
            values = _constrained(self.evaluation, self.layout.unflatten(jnp.asarray(flat)))
        lead = draws.shape[:-1]
        return {
            name: np.asarray(values[name]).reshape(lead + values[name].shape[1:])
            for name in self.delivered
        }

    def _settle(self, whole: WholeDensity) -> None:
        """Find a start near the mode, hold the split against the whole density there and around it."""
        generator = np.random.default_rng(0)
        derivatives = Autodiff(self)
        self.init = _finite_start(self, whole, generator)
        _require_same(self, derivatives, whole, self.init, "the start")

        def value_and_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = derivatives.value_and_gradient(theta)
            prior_value, prior_slope = self.scaled_prior(theta)
            return value + prior_value, slope + prior_slope

        options = {"maxiter": 200, "ftol": 1e-10}
        minimize: Any = scipy.optimize.minimize
        found = minimize(
            value_and_gradient, self.init, jac=True, method="L-BFGS-B", options=options
        )
        self.init = found.x if np.all(np.isfinite(found.x)) else self.init
        _require_same(self, derivatives, whole, self.init, "the mode")
        for _ in range(2):
            _require_same(
                self,
                derivatives,
                whole,
                self.init + 0.3 * generator.normal(size=self.dim),
                "a point near the mode",
            )
        self.delivered = _independent_of_data(self, whole)


@dataclass(frozen=True)
class LogLikelihood:
    """Log density of the observed sites of one row."""

    evaluation: Evaluation

    def __call__(self, params: Any, example: Any) -> Array:
        sites, _ = self.evaluation.sites(params, jax.tree.map(lambda leaf: leaf[None], example), 1)
        total = jnp.zeros(())
        for name in self.evaluation.observed:
            site = sites[name]
            shrunk = [
                sites[frame.name]["args"][0]
                for frame in site["cond_indep_stack"]
                if frame.name in self.evaluation.plates
            ]
            total = (
                total + _log_density(site) / shrunk[0]
            )  # NumPyro scales the one row up by the size of its plate
        return total


@dataclass(frozen=True)
class LogPrior:
    """Log density of everything that is not in the data plate, on the scale of the unconstrained values."""

    evaluation: Evaluation

    def __call__(self, params: Any) -> Array:
        sites, log_determinant = self.evaluation.sites(params, self.evaluation.blank_rows(1), 1)
        others = [
            site
            for site in sites.values()
            if site["type"] == "sample" and site["name"] not in self.evaluation.observed
        ]
        return sum((_log_density(site) for site in others), log_determinant)


@dataclass(frozen=True)
class Predict:
    """Mean of the observed site (probabilities of a categorical one) for new rows; what `Posterior.predict` calls."""

    evaluation: Evaluation

    def __call__(self, params: Any, inputs: Any) -> Array:
        wanted = self.evaluation.inputs
        given = (
            dict(inputs)
            if isinstance(inputs, Mapping)
            else {wanted[0]: inputs}
            if len(wanted) == 1
            else {}
        )
        if set(given) != set(wanted):
            raise InputError(
                f"predict needs a dict of arrays with the keys {_listed(wanted)}; got {_listed(sorted(given))}"
            )
        count = next(iter(given.values())).shape[0]
        rows = self.evaluation.blank_rows(count)
        rows |= {name: jnp.asarray(value, rows[name].dtype) for name, value in given.items()}
        sites, _ = self.evaluation.sites(params, rows, count)
        return _mean(sites[self.evaluation.observed[0]]["fn"])


def _classified(sites: Sites) -> tuple[list[Any], tuple[str, ...], int]:
    """Latent sites, the data plates and their size; or the reason why the model cannot be minibatched."""
    for site in sites.values():
        if site["type"] in ("param", "mutable", "control_flow"):
            raise InputError(
                f"the model holds a {site['type']} statement ({site['name']!r}): only sample, deterministic, factor and plate "
                "statements can be split into a prior and a likelihood of single rows"
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
                f"the latent site {site['name']!r} is discrete: gradients do not reach it. Sum it out of the model"
            )
    plates, n_data = _data_plates([site for site in samples if site["is_observed"]])
    for site in latents:
        local = [frame.name for frame in site["cond_indep_stack"] if frame.name in plates]
        if local:
            raise InputError(
                f"the latent site {site['name']!r} lies inside the data plate {local[0]!r}, one value per example: a minibatch "
                "moves only the values of its own rows, so the noise of stochastic gradients does not sample the others. "
                "Integrate it out, or use NUTS"
            )
    return latents, plates, n_data


def _data_plates(observed: list[Any]) -> tuple[tuple[str, ...], int]:
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
            f"no plate runs over the leading axis of the observed site {observed[0]['name']!r}: put it into "
            "`with numpyro.plate('data', N):` with the rows first"
        )
    n_data = max(frame.size for frame in leading)
    return tuple(sorted({frame.name for frame in leading if frame.size == n_data})), n_data


def _split_arguments(
    model_fn: Callable[..., Any],
    arguments: dict[str, Any],
    sites: Sites,
    plates: tuple[str, ...],
    n_data: int,
) -> tuple[Evaluation, dict[str, Array]]:
    """Which leaves of the arguments are rows, and the rows."""
    paths, tree = jax.tree_util.tree_flatten_with_path(arguments)
    leaves: list[Fixed | str] = []
    rows: dict[str, Array] = {}
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
            f"no argument of the model has a leading axis of {n_data}, the size of the plate {plates[0]!r}: hand the data over "
            "as arguments, so that rows can be taken from them"
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
        if any(_same_values(value, site["value"]) for site in observed)
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


def _finite_start(
    model: NumPyroModel, whole: WholeDensity, generator: np.random.Generator
) -> np.ndarray:
    """Zeros, or as NumPyro does a point within ±2, where the density is finite."""
    theta = model.init
    for _ in range(20):
        if np.isfinite(whole(model.layout.unflatten(theta))[0]):
            return theta
        theta = generator.uniform(-2.0, 2.0, model.dim)
    raise InputError(
        "the model's log density is not finite at any of 20 starting points: look at the priors and the data"
    )


def _require_same(
    model: NumPyroModel, derivatives: Autodiff, whole: WholeDensity, theta: np.ndarray, where: str
) -> None:
    """The log density over all data must be the sum over single rows plus the prior."""
    expected, precise = whole(model.layout.unflatten(theta))
    if not np.isfinite(expected):
        return
    prior = -model.n_data * model.scaled_prior(theta)[0]
    found = -model.n_data * derivatives.value_and_gradient(theta)[0] + prior
    tolerance = (1e-10 if precise else 1e-5) * (model.n_data + abs(expected - prior)) + 1e-8
    if not abs(found - expected) <= tolerance:
        raise InputError(
            f"the model does not split into rows: at {where} its log density over all data is {expected:.6g}, the sum over "
            f"single rows of {_listed(model.evaluation.rows)} and the prior is {found:.6g}. {_ROW_BY_ROW}"
        )


def _independent_of_data(model: NumPyroModel, whole: WholeDensity) -> tuple[str, ...]:
    """The latent sites, and the deterministic ones that come out the same without the data."""
    params = model.layout.unflatten(model.init)
    sites = whole.sites(params)
    with double():
        alone, _ = model.evaluation.sites(params, model.evaluation.blank_rows(1), 1)
    same = [
        name
        for name, site in sites.items()
        if site["type"] == "deterministic" and _same_values(site["value"], alone[name]["value"])
    ]
    return (*sorted(params), *same)


@compiled
def _constrained(evaluation: Evaluation, params: Any) -> dict[str, Array]:
    def one(values: Any) -> dict[str, Array]:
        sites, _ = evaluation.sites(values, evaluation.blank_rows(1), 1)
        kept = ("sample", "deterministic")
        return {
            name: jnp.asarray(site["value"]) for name, site in sites.items() if site["type"] in kept
        }

    return jax.vmap(one)(params)


def _log_density(site: Any) -> Array:
    density = site["fn"].log_prob(site["value"])
    return jnp.sum(density if site["scale"] is None else site["scale"] * density)


def _mean(law: Any) -> Array:
    import numpyro.distributions as dist

    return (
        law.probs if isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits) else law.mean
    )


def _unconstrained_shape(site: Any) -> tuple[int, ...]:
    from numpyro.distributions.transforms import biject_to

    return tuple(biject_to(site["fn"].support).inverse_shape(jnp.shape(site["value"])))


def _coordinate_names(latents: list[Any]) -> tuple[str, ...]:
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
        shape = _unconstrained_shape(site)
        for index in np.ndindex(*shape):
            names.append(
                f"{prefix}{site['name']}" + (f"[{','.join(map(str, index))}]" if shape else "")
            )
    return tuple(names)


def _same_values(left: Any, right: Any) -> bool:
    return np.shape(left) == np.shape(right) and bool(np.all(np.asarray(left) == np.asarray(right)))


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
