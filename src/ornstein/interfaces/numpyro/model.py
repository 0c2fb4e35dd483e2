"""Ordinary NumPyro models as Models: divided into rows where they can be, so that minibatches can
be drawn, and else run on all their data.

The parameters are NumPyro's unconstrained values: with z = T(u) the constrained value of a latent
site,

    log prior(u) = Σ log p(z) + log |∂T/∂u|,
    log likelihood of row n = the log densities of the observed sites, run on row n.

One row is run by slicing every array whose leading axis is that of the data, among the arguments
and outside the function, and by making the data plate one row long where there is one. Nothing in a
Python function promises that this is right (it may centre its data), so it is compared with
NumPyro's own full-data density at the start, near the mode and around it. Every row as a minibatch
of one is then enumerated, so that agreement also says that the minibatch estimate is unbiased.
Where they differ the model is run on all its data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from numpyro.infer import init_to_uniform

from ornstein.compute.compiled import compiled
from ornstein.compute.precision import double
from ornstein.curvature.autodiff import Autodiff
from ornstein.interfaces.numpyro.arguments import bound, first_line
from ornstein.interfaces.numpyro.predicting import Predict, groups
from ornstein.interfaces.numpyro.running import Evaluation, LogLikelihood, LogPrior, constrained
from ornstein.interfaces.numpyro.splitting import (
    IndivisibleError,
    coordinate_names,
    divided,
    evaluations,
    listed,
    require_sound,
    same_values,
)
from ornstein.interfaces.numpyro.undivided import WholeModel
from ornstein.interfaces.numpyro.whole import Whole, flat_starts
from ornstein.model.model import Model
from ornstein.posterior.own_function import OwnGroups
from ornstein.types import Array, PyTree, Traced

STARTS, ROUNDS = 3, 4  # of searches for other modes, and of draws of the prior for them
FARTHEST = 10.0  # that a search for a start may move the logarithm of a scale


def from_numpyro(
    model_fn: Callable[..., object],
    *args: PyTree,
    init_strategy: Callable[..., Any] = init_to_uniform,
    **kwargs: PyTree,
) -> Model:
    """A NumPyro model and its data as a Model.

    Where the observed values are a sum over rows, with a `numpyro.plate` or without, the rows are
    found (among the arguments, in closures, partial arguments, conditions and data frames), and
    every way of `orn.plan` is open. Other models (a latent for each example, time series, Gaussian
    processes) are run on all their data, by NUTS; `model.undivided` says why. Discrete latents are
    summed out, with the extra `enumeration`.

    `orn.sample` then delivers `post.params`, `post.summary()` and `post.to_arviz()` under the
    model's own site names on the constrained scale, with deterministic sites; `post.draws`, `mean`
    and `covariance` are of the unconstrained values, on which the sampler works.

    Args:
        model_fn: the model, with everything that wraps it (handlers, functools.partial).
        args, kwargs: what `numpyro.infer.MCMC.run` would be given.
        init_strategy: where searches and chains start, of numpyro.infer.initialization.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def regression(x, y):
    ...     slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    ...     sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    ...     numpyro.sample("y", dist.Normal(slope * x, sigma), obs=y)
    >>> x = np.random.default_rng(0).normal(size=500)
    >>> model = from_numpyro(regression, x, 2.0 * x + np.cos(x))
    >>> model.n_data, model.names
    (500, ('log sigma', 'slope'))
    """
    arguments = bound(model_fn, args, kwargs)
    whole = Whole.of(model_fn, arguments, init_strategy)
    require_sound(whole)
    with double():
        names = coordinate_names(whole.latents)
    try:
        return _in_rows(whole, model_fn, arguments, names)
    except IndivisibleError as error:
        reason = f"The model is not a sum over rows: {error}. NUTS takes all data at every step"
        return WholeModel(whole, names, reason)


def _in_rows(
    whole: Whole,
    model_fn: Callable[..., object],
    arguments: dict[str, PyTree],
    names: tuple[str, ...],
) -> NumPyroModel:
    """The model divided into rows, by the first way that gives its density."""
    division = divided(whole)
    refusal: IndivisibleError | None = None
    for evaluation, rows in evaluations(whole, division, model_fn, arguments):
        try:
            model = NumPyroModel(whole, evaluation, rows, names)
            model._settle()
            return model
        except IndivisibleError as error:
            refusal = error
    assert refusal is not None
    raise refusal


class NumPyroModel(Model, OwnGroups):
    """A model made by `from_numpyro`; `evaluation` says how one row is run."""

    whole: Whole
    evaluation: Evaluation
    delivered: tuple[str, ...]

    def __init__(
        self,
        whole: Whole,
        evaluation: Evaluation,
        rows: Mapping[str, Array],
        names: tuple[str, ...],
    ) -> None:
        start = whole.start
        vars(self).update(whole=whole, evaluation=evaluation, delivered=tuple(sorted(start)))
        predict = Predict(whole, evaluation)
        try:
            super().__init__(
                LogLikelihood(evaluation), rows, LogPrior(evaluation), start, predict, names=names
            )
        # whatever a model that needs all its data stumbles over
        except Exception as error:
            raise IndivisibleError(
                f"it cannot be run on one row of {listed(evaluation.rows.names)}:"
                f" {first_line(error)}"
            ) from error

    @property
    def network_by_nuts(self) -> bool:
        """As NumPyro itself would sample it."""
        return True

    def elsewhere(self, generator: np.random.Generator) -> Array:
        """NumPyro's initial values, and draws of the prior where it can be drawn from."""
        own = flat_starts(self.whole, STARTS, int(generator.integers(2**31)))
        try:
            prior = [self._prior_draw(int(generator.integers(2**31))) for _ in range(STARTS)]
        except NotImplementedError:  # an improper prior
            return own
        drawn = np.array(prior)
        return np.concatenate([own, drawn[np.all(np.isfinite(drawn), axis=1)]])

    def _prior_draw(self, seed: int) -> Array:
        """Each site is drawn given the others, from random numbers of its own, again and again:
        after as many rounds as sites depend on each other that is a draw of all together.
        """
        from numpyro.distributions.transforms import biject_to

        with double():
            params = self.layout.unflatten(jnp.asarray(self.init))
            keys = dict(
                zip(params, jax.random.split(jax.random.key(seed), len(params)), strict=True)
            )
            for _ in range(ROUNDS):
                sites, _ = self.evaluation.sites(params, self.evaluation.rows.blank(1), 1)
                laws = {name: sites[name]["fn"] for name in params}
                params = {
                    name: biject_to(law.support).inv(law.sample(keys[name]))
                    for name, law in laws.items()
                }
            return np.asarray(self.layout.flatten(params), dtype=float)

    def constrained(self, draws: Array) -> dict[str, Array] | None:
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

    def starts(self, count: int, seed: int) -> Array | None:
        """Where chains start that know no mode, as NumPyro's would: (count, D)."""
        return flat_starts(self.whole, count, seed)

    def arviz_group(self, name: str, draws: Array, seed: int) -> dict[str, Array]:
        return groups(self.whole, self.layout, draws, name, seed)

    def _settle(self) -> None:
        """Compare the rows with the density of all data, find a start near the mode, and compare
        again there and around it.
        """
        whole, generator = self.whole, np.random.default_rng(0)
        derivatives = Autodiff(self)
        _require_same(self, derivatives, whole, self.init, "the start")

        def value_and_gradient(theta: Array) -> tuple[float, Array]:
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

    def _escapes(self, moved: Array) -> bool:
        """Whether a search has moved a transformed value, such as the log of a scale, so far that
        it may be on its way to no maximum: nowhere to start from.
        """
        transformed = [not name.startswith(self.layout.paths) for name in self.names]
        return bool(np.any(np.abs(moved[transformed]) > FARTHEST))


def _require_same(
    model: NumPyroModel, derivatives: Autodiff, whole: Whole, theta: Array, where: str
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
        raise IndivisibleError(
            f"at {where} its log density over all data is {expected:.6g}, the sum over single rows"
            f" of {listed(model.evaluation.rows.names)} and the prior is {found:.6g}"
        )


def _independent_of_data(model: NumPyroModel, whole: Whole) -> tuple[str, ...]:
    """The latent sites, and the deterministic ones that come out the same without the data."""
    params = model.layout.unflatten(model.init)
    sites, evaluation = whole.at(params), model.evaluation
    with double():
        alone, _ = evaluation.sites(params, evaluation.rows.blank(1), 1)
    same = [
        name
        for name, site in sites.items()
        if site["type"] == "deterministic" and same_values(site["value"], alone[name]["value"])
    ]
    return (*sorted(params), *same)


@compiled
def _constrained(evaluation: Evaluation, params: PyTree) -> dict[str, Traced]:
    return jax.vmap(lambda values: constrained(evaluation, values))(params)
