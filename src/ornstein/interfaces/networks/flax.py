"""The last layer of a Flax NNX network."""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias, Unpack

import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.networks.functional import fitted_from
from ornstein.interfaces.networks.last_layer import Options
from ornstein.interfaces.networks.probing import FunctionalNetwork, first_that_is_last
from ornstein.interfaces.networks.reading import AUTO, batches, no_such_layer
from ornstein.posterior.last_layer import LastLayerPosterior
from ornstein.types import PyTree, Traced

Module: TypeAlias = PyTree  # a flax.nnx.Module


def from_flax(
    net: Module,
    loader: PyTree,
    layer: str = AUTO,
    held_out: PyTree = None,
    task: str = "auto",
    **options: Unpack[Options],
) -> LastLayerPosterior:
    """The posterior of the last layer of a trained Flax NNX network.

    The network is run on copies, in evaluation mode, and is not changed. It must return logits.

    Args:
        net: a flax.nnx.Module that takes a batch of inputs.
        loader: the training rows: a pair (inputs, y), or anything that yields such pairs.
        layer: the path of its last layer, an nnx.Linear, as in "head" or "layers.2"; "auto" finds
            it.
        held_out: rows that the network has not seen, like `loader`; they choose the temperature.
        task: "classification" (y holds 0, 1, …, one per output), "regression" or "auto".
        options: those of `orn.last_layer` by name: prior_precision, draws, chains, seed, budget,
            deadline, progress.

    `post.predict(inputs)` takes what the network takes, and runs it.
    """
    network = flax_network(net, layer, next(batches(loader))[0] if layer == AUTO else None)
    return fitted_from(network, loader, held_out, task, options)


def flax_network(net: Module, layer: str, inputs: PyTree = None) -> FunctionalNetwork:
    """The network as a function of its last layer's parameters."""
    nnx = _nnx()
    if not isinstance(net, nnx.Module):
        raise InputError(
            f"net must be a flax.nnx.Module; got a {type(net).__name__}. For another kind of"
            " network give orn.last_layer the features as arrays"
        )
    linear = {
        ".".join(str(part) for part in path): tuple(path)
        for path, one in nnx.iter_modules(net)
        if isinstance(one, nnx.Linear)
    }
    if not linear or layer not in {AUTO, *linear}:
        raise no_such_layer(layer, list(linear))

    def functional(name: str) -> FunctionalNetwork:
        graph, state = nnx.split(net)

        def run(weights: Traced, biases: Traced, rows: PyTree) -> Traced:
            copy = nnx.merge(graph, state)
            copy.eval()
            found = reduce(_part, linear[name], copy)
            found.kernel = nnx.Param(jnp.asarray(weights))
            if found.bias is not None:
                found.bias = nnx.Param(jnp.asarray(biases))
            return copy(rows)

        trained = reduce(_part, linear[name], net)
        weights = np.asarray(trained.kernel[...])
        no_bias = np.zeros(weights.shape[1], weights.dtype)
        biases = no_bias if trained.bias is None else np.asarray(trained.bias[...])
        return FunctionalNetwork("flax", name, run, weights, biases)

    if layer != AUTO:
        return functional(layer)
    return first_that_is_last(list(linear), functional, inputs)


def _part(module: Module, name: str | int) -> Module:
    return module[name] if isinstance(name, int) else getattr(module, name)


def _nnx() -> PyTree:
    try:
        from flax import nnx
    except ImportError as error:
        raise InputError(
            "from_flax needs Flax: pip install flax, or give orn.last_layer the features as arrays"
        ) from error
    return nnx
