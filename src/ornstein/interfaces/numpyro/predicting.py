"""Predictions of a NumPyro model and its groups for ArviZ, by `numpyro.infer.Predictive`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer import Predictive, log_likelihood

from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.interfaces.numpyro.arguments import as_jax, as_numpy, call_of, first_line
from ornstein.interfaces.numpyro.handled import EveryRow, Function, Site, Unobserved, alone
from ornstein.interfaces.numpyro.running import Evaluation
from ornstein.interfaces.numpyro.splitting import listed, same_values
from ornstein.interfaces.numpyro.whole import Whole
from ornstein.model import tables
from ornstein.model.parameters import Layout
from ornstein.posterior.own_function import OwnPredictive
from ornstein.posterior.predictive import Simulated
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True, eq=False)
class Predict(OwnPredictive):
    """What `Posterior.predict` calls: the law of the observed site for new rows.

    Inputs are a dict by the names of the model's arguments, or one array where there is one beside
    the response. None is the data of the fit.
    """

    whole: Whole
    evaluation: Evaluation | None

    def simulated(self, layout: Layout, draws: Array, inputs: PyTree, seed: int) -> Simulated:
        if len(self.whole.observed) != 1:
            names = listed(site["name"] for site in self.whole.observed)
            raise InputError(
                f"predict is for models with one observed site; this one has {names}: see"
                " to_arviz(groups=['posterior_predictive'])"
            )
        site = str(self.whole.observed[0]["name"])
        with double():
            function, call = self._called(inputs)
            law = _Law(
                Unobserved(function, (site,)), call, site, _latents(self.whole, layout, draws)
            )
            shape = law.shape()
        return Simulated((len(draws), *shape), law.expectation, law.outcome)

    def _called(self, inputs: PyTree) -> tuple[Function, inspect.BoundArguments]:
        """The model and its arguments for new rows."""
        if inputs is None:
            return EveryRow(self.whole.model_fn), call_of(self.whole.model_fn, self.whole.arguments)
        if self.evaluation is None:
            return self._replaced(inputs)
        rows, wanted = self.evaluation.rows, self.evaluation.rows.inputs
        given = _by_name(inputs, wanted)
        arrays = {
            name: np.asarray(tables.numeric(np.asarray(as_numpy(value)), name))
            for name, value in given.items()
        }
        counts = {len(array) if array.ndim else 0 for array in arrays.values()}
        if len(counts) != 1:
            raise InputError(f"predict needs arrays of equal length; got {sorted(counts)} rows")
        (count,) = counts
        filled = rows.blank(count)
        filled |= {name: jnp.asarray(value, filled[name].dtype) for name, value in arrays.items()}
        return self.evaluation.on_rows(filled, count)

    def _replaced(self, inputs: PyTree) -> tuple[Function, inspect.BoundArguments]:
        """All arguments of the fit, those replaced that are given; observed values are left out."""
        given = _by_name(inputs, tuple(inputs) if isinstance(inputs, Mapping) else ())
        known = self.whole.arguments
        if set(given) - set(known):
            raise InputError(
                f"predict needs a dict with some of the arguments {listed(known)}; got"
                f" {listed(given)}"
            )
        own = {name: as_jax(as_numpy(value), widen=True) for name, value in given.items()}
        arguments = {**self._without_response(), **own}
        return EveryRow(self.whole.model_fn), call_of(self.whole.model_fn, arguments)

    def _without_response(self) -> dict[str, PyTree]:
        """The arguments of the fit; observed values are left out where the model can do without."""
        parameters = inspect.signature(self.whole.model_fn).parameters
        values = [site["value"] for site in self.whole.observed]
        return {
            name: argument
            for name, argument in self.whole.arguments.items()
            if parameters[name].default is not None
            or not any(same_values(argument, value) for value in values)
        }


@dataclass(frozen=True, eq=False)
class _Law:
    """An observed site with its value taken away, at values of the latents (n, …)."""

    function: Function
    call: inspect.BoundArguments
    site: str
    latents: dict[str, Traced]

    def shape(self) -> tuple[int, ...]:
        """That of one outcome."""
        first = {name: values[0] for name, values in self.latents.items()}
        return tuple(np.shape(np.atleast_1d(_guarded(lambda: self._trace(first)["value"]))))

    def expectation(self) -> Array:
        with double():
            found = _guarded(
                lambda: jax.lax.map(lambda one: _mean(self._trace(one)["fn"]), self.latents)
            )
            return _in_rows(np.asarray(found, dtype=float))

    def outcome(self, seed: int) -> Array:
        with double(), alone():
            predictive = Predictive(self.function, self.latents, return_sites=[self.site])
            drawn = predictive(jax.random.key(seed), *self.call.args, **self.call.kwargs)
            return _in_rows(np.asarray(drawn[self.site]))

    def _trace(self, values: Mapping[str, Traced]) -> Site:
        with alone():
            function = handlers.seed(handlers.substitute(self.function, data=dict(values)), 0)
            sites = handlers.trace(function).get_trace(*self.call.args, **self.call.kwargs)
        return dict(sites[self.site])


def _in_rows(found: Array) -> Array:
    """(draws, rows, …), where one number is one row."""
    return found[:, None] if found.ndim == 1 else found


def groups(whole: Whole, layout: Layout, draws: Array, wanted: str, seed: int) -> dict[str, Array]:
    """The variables of one of ArviZ's groups by site name; draws are (chains, draws, D)."""
    if wanted == "observed_data":
        return {str(site["name"]): np.asarray(site["value"]) for site in _valued(whole)}
    lead = draws.shape[:-1]
    call = call_of(whole.model_fn, whole.arguments)
    with double():
        latents = _latents(whole, layout, draws.reshape(-1, draws.shape[-1]))
        function = EveryRow(whole.model_fn)
        if wanted == "log_likelihood":
            if whole.discrete:
                raise InputError(
                    "log_likelihood of a model with discrete latents is a sum over them, not of"
                    " single rows"
                )
            with alone():
                found = log_likelihood(function, latents, *call.args, **call.kwargs)
        else:
            names = tuple(str(site["name"]) for site in _valued(whole))
            with alone():
                predictive = Predictive(Unobserved(function, names), latents)
                found = predictive(jax.random.key(seed), *call.args, **call.kwargs)
    return {
        name: np.asarray(values).reshape(*lead, *np.shape(values)[1:])
        for name, values in found.items()
    }


def _valued(whole: Whole) -> list[Site]:
    """Observed sites that hold values; factors hold none."""
    return [site for site in whole.observed if not isinstance(site["fn"], dist.Unit)]


def _latents(whole: Whole, layout: Layout, draws: Array) -> dict[str, Traced]:
    """Constrained values of the continuous latents at draws (n, D)."""
    names = [str(site["name"]) for site in whole.latents]
    values = jax.lax.map(whole.constrained, layout.unflatten(jnp.asarray(draws)))
    return {name: values[name] for name in names}


def _by_name(inputs: PyTree, wanted: tuple[str, ...]) -> dict[str, PyTree]:
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    elif len(wanted) == 1:
        given = {wanted[0]: inputs}
    else:
        given = {}
    if set(given) != set(wanted) or not given:
        raise InputError(
            f"predict needs a dict of arrays with the keys {listed(wanted)}; got"
            f" {listed(sorted(given))}"
        )
    return given


def _guarded(make: Callable[[], Traced]) -> Traced:
    try:
        return make()
    # whatever a model stumbles over that meets other rows than its own
    except Exception as error:
        raise InputError(
            f"predict fails on these inputs: {first_line(error)}. A model with a value for each"
            " example cannot be run on other rows"
        ) from error


def _mean(law: dist.Distribution) -> Traced:
    """The mean of a law; of a categorical one its probabilities."""
    categorical = isinstance(law, dist.CategoricalProbs | dist.CategoricalLogits)
    return law.probs if categorical else law.mean
