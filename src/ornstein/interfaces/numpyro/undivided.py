"""NumPyro models as Models with one example, all of their data: those that are no sum over rows."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.compute.precision import double
from ornstein.errors import InputError
from ornstein.interfaces.numpyro.predicting import Predict, groups
from ornstein.interfaces.numpyro.whole import Whole, flat_starts
from ornstein.model.model import Model
from ornstein.posterior.own_function import OwnGroups
from ornstein.types import Array, PyTree, Traced

# What a pass over all data costs, in rows, is at least this: handlers of one step take as long.
LEAST_WORK = 300
AT_ONCE = 2**22  # numbers of constrained draws that are made together


@dataclass(frozen=True, eq=False)
class LogJoint:
    """The log density of everything, for a Model with one example."""

    whole: Whole

    def __call__(self, params: PyTree, example: PyTree) -> Traced:
        return self.whole.log_density(params)


class WholeModel(Model, OwnGroups):
    """A NumPyro model that cannot be divided into rows, or need not: its one example is all of its
    data.
    """

    whole: Whole
    reason: str

    def __init__(self, whole: Whole, names: tuple[str, ...], reason: str) -> None:
        vars(self).update(whole=whole, reason=reason)
        predict = Predict(whole, None)
        super().__init__(LogJoint(whole), _identity(whole), None, whole.start, predict, names=names)

    @property
    def undivided(self) -> str:
        return self.reason

    @property
    def observations(self) -> int:
        return int(sum(np.size(site["value"]) for site in self.whole.observed))

    @property
    def work(self) -> int:
        return max(LEAST_WORK, self.observations)

    @property
    def network_by_nuts(self) -> bool:
        """As NumPyro itself would sample it."""
        return True

    def starts(self, count: int, seed: int) -> Array:
        """Where chains start, as NumPyro's would: (count, D)."""
        return flat_starts(self.whole, count, seed)

    def arviz_group(self, name: str, draws: Array, seed: int) -> dict[str, Array]:
        return groups(self.whole, self.layout, draws, name, seed)

    def constrained(self, draws: Array) -> dict[str, Array] | None:
        if draws.size == 0:
            return None
        flat = np.asarray(draws, dtype=float).reshape(-1, self.dim)
        with double():
            one = jax.jit(jax.vmap(lambda theta: self._constrained(theta)))
            shapes = jax.eval_shape(one, flat[:1])
            numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
            some = max(1, AT_ONCE // max(1, numbers))
            parts = [
                jax.tree.map(np.asarray, one(flat[start : start + some]))
                for start in range(0, len(flat), some)
            ]
        lead = draws.shape[:-1]
        return {
            name: np.concatenate([part[name] for part in parts]).reshape(
                lead + parts[0][name].shape[1:]
            )
            for name in parts[0]
        }

    def _constrained(self, theta: Traced) -> dict[str, Traced]:
        found = self.whole.constrained(self.layout.unflatten(theta))
        discrete = {site["name"] for site in self.whole.discrete}
        return {name: jnp.asarray(value) for name, value in found.items() if name not in discrete}

    def _check_scalars(self) -> None:
        """Once, in the width that it is run in: NumPyro has looked at it already."""
        with double():
            params = jax.eval_shape(self.layout.unflatten, np.zeros(self.dim))
            shape = jax.eval_shape(self.loss.log_likelihood, params, None, {}).shape
        if shape != ():
            raise InputError(f"the model's log density must be one number; it has shape {shape}")


def _identity(whole: Whole) -> dict[str, Array]:
    """What tells these data from others: the observed values, as one example."""
    known = {"all": np.zeros(1)}
    for site in whole.observed:
        value = np.asarray(site["value"])
        if value.size:
            known[site["name"]] = np.nan_to_num(value.astype(float))[None]
    return known
