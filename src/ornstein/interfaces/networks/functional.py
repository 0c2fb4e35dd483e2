"""From a network as a function of its last layer's parameters to the posterior of that layer."""

from __future__ import annotations

from ornstein.interfaces.networks.last_layer import Options, fitted
from ornstein.interfaces.networks.probing import FunctionalNetwork
from ornstein.interfaces.networks.reading import outcomes_in, rows_of
from ornstein.interfaces.networks.work import classes_of
from ornstein.posterior.last_layer import LastLayerPosterior
from ornstein.types import PyTree


def fitted_from(
    network: FunctionalNetwork, loader: PyTree, held_out: PyTree, task: str, options: Options
) -> LastLayerPosterior:
    """Features of all rows, then the posterior of the layer."""
    head = network.head()
    features, y = rows_of(network.features, outcomes_in, loader)
    held = None
    if held_out is not None:
        held = rows_of(network.features, outcomes_in, held_out, "held_out")
    classes = classes_of(y, task, head[1].size)
    return fitted(features, y, held, task, head, network, options, classes)
