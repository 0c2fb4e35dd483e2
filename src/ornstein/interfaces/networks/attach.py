"""A network and its last layer, by the name of its framework: what a saved posterior asks for."""

from __future__ import annotations

from ornstein.errors import InputError
from ornstein.posterior.last_layer import Network
from ornstein.types import PyTree

FRAMEWORKS = ("torch", "flax", "equinox", "sklearn")


def network_of(framework: str, net: PyTree, layer: str) -> Network:
    """The network as what turns inputs into features."""
    if framework == "torch":
        from ornstein.interfaces.networks.torch import TorchNetwork

        return TorchNetwork.of(net, layer)
    if framework == "flax":
        from ornstein.interfaces.networks.flax import flax_network

        return flax_network(net, layer)
    if framework == "equinox":
        from ornstein.interfaces.networks.equinox import equinox_network

        return equinox_network(net, layer)
    if framework == "sklearn":
        from ornstein.interfaces.networks.sklearn import SklearnNetwork

        return SklearnNetwork.of(net)
    raise InputError(f"the framework {framework!r} is not one of {', '.join(FRAMEWORKS)}")
