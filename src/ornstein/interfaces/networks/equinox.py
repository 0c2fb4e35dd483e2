"""The last layer of an Equinox network."""

from __future__ import annotations

from typing import TypeAlias, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.networks.functional import fitted_from
from ornstein.interfaces.networks.last_layer import Options
from ornstein.interfaces.networks.probing import FunctionalNetwork, first_that_is_last
from ornstein.interfaces.networks.reading import AUTO, batches, no_such_layer
from ornstein.posterior.last_layer import LastLayerPosterior
from ornstein.types import PyTree, Traced

Module: TypeAlias = PyTree  # an equinox.Module


def from_equinox(
    net: Module,
    loader: PyTree,
    layer: str = AUTO,
    held_out: PyTree = None,
    task: str = "auto",
    **options: Unpack[Options],
) -> LastLayerPosterior:
    """The posterior of the last layer of a trained Equinox network.

    The network takes one example, as is usual in Equinox, and is mapped over the rows in inference
    mode. It must return logits.

    Args:
        net: an equinox.Module that takes one example.
        loader: the training rows: a pair (inputs, y), or anything that yields such pairs.
        layer: the path of its last layer, an equinox.nn.Linear, as in "head" or "layers.2"; "auto"
            finds it.
        held_out: rows that the network has not seen, like `loader`; they choose the temperature.
        task: "classification" (y holds 0, 1, …, one per output), "regression" or "auto".
        options: those of `orn.last_layer` by name: prior_precision, draws, chains, seed, budget,
            deadline, progress.

    `post.predict(inputs)` takes what the network takes, and runs it.
    """
    network = equinox_network(net, layer, next(batches(loader))[0] if layer == AUTO else None)
    return fitted_from(network, loader, held_out, task, options)


def equinox_network(net: Module, layer: str, inputs: PyTree = None) -> FunctionalNetwork:
    """The network as a function of its last layer's parameters."""
    eqx = _equinox()
    if not isinstance(net, eqx.Module) or not callable(net):
        raise InputError(
            f"net must be an equinox.Module that can be called; got a {type(net).__name__}. For"
            " another kind of network give orn.last_layer the features as arrays"
        )
    quiet = eqx.nn.inference_mode(net)
    entries = jax.tree_util.tree_leaves_with_path(
        quiet, is_leaf=lambda node: isinstance(node, eqx.nn.Linear)
    )
    linear = {_name(path): path for path, one in entries if isinstance(one, eqx.nn.Linear)}
    if not linear or layer not in {AUTO, *linear}:
        raise no_such_layer(layer, list(linear))

    def functional(name: str) -> FunctionalNetwork:
        trained = _at(quiet, linear[name])

        def run(weights: Traced, biases: Traced, rows: PyTree) -> Traced:
            changed = eqx.tree_at(
                lambda one: _at(one, linear[name]).weight, quiet, jnp.asarray(weights).T
            )
            if trained.bias is not None:
                changed = eqx.tree_at(
                    lambda one: _at(one, linear[name]).bias, changed, jnp.asarray(biases)
                )
            return jax.vmap(changed)(jax.tree.map(jnp.asarray, rows))

        weights = np.asarray(trained.weight).T
        no_bias = np.zeros(weights.shape[1], weights.dtype)
        biases = no_bias if trained.bias is None else np.asarray(trained.bias)
        return FunctionalNetwork("equinox", name, run, weights, biases)

    if layer != AUTO:
        return functional(layer)
    return first_that_is_last(list(linear), functional, inputs)


def _at(tree: Module, path: tuple[PyTree, ...]) -> Module:
    for part in path:
        if isinstance(part, jax.tree_util.GetAttrKey):
            tree = getattr(tree, part.name)
        elif isinstance(part, jax.tree_util.SequenceKey):
            tree = tree[part.idx]
        else:
            tree = tree[part.key]
    return tree


def _name(path: tuple[PyTree, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _equinox() -> PyTree:
    try:
        import equinox
    except ImportError as error:
        raise InputError(
            "from_equinox needs Equinox: pip install equinox, or give orn.last_layer the features"
            " as arrays"
        ) from error
    return equinox
