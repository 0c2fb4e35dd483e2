"""Ordinary NumPyro models: the likelihood over the data plate and the prior taken apart, so that
minibatches can be drawn.

The parameters are NumPyro's unconstrained values: with z = T(u) the constrained value of a latent
site,

    log prior(u) = Σ log p(z) + log |∂T/∂u|,
    log likelihood of row n = the log densities inside the plate, run on row n.

One row is run by slicing every argument whose leading axis is the plate's and by making the plate
one row long. Nothing in a Python function promises that this is right (it may centre its data, or
close over them), so it is held against NumPyro's own full-data density at the start, near the mode
and around it, and refused where they differ. Every row as a minibatch of one is then enumerated, so
that agreement also says that the minibatch estimate is unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import Autodiff
from ornstein.errors import InputError
from ornstein.interfaces.numpyro.running import Evaluation, Site, WholeDensity, bound, whole_trace
from ornstein.interfaces.numpyro.splitting import (
    classified,
    coordinate_names,
    listed,
    same_values,
    split_arguments,
    unconstrained_shape,
)
from ornstein.model.model import Model
from ornstein.types import PyTree, Traced

if TYPE_CHECKING:
    from numpyro.distributions import Distribution

BESIDE = 0.1  # zero, where the search for a start begins
FARTHEST = 10.0  # that it may move the logarithm of a scale
_ROW_BY_ROW = (
    "Everything the data plate depends on must come row by row through arguments with that leading"
    " axis: standardise and count before the model, hand sizes over as numbers, and do not take"
    " data from outside the function"
)


def from_numpyro(model_fn: Callable[..., object], *args: PyTree, **kwargs: PyTree) -> NumPyroModel:
    """A NumPyro model and its data as a Model, to be minibatched.

    `orn.sample` then delivers `post.params`, `post.summary()` and `post.to_arviz()` under the
    model's own site names on the constrained scale, with deterministic sites that do not depend on
    the data; `post.draws`, `mean` and `covariance` are of the unconstrained values, on which the
    sampler works. `post.predict` gives the mean of the observed site for new rows: one array where
    the model has one argument besides the response, else a dict of arrays by argument name.

    The observed sites must lie in a `numpyro.plate` over the rows, and the data must be arguments
    with a leading axis of the plate's size. Latents of groups that rows point to are welcome; a
    latent inside the data plate is refused, because a minibatch sees only some of its values, and
    so are discrete latents.

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
    arguments = bound(model_fn, args, kwargs)
    sites = whole_trace(model_fn, arguments)
    latents, plates, n_data = classified(sites)
    evaluation, rows = split_arguments(model_fn, arguments, sites, plates, n_data)
    with double():
        start = {site["name"]: np.zeros(unconstrained_shape(site)) for site in latents}
        names = coordinate_names(latents)
    model = NumPyroModel(evaluation, rows, start, names)
    whole = WholeDensity(model_fn, arguments)
    model._settle(whole)
    return model


class NumPyroModel(Model):
    """A model made by `from_numpyro`; `evaluation` says how one row is run."""

    evaluation: Evaluation
    delivered: tuple[str, ...]

    def __init__(
        self,
        evaluation: Evaluation,
        rows: dict[str, Traced],
        start: dict[str, Traced],
        names: tuple[str, ...],
    ) -> None:
        vars(self).update(evaluation=evaluation)
        vars(self).update(delivered=tuple(sorted(start)))
        predict = Predict(evaluation) if evaluation.predictable else None
        try:
            super().__init__(
                LogLikelihood(evaluation), rows, LogPrior(evaluation), start, predict, names=names
            )
        except InputError as error:
            raise InputError(
                f"the model cannot be run on one row of {listed(evaluation.rows)}: {error}."
                f" {_ROW_BY_ROW}"
            ) from error

    @property
    def network_way(self) -> str:
        """NUTS, as NumPyro itself would take."""
        return "nuts"

    def constrained(self, draws: np.ndarray) -> dict[str, np.ndarray] | None:
        """Draws (..., D) of the unconstrained values as constrained values by site name,
        deterministic sites included.
        """
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
        """Find a start near the mode, hold the split against the whole density there and around
        it.
        """
        generator = np.random.default_rng(0)
        derivatives = Autodiff(self)
        vars(self).update(init=_finite_start(self, whole, generator))
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
        if np.all(np.isfinite(found.x)) and not self._escapes(found.x - self.init):
            vars(self).update(init=found.x)
        _require_same(self, derivatives, whole, self.init, "the mode")
        for _ in range(2):
            _require_same(
                self,
                derivatives,
                whole,
                self.init + 0.3 * generator.normal(size=self.dim),
                "a point near the mode",
            )
        vars(self).update(delivered=_independent_of_data(self, whole))

    def _escapes(self, moved: np.ndarray) -> bool:
        """Whether a search has moved a transformed value, such as the log of a scale, so far that
        it may be on its way to no maximum: nowhere to start from.
        """
        transformed = [not name.startswith(self.layout.paths) for name in self.names]
        return bool(np.any(np.abs(moved[transformed]) > FARTHEST))


@dataclass(frozen=True)
class LogLikelihood:
    """Log density of the observed sites of one row."""

    evaluation: Evaluation

    def __call__(self, params: PyTree, example: PyTree) -> Traced:
        sites, _ = self.evaluation.sites(params, jax.tree.map(lambda leaf: leaf[None], example), 1)
        total = jnp.zeros(())
        for name in self.evaluation.observed:
            site = sites[name]
            shrunk = [
                sites[frame.name]["args"][0]
                for frame in site["cond_indep_stack"]
                if frame.name in self.evaluation.plates
            ]
            # NumPyro scales the one row up by the size of its plate
            total = total + _log_density(site) / shrunk[0]
        return total


@dataclass(frozen=True)
class LogPrior:
    """Log density of everything that is not in the data plate, on the scale of the unconstrained
    values.
    """

    evaluation: Evaluation

    def __call__(self, params: PyTree) -> Traced:
        sites, log_determinant = self.evaluation.sites(params, self.evaluation.blank_rows(1), 1)
        others = [
            site
            for site in sites.values()
            if site["type"] == "sample" and site["name"] not in self.evaluation.observed
        ]
        return sum((_log_density(site) for site in others), log_determinant)


@dataclass(frozen=True)
class Predict:
    """Mean of the observed site (probabilities of a categorical one) for new rows; what
    `Posterior.predict` calls.
    """

    evaluation: Evaluation

    def __call__(self, params: PyTree, inputs: PyTree) -> Traced:
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
                f"predict needs a dict of arrays with the keys {listed(wanted)}; got"
                f" {listed(sorted(given))}"
            )
        count = next(iter(given.values())).shape[0]
        rows = self.evaluation.blank_rows(count)
        rows |= {name: jnp.asarray(value, rows[name].dtype) for name, value in given.items()}
        sites, _ = self.evaluation.sites(params, rows, count)
        return _mean(sites[self.evaluation.observed[0]]["fn"])


def _finite_start(
    model: NumPyroModel, whole: WholeDensity, generator: np.random.Generator
) -> np.ndarray:
    """A point beside zero, or as NumPyro does one within ±2, where the density is finite.

    At zero itself gradients may be wrong: that of NumPyro's Bernoulli(logits=0) is off by a half.
    """
    theta = model.init + generator.uniform(-BESIDE, BESIDE, model.dim)
    for _ in range(20):
        if np.isfinite(whole(model.layout.unflatten(theta))[0]):
            return theta
        theta = generator.uniform(-2.0, 2.0, model.dim)
    raise InputError(
        "the model's log density is not finite at any of 20 starting points: look at the priors and"
        " the data"
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
    tolerance += (1e-12 if precise else 1e-5) * abs(prior)
    if not abs(found - expected) <= tolerance:
        raise InputError(
            f"the model does not split into rows: at {where} its log density over all data is"
            f" {expected:.6g}, the sum over single rows of {listed(model.evaluation.rows)} and the"
            f" prior is {found:.6g}. {_ROW_BY_ROW}"
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
        if site["type"] == "deterministic" and same_values(site["value"], alone[name]["value"])
    ]
    return (*sorted(params), *same)


@compiled
def _constrained(evaluation: Evaluation, params: PyTree) -> dict[str, Traced]:
    def one(values: PyTree) -> dict[str, Traced]:
        sites, _ = evaluation.sites(values, evaluation.blank_rows(1), 1)
        kept = ("sample", "deterministic")
        return {
            name: jnp.asarray(site["value"]) for name, site in sites.items() if site["type"] in kept
        }

    return jax.vmap(one)(params)


def _log_density(site: Site) -> Traced:
    density = site["fn"].log_prob(site["value"])
    return jnp.sum(density if site["scale"] is None else site["scale"] * density)


def _mean(law: Distribution) -> Traced:
    import numpyro.distributions as dist

    return (
        law.probs if isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits) else law.mean
    )
