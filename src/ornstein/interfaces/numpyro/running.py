"""A NumPyro model run on some of its rows, at given unconstrained values.

Rows are the leaves of the arguments, and the arrays taken from outside, whose leading axis is that
of the data; to run some of them these are replaced and the data plates are made that long, and
everything else stays as it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

from ornstein.interfaces.numpyro.arguments import KINDS, Fixed, as_jax, call_of
from ornstein.interfaces.numpyro.handled import Function, Site, Sites, SomeRows, alone
from ornstein.interfaces.numpyro.outside import Outside, with_rows
from ornstein.types import PyTree, Traced

if TYPE_CHECKING:
    import inspect


@dataclass(frozen=True)
class Rows:
    """The leaves that are rows.

    Attributes:
        names: of the leaves. shapes, kinds: of one row of each.
        gaps: leaves with NaN, whose rows hold 0 there and say so in another leaf.
        responses: leaves that are observed values.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    gaps: tuple[str, ...]
    responses: tuple[str, ...]

    def blank(self, count: int) -> dict[str, Traced]:
        """Ones for rows, where no value of theirs is asked for: a valid weight, count and label
        alike.
        """
        rows = {
            name: jnp.ones((count, *shape), KINDS[kind])
            for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True)
        }
        return rows | {gap(name): jnp.zeros(jnp.shape(rows[name]), bool) for name in self.gaps}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The leaves that are not observed values."""
        return tuple(name for name in self.names if name not in self.responses)


def gap(name: str) -> str:
    """The leaf that says where another is missing."""
    return f"{name} is missing"


@dataclass(frozen=True)
class Evaluation:
    """How the model is run on some rows.

    Attributes:
        model_fn, tree, leaves: what is called, with which arguments; a text is the name of rows.
        outside: arrays that the function takes from outside, and the names of their rows.
        plates, size: the data plates and their number of rows.
        observed: the sites of the likelihood. enumerated: the discrete latents, which are summed
            out.
        nesting: the deepest plate, beyond which dimensions are free for summing out.
    """

    model_fn: Function
    tree: jax.tree_util.PyTreeDef
    leaves: tuple[Fixed | str, ...]
    outside: tuple[tuple[Outside, str], ...]
    rows: Rows
    plates: tuple[str, ...]
    size: int
    observed: tuple[str, ...]
    enumerated: tuple[str, ...]
    nesting: int

    def sites(
        self, params: Mapping[str, Traced], rows: Mapping[str, Traced], count: int
    ) -> tuple[Sites, Traced]:
        """The model's sites at unconstrained `params`, and the log determinant of the constraining
        transforms; discrete latents are drawn.
        """
        with alone():
            function, call = self.on_rows(rows, count)
            function = handlers.seed(function, 0) if self.enumerated else function
            return run(function, call, params)

    def on_rows(
        self, rows: Mapping[str, Traced], count: int
    ) -> tuple[Function, inspect.BoundArguments]:
        """The model on some rows, and what to call it with."""
        filled = dict(rows)
        for name in self.rows.gaps:
            filled[name] = jnp.where(rows[gap(name)], jnp.nan, rows[name])
        leaves = [
            filled[leaf] if isinstance(leaf, str) else as_jax(leaf.value) for leaf in self.leaves
        ]
        arguments = jax.tree_util.tree_unflatten(self.tree, leaves)
        call = call_of(self.model_fn, arguments)
        function = with_rows(self.model_fn, {array: filled[name] for array, name in self.outside})
        return SomeRows(function, dict.fromkeys(self.plates, count), self.size), call


def run(
    function: Function, call: inspect.BoundArguments, params: Mapping[str, Traced]
) -> tuple[Sites, Traced]:
    """Sites and log determinant of the transforms at unconstrained `params`."""
    log_determinant = jnp.zeros(())

    def value_of(site: Site) -> Traced | None:
        nonlocal log_determinant
        if site["type"] != "sample" or site["name"] not in params:
            return None
        transform = biject_to(site["fn"].support)
        value = transform(params[site["name"]])
        log_determinant = log_determinant + jnp.sum(
            transform.log_abs_det_jacobian(params[site["name"]], value)
        )
        return value

    tracing = handlers.trace(handlers.substitute(function, substitute_fn=value_of))
    sites = dict(tracing.get_trace(*call.args, **call.kwargs))
    return sites, log_determinant


def log_density(site: Site) -> Traced:
    """Of a site's value, summed."""
    density = site["fn"].log_prob(site["value"])
    return jnp.sum(density if site["scale"] is None else site["scale"] * density)


@dataclass(frozen=True)
class LogPrior:
    """Log density of everything that is not in the rows, on the scale of the unconstrained
    values.
    """

    evaluation: Evaluation

    def __call__(self, params: PyTree) -> Traced:
        evaluation = self.evaluation
        sites, log_determinant = evaluation.sites(params, evaluation.rows.blank(1), 1)
        others = [
            site
            for site in sites.values()
            if site["type"] == "sample"
            and site["name"] not in (*evaluation.observed, *evaluation.enumerated)
        ]
        return sum((log_density(site) for site in others), log_determinant)


@dataclass(frozen=True)
class LogLikelihood:
    """Log density of the observed sites of one row."""

    evaluation: Evaluation

    def __call__(self, params: PyTree, example: PyTree) -> Traced:
        evaluation = self.evaluation
        row = jax.tree.map(lambda leaf: leaf[None], example)
        if evaluation.enumerated:
            return self._summed(params, row)
        sites, _ = evaluation.sites(params, row, 1)
        return sum((log_density(sites[name]) for name in evaluation.observed), jnp.zeros(()))

    def _summed(self, params: PyTree, row: Mapping[str, Traced]) -> Traced:
        """Discrete latents summed out: the joint density of one row less the prior's."""
        with alone():
            function, call = self.evaluation.on_rows(row, 1)
            joint = joint_density(function, call, params, self.evaluation.nesting)
        return joint - LogPrior(self.evaluation)(params)


def joint_density(
    function: Function,
    call: inspect.BoundArguments,
    params: Mapping[str, Traced],
    nesting: int,
) -> Traced:
    """Log density at unconstrained `params`, discrete latents summed out by NumPyro; to be called
    in `alone`.
    """
    from numpyro.contrib.funsor import config_enumerate, enum
    from numpyro.infer.util import potential_energy

    summed = enum(config_enumerate(function), -nesting - 1)
    return -potential_energy(summed, call.args, call.kwargs, dict(params), enum=True)


def constrained(evaluation: Evaluation, params: PyTree) -> dict[str, Traced]:
    """The values of latents and deterministic sites at one draw of the unconstrained values."""
    sites, _ = evaluation.sites(params, evaluation.rows.blank(1), 1)
    return {
        name: jnp.asarray(site["value"])
        for name, site in sites.items()
        if site["type"] in ("sample", "deterministic")
    }
