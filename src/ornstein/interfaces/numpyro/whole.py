"""A NumPyro model on all of its data, as NumPyro itself would sample it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import ModelInfo, initialize_model

from ornstein.compute.precision import double, width
from ornstein.errors import InputError
from ornstein.interfaces.numpyro.arguments import (
    as_given,
    call_of,
    first_line,
    in_jax,
    require_numbers,
)
from ornstein.interfaces.numpyro.handled import EveryRow, Function, Site, Sites, alone
from ornstein.interfaces.numpyro.running import run
from ornstein.model.closed_over import with_own_arrays
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True, eq=False)
class Whole:
    """The model with all its data in double precision, its sites of one run, and what NumPyro made
    of it.

    Attributes:
        model_fn, arguments: what is called. sites: of one run, latents drawn from the prior.
        potential, constrain: −log density of unconstrained values, and their constrained values
            with deterministic sites.
    """

    model_fn: Function
    arguments: dict[str, PyTree]
    init_strategy: Callable[..., object]
    sites: Sites

    @classmethod
    def of(
        cls, model_fn: Function, arguments: dict[str, PyTree], init_strategy: Callable[..., object]
    ) -> Whole:
        """Run the model once: with its arguments as they are, or, where it fails on them, as
        arrays of JAX.
        """
        own = with_own_arrays(model_fn)
        ways = (as_given, in_jax)
        for number, way in enumerate(ways):
            with double(), alone():
                values = way(arguments)
                call = call_of(model_fn, values)
                tracing = handlers.trace(handlers.seed(EveryRow(own), 0))
                try:
                    sites = dict(tracing.get_trace(*call.args, **call.kwargs))
                except Exception as error:
                    if number + 1 < len(ways):
                        continue
                    require_numbers("the model fails on its data", arguments)
                    where = "on its data"
                    if _runs(model_fn, arguments):
                        where = "in double precision (leave out dtypes such as int32)"
                    raise InputError(
                        f"the model fails {where}: {type(error).__name__}: {first_line(error)}"
                    ) from error
                return cls(own, values, init_strategy, sites)
        raise AssertionError

    @property
    def latents(self) -> list[Site]:
        """Continuous latents, by name."""
        found = [site for site in self.unobserved if not site["fn"].support.is_discrete]
        return sorted(found, key=lambda site: str(site["name"]))

    @property
    def discrete(self) -> list[Site]:
        """Discrete latents, to be summed out."""
        return [site for site in self.unobserved if site["fn"].support.is_discrete]

    @property
    def unobserved(self) -> list[Site]:
        return [
            site
            for site in self.sites.values()
            if site["type"] == "sample" and not site["is_observed"]
        ]

    @property
    def observed(self) -> list[Site]:
        return [
            site for site in self.sites.values() if site["type"] == "sample" and site["is_observed"]
        ]

    @property
    def nesting(self) -> int:
        """How deep plates lie in each other."""
        frames = [frame for site in self.sites.values() for frame in site["cond_indep_stack"]]
        return -min((frame.dim for frame in frames), default=0)

    @cached_property
    def prepared(self) -> ModelInfo:
        """NumPyro's own preparation, with a start."""
        return self._initialised(jax.random.key(0))

    @property
    def start(self) -> dict[str, Traced]:
        """A start with a finite density by NumPyro's strategy, by site."""
        return dict(self.prepared.param_info.z)

    def starts(self, count: int, seed: int) -> dict[str, Traced]:
        """Starts with a finite density by NumPyro's strategy, by site (count, …)."""
        with double():
            keys = jax.random.split(jax.random.key(seed), count)
            return dict(self._initialised(keys).param_info.z)

    def _initialised(self, key: Traced) -> ModelInfo:
        with double(), alone():
            call = call_of(self.model_fn, self.arguments)
            try:
                return initialize_model(
                    key,
                    EveryRow(self.model_fn),
                    init_strategy=self.init_strategy,
                    model_args=call.args,
                    model_kwargs=call.kwargs,
                )
            except Exception as error:
                if "valid initial parameters" not in str(error):
                    raise InputError(
                        f"NumPyro cannot prepare the model: {first_line(error)}"
                    ) from error
                require_numbers("the model's log density is not finite", self.arguments)
                raise InputError(
                    "the model's log density is not finite at any of 100 starting points: look at"
                    " the priors and the data"
                ) from error

    def log_density(self, params: Mapping[str, Traced]) -> Traced:
        """Of unconstrained values, to be called in double precision."""
        potential = self.prepared.potential_fn
        with alone():
            return -potential(dict(params))

    def __call__(self, params: Mapping[str, Traced]) -> tuple[float, bool]:
        """The same as a number, and whether the model kept double precision."""
        with double():
            found = self.log_density({name: jnp.asarray(value) for name, value in params.items()})
        return float(found), found.dtype == np.float64

    def at(self, params: Mapping[str, Traced]) -> Sites:
        """The sites at unconstrained values, discrete latents drawn."""
        with double(), alone():
            values = {name: jnp.asarray(value) for name, value in params.items()}
            function = handlers.seed(EveryRow(self.model_fn), 0)
            return run(function, call_of(self.model_fn, self.arguments), values)[0]

    def constrained(self, params: PyTree) -> dict[str, Traced]:
        """Constrained values and deterministic sites at one draw."""
        postprocess = self.prepared.postprocess_fn
        with alone():
            return dict(postprocess(params))


def _runs(model_fn: Function, arguments: dict[str, PyTree]) -> bool:
    """Whether the model runs in single precision, as NumPyro would do it unasked."""
    call = call_of(model_fn, arguments)
    try:
        with width("float32"), alone():
            handlers.trace(handlers.seed(model_fn, 0)).get_trace(*call.args, **call.kwargs)
    except Exception:
        return False
    return True


def flat_starts(whole: Whole, count: int, seed: int) -> Array:
    """Starts as vectors, (count, D)."""
    found = whole.starts(count, seed)
    parts = [np.asarray(found[name], float).reshape(count, -1) for name in sorted(found)]
    return np.concatenate(parts, axis=1)
