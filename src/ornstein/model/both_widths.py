"""A loss traced on one example in float64 and in float32, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from ornstein.compute.precision import width
from ornstein.model.closed_over import where_constant
from ornstein.model.contract import require_scalar
from ornstein.model.loss import Loss
from ornstein.model.on_device import working_dtype
from ornstein.types import Array, PyTree


def checked_loss(loss: Loss, data: PyTree, hyperparameters: Mapping[str, Array], dim: int) -> Loss:
    """The loss with NumPy arrays from outside made its own, or a sentence on what is wrong."""
    alive: list[object] = []  # programs that JAX must keep until the other width has been tried
    for dtype in ("float64", "float32"):
        with width(dtype):
            example = jax.tree.map(
                lambda leaf, d=dtype: jax.ShapeDtypeStruct(leaf.shape[1:], working_dtype(leaf, d)),
                data,
            )
            params = jax.eval_shape(loss.layout.unflatten, jax.ShapeDtypeStruct((dim,), dtype))
            hyper = jax.tree.map(
                lambda leaf, d=dtype: jax.ShapeDtypeStruct(leaf.shape, d), dict(hyperparameters)
            )
            if dtype == "float64":
                loss = Loss(
                    where_constant(loss.log_likelihood, params, example, hyper),
                    where_constant(loss.log_prior, params, hyper),
                    loss.layout,
                )
            given = params, example, hyper
            alive.append(require_scalar("log_likelihood", loss.log_likelihood, dtype, *given))
            alive.append(require_scalar("log_prior", loss.log_prior, dtype, params, hyper))
    return loss
