"""The mean loss and its minibatch gradients, as compiled code sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ornstein.compute.compiled import compiled
from ornstein.model.parameters import Layout
from ornstein.rows.choice import Traits
from ornstein.rows.grouped import GroupedRows
from ornstein.rows.held import fitting, held_rows
from ornstein.types import PyTree, Traced

NO_TRAITS = Traits()
# Rows looked at in one go. A likelihood that factorises a small matrix for each of more than about
# 20,000 of them can make XLA's threads wait for each other forever.
TOGETHER = 2**14


class Problem(NamedTuple):
    """All numbers a gradient needs, passed to compiled code as arguments and never closed over.

    Positions are measured from `centre`. A model may put part of the centre into its data (a linear
    predictor becomes an offset): then `likelihood_centre` has zeros there.
    """

    data: PyTree  # rows, in a run as rows.held holds them
    hyperparameters: PyTree
    n_data: Traced
    centre: Traced
    likelihood_centre: Traced


@dataclass(frozen=True)
class Loss:
    """The mean loss as a function of the displacement from the centre; hashable, so that equal
    models share compiled code.
    """

    log_likelihood: Callable[[PyTree, PyTree, PyTree], Traced]
    log_prior: Callable[[PyTree, PyTree], Traced]
    layout: Layout
    traits: Traits = NO_TRAITS

    def log_likelihoods(self, problem: Problem, displacement: Traced, rows: PyTree) -> Traced:
        """log p(x_n | θ) of each of the rows."""
        if isinstance(rows, GroupedRows):
            params = self._params(problem, displacement)
            return rows.each(
                lambda group: self.log_likelihood(params, group, problem.hyperparameters)
            )
        params, known = fitting(self._params(problem, displacement), rows), problem.hyperparameters
        if jax.tree.leaves(rows)[0].shape[0] > TOGETHER:
            return lax.map(
                lambda row: self.log_likelihood(params, row, known), rows, batch_size=TOGETHER
            )
        return jax.vmap(self.log_likelihood, (None, 0, None))(params, rows, known)

    def _params(self, problem: Problem, displacement: Traced) -> PyTree:
        """The parameters as the likelihood takes them."""
        return self.layout.unflatten(problem.likelihood_centre + displacement)

    def prior(self, problem: Problem, displacement: Traced) -> Traced:
        return self.log_prior(
            self.layout.unflatten(problem.centre + displacement), problem.hyperparameters
        )

    def penalty(self, problem: Problem, displacement: Traced) -> Traced:
        """The prior's part of `minibatch`."""
        return -self.prior(problem, displacement) / problem.n_data

    def minibatch(self, problem: Problem, displacement: Traced, rows: PyTree) -> Traced:
        """The minibatch's estimate of the mean loss: unbiased for L up to a constant."""
        return -jnp.mean(self.log_likelihoods(problem, displacement, rows)) + self.penalty(
            problem, displacement
        )

    def gradient(self, problem: Problem, displacement: Traced, batch: PyTree) -> Traced:
        """ĝ, the gradient of `minibatch`; `batch` says which rows, in the way that the problem's
        rows are held.
        """
        fit = self._slope(self.log_likelihood, problem, displacement, batch)
        # In this order: with the prior first a step takes half as much time again.
        return fit + jax.grad(self.penalty, argnums=1)(problem, displacement)

    def gradient_change(self, problem: Problem, displacement: Traced, batch: PyTree) -> Traced:
        """ĝ less what it is at the centre, on the same rows."""
        zero, prior = jnp.zeros_like(displacement), jax.grad(self.penalty, argnums=1)
        if self.traits.change is None:
            return self.gradient(problem, displacement, batch) - self.gradient(problem, zero, batch)
        centre = self.layout.unflatten(problem.likelihood_centre)
        change = partial(self.traits.change, self.log_likelihood, centre)
        fit = self._slope(change, problem, displacement, batch)
        return fit + (prior(problem, displacement) - prior(problem, zero))

    def _slope(
        self,
        log_likelihood: Callable[..., Traced],
        problem: Problem,
        displacement: Traced,
        batch: PyTree,
    ) -> Traced:
        """The gradient of −mean log likelihood over the rows of a minibatch."""
        params, back = jax.vjp(partial(self._params, problem), displacement)

        def misfit(params: PyTree, row: PyTree) -> Traced:
            return -log_likelihood(params, row, problem.hyperparameters)

        return back(held_rows(problem.data).mean_slope(misfit, params, batch))[0]


@compiled
def prior_value_and_slope(loss: Loss, problem: Problem) -> tuple[Traced, Traced]:
    """−log p(θ) at the centre and its gradient."""
    return jax.value_and_grad(lambda shift: -loss.prior(problem, shift))(
        jnp.zeros_like(problem.centre)
    )


@compiled
def prior_values_and_slopes(
    loss: Loss, problem: Problem, displacements: Traced
) -> tuple[Traced, Traced]:
    """−log p(θ) and its gradient at many displacements from the centre."""
    return jax.vmap(jax.value_and_grad(lambda shift: -loss.prior(problem, shift)))(displacements)


@compiled
def prior_hessian(loss: Loss, problem: Problem) -> Traced:
    """Hessian of −log p(θ) at the centre."""
    return jax.hessian(lambda shift: -loss.prior(problem, shift))(jnp.zeros_like(problem.centre))


@compiled
def prior_diagonal(loss: Loss, problem: Problem) -> Traced:
    """Diagonal of the prior's Hessian; exact for priors that factorise over coordinates."""
    slope = jax.grad(lambda shift: -loss.prior(problem, shift))
    zero = jnp.zeros_like(problem.centre)
    return jax.jvp(slope, (zero,), (jnp.ones_like(zero),))[1]
