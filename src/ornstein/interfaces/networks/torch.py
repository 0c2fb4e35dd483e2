"""The last layer of a PyTorch network: a forward hook sees what enters it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, Unpack

import numpy as np

from ornstein.errors import InputError
from ornstein.interfaces.networks.last_layer import Options, fitted
from ornstein.interfaces.networks.reading import (
    AUTO,
    ROWS,
    batches,
    is_last,
    no_such_layer,
    not_last,
    outcomes_in,
    require_matrix,
    require_rows,
    rows_of,
    running,
)
from ornstein.interfaces.networks.work import classes_of
from ornstein.model import tables
from ornstein.posterior.last_layer import LastLayerPosterior
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    from types import ModuleType

Module: TypeAlias = PyTree  # a torch.nn.Module; torch is not there for type checkers


def from_torch(
    net: Module,
    loader: PyTree,
    layer: str = AUTO,
    held_out: PyTree = None,
    task: str = "auto",
    **options: Unpack[Options],
) -> LastLayerPosterior:
    """The posterior of the last layer of a trained PyTorch network.

    The network is run once over the rows, in evaluation mode, and is not changed. It may return
    logits, or their softmax, log softmax or sigmoid.

    Args:
        net: a torch.nn.Module.
        loader: the training rows: a DataLoader or anything else that yields pairs (inputs, y), or
            one such pair of tensors. Augmentation must be off.
        layer: the name of its last layer, a torch.nn.Linear, as in `net.named_modules()`; "auto"
            finds it.
        held_out: rows that the network has not seen, like `loader`; they choose the temperature.
        task: "classification" (y holds 0, 1, …, one per output), "regression" or "auto".
        options: those of `orn.last_layer` by name: prior_precision, draws, chains, seed, budget,
            deadline, progress.

    `post.predict(inputs)` takes what the network takes, and runs it.
    """
    network = TorchNetwork.of(net, layer, next(batches(loader))[0] if layer == AUTO else None)
    head = network.head()
    features, y = rows_of(network.features, _numbers, loader)
    held = None
    if held_out is not None:
        held = rows_of(network.features, _numbers, held_out, "held_out")
    classes = classes_of(y, task, head[1].size)
    return fitted(features, y, held, task, head, network, options, classes)


@dataclass(frozen=True, eq=False)
class TorchNetwork:
    """A PyTorch network and the name of its last layer."""

    net: Module
    layer: str

    framework: ClassVar[str] = "torch"

    @classmethod
    def of(cls, net: Module, layer: str, inputs: PyTree = None) -> TorchNetwork:
        """Checked by name and kind; "auto" takes the last linear layer that is last on some
        inputs.
        """
        torch = _torch()
        if not isinstance(net, torch.nn.Module):
            raise InputError(f"net must be a torch.nn.Module; got a {type(net).__name__}")
        modules = dict(net.named_modules())
        linear = [name for name, one in modules.items() if isinstance(one, torch.nn.Linear)]
        if layer != AUTO:
            if layer in modules and layer not in linear:
                raise InputError(
                    f"the layer {layer!r} is a {type(modules[layer]).__name__}; a linear layer is"
                    f" needed: {', '.join(linear) or 'the network has none'}"
                )
            if layer not in linear:
                raise no_such_layer(layer, linear)
            return cls(net, layer)
        if not linear:
            raise no_such_layer(layer, linear)
        for name in reversed(linear):
            found = cls(net, name)
            try:
                found.features(inputs)
            except InputError:
                continue
            return found
        cls(net, linear[-1]).features(inputs)  # says why not
        raise not_last(linear[-1])

    def head(self) -> tuple[Array, Array]:
        layer = self.net.get_submodule(self.layer)
        weights = np.array(layer.weight.detach().cpu().double().numpy().T)
        if layer.bias is None:
            return weights, np.zeros(weights.shape[1])
        return weights, np.array(layer.bias.detach().cpu().double().numpy())

    def features(self, inputs: PyTree) -> Array:
        """What enters the layer; inputs are a tensor or array, a tuple or dict of them for a
        network with several arguments, or a loader of such, alone or paired with outcomes.
        """
        torch = _torch()
        if isinstance(inputs, torch.utils.data.DataLoader):
            with running():
                parts = [one[0] if isinstance(one, tuple | list) else one for one in inputs]
                return np.concatenate([self.features(part) for part in parts])
        with running(), _evaluating(self.net), torch.no_grad():
            return np.concatenate([self._run(part) for part in self._portions(inputs)])

    def _portions(self, inputs: PyTree) -> Iterator[PyTree]:
        """Some rows after the others, on the network's device."""
        if isinstance(inputs, dict):
            leaves = {name: self._tensor(leaf) for name, leaf in inputs.items()}
            for rows in _slices(require_rows([*leaves.values()])):
                yield {name: leaf[rows] for name, leaf in leaves.items()}
            return
        tensors = [self._tensor(leaf) for leaf in (inputs if _several(inputs) else (inputs,))]
        for rows in _slices(require_rows(tensors)):
            yield tuple(leaf[rows] for leaf in tensors)

    def _tensor(self, values: PyTree) -> PyTree:
        """On the device of the network, floats in its precision."""
        tables.require_unmasked(values, "inputs")
        weight = self.net.get_submodule(self.layer).weight
        try:
            tensor = _torch().as_tensor(values, device=weight.device)
        except (TypeError, ValueError, RuntimeError, KeyError) as error:
            raise InputError(
                f"inputs must be tensors or arrays of numbers; got a {type(values).__name__}"
            ) from error
        return tensor.to(weight.dtype) if tensor.is_floating_point() else tensor

    def _run(self, inputs: PyTree) -> Array:
        seen: list[PyTree] = []

        def see(module: Module, entered: tuple[PyTree, ...], returned: PyTree) -> None:
            seen.append(entered[0])

        hook = self.net.get_submodule(self.layer).register_forward_hook(see)
        try:
            outputs = self.net(**inputs) if isinstance(inputs, dict) else self.net(*inputs)
        finally:
            hook.remove()
        if len(seen) != 1:
            times = "never" if not seen else f"{len(seen)} times"
            raise InputError(
                f"the network runs its layer {self.layer!r} {times} in one pass; it must be once"
            )
        if not isinstance(outputs, _torch().Tensor):
            raise InputError(
                f"the network returns a {type(outputs).__name__}; wrap it in a module that returns"
                " the logits"
            )
        features = _numbers(seen[0]).astype(float)
        require_matrix(features, self.layer)
        rounding = _torch().finfo(outputs.dtype).eps if outputs.is_floating_point() else 0.0
        if not is_last(features, self.head(), _numbers(outputs).astype(float), rounding):
            raise not_last(self.layer)
        return features


def _several(inputs: PyTree) -> bool:
    """Whether these are several arguments of a network, not the rows of one."""
    kinds = (_torch().Tensor, np.ndarray)
    listed = isinstance(inputs, list) and any(isinstance(one, kinds) for one in inputs)
    return isinstance(inputs, tuple) or listed


def _slices(count: int) -> Iterator[slice]:
    for start in range(0, count, ROWS):
        yield slice(start, start + ROWS)


@contextmanager
def _evaluating(net: Module) -> Iterator[None]:
    """Evaluation mode, and afterwards each part as it was."""
    training = [one for one in net.modules() if one.training]
    net.eval()
    try:
        yield
    finally:
        for one in training:
            one.training = True


def _numbers(values: PyTree) -> Array:
    """A tensor or array on the host, floats in double precision where NumPy has no such type."""
    torch = _torch()
    if not isinstance(values, torch.Tensor):
        return outcomes_in(values)
    held = values.detach().cpu()
    return np.asarray((held.float() if held.dtype == torch.bfloat16 else held).numpy())


def _torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise InputError(
            "from_torch needs PyTorch: pip install 'ornstein[torch]', or give orn.last_layer the"
            " features as arrays"
        ) from error
    return torch
