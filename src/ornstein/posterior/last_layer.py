"""Posteriors of the last layer of a network: draws, a temperature, and the network that makes
features of inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ornstein.checks import printable
from ornstein.errors import InputError
from ornstein.posterior.posterior import Posterior
from ornstein.posterior.predictive import Predictive
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ornstein.model.model import Model

UNCHECKED = (
    "Calibration is unchecked: no held-out rows were given, so the temperature is 1. Give"
    " held_out=… to check it and to choose the temperature"
)
# How far numbers of a layer may be apart that are the same but for rounding to float32.
SAME = 1e-6


class Network(Protocol):
    """What turns inputs into features: a network of some framework and the name of its last
    layer.
    """

    @property
    def framework(self) -> str: ...

    @property
    def layer(self) -> str: ...

    def head(self) -> tuple[Array, Array]:
        """Weights (features, outputs) and biases (outputs,) of the layer as it was trained."""

    def features(self, inputs: PyTree) -> Array:
        """What enters the layer, (rows, features)."""


@dataclass(frozen=True)
class Score:
    """Of predictions on held-out rows: at which temperature, −log p per row in nats, and the
    calibration error.

    `error` is the expected calibration error over 15 bins of confidence; of a regression, by how
    much the share of rows in central 90 % intervals misses 0.9.
    """

    temperature: float
    loss: float
    error: float


@dataclass(frozen=True)
class Calibration:
    """How good predictions were on the held-out rows, by name; prints as a table.

    >>> Calibration()
    Calibration is unchecked: no held-out rows were given, so the temperature is 1. Give ...
    """

    rows: int = 0
    scores: tuple[tuple[str, Score], ...] = ()

    @property
    def checked(self) -> bool:
        return self.rows > 0

    def __getitem__(self, name: str) -> Score:
        """The score of this name."""
        known = dict(self.scores)
        if name not in known:
            raise InputError(f"there is no score {name!r}; there are {list(known)}")
        return known[name]

    def __str__(self) -> str:
        if not self.checked:
            return UNCHECKED
        lines = [
            f"Calibration on {self.rows:,} held-out rows, which also chose the temperatures",
            f"  {'':34s}{'T':>7s}{'NLL':>9s}{'error':>9s}",
        ]
        for name, score in self.scores:
            numbers = f"{score.temperature:7.3f}{score.loss:9.4f}{score.error:9.4f}"
            lines.append(f"  {printable(name):34s}{numbers}")
        return "\n".join(lines)

    __repr__ = __str__

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {"rows": self.rows, "scores": [[name, vars(one)] for name, one in self.scores]}

    @classmethod
    def from_json(cls, meta: Mapping[str, PyTree]) -> Calibration:
        """What `to_json` wrote."""
        scores = tuple((str(name), Score(**_numbers(one))) for name, one in meta["scores"])
        return cls(int(meta["rows"]), scores)


def _numbers(score: Mapping[str, object]) -> dict[str, float]:
    return {name: float(value) for name, value in score.items()}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, repr=False)
class LastLayerPosterior(Posterior):
    """Draws of the weights of a last layer, made by `orn.last_layer` and `orn.from_torch` and the
    like.

    Attributes:
        temperature: T of softmax(logits/T) in predictions, or what multiplies the noise scale of a
            regression; 1 where no rows were held out. The draws are those of the posterior at 1.
        calibration: scores on the held-out rows, plain temperature scaling among them.
        network: what `predict` turns inputs into features with; never saved.
        framework, layer: where features come from; empty where they were given as arrays.
        weights, biases: of the layer as it was trained, where it is known.
    """

    temperature: float = 1.0
    calibration: Calibration = Calibration()
    network: Network | None = field(default=None, repr=False)
    framework: str = ""
    layer: str = ""
    weights: Array | None = field(default=None, repr=False)
    biases: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, posterior: Posterior, **known: PyTree) -> LastLayerPosterior:
        """The same posterior with what is known of its network."""
        same = {item.name: getattr(posterior, item.name) for item in fields(Posterior)}
        return cls(**same, **known)

    def predict(
        self,
        inputs: PyTree,
        draws: int | None = 1000,
        seed: int = 0,
        groups: str | None = None,
        model: Model | None = None,
        *,
        offset: ArrayLike | float | None = None,
        net: PyTree = None,
    ) -> Predictive:
        """What is predicted for new rows, at the temperature: probabilities of the classes, or the
        expectation of a regression with the noise in `.outcome`.

        Args:
            inputs: what the network takes, and it is run; features, where the posterior was made
                from arrays, or was loaded from a file and no `net` is given.
            draws, seed, model, offset: as for every Posterior.
            groups: only for mixed models.
            net: the network, after `orn.load`.
        """
        network = self.network if net is None else self._attached(net)
        if network is not None:
            self._require_same(network)
        features = inputs if network is None else network.features(inputs)
        draws_at = self.at_temperature(self.draws)
        middle = self.at_temperature(self.mean)
        tempered = replace(self, draws=draws_at, moments=_about(self, middle))
        return Posterior.predict(tempered, features, draws, seed, groups, model, offset=offset)

    def at_temperature(self, draws: Array) -> Array:
        """Parameters (…, D) whose predictions at temperature 1 are those of `draws` at
        `temperature`.
        """
        if "log_scale" not in self.layout.paths:
            return draws / self.temperature
        moved = np.array(draws)
        moved[..., self.names.index("log_scale")] += math.log(self.temperature)
        return moved

    def _attached(self, net: PyTree) -> Network:
        if not self.framework:
            raise InputError("this posterior was made from arrays of features: predict takes those")
        from ornstein.interfaces.networks.attach import network_of

        return network_of(self.framework, net, self.layer)

    def _require_same(self, network: Network) -> None:
        """Refuse a network whose last layer is another one, or was trained further."""
        for found, known in zip(network.head(), (self.weights, self.biases), strict=True):
            if known is None or found.shape != known.shape or _apart(found, known) > SAME:
                raise InputError(
                    f"this is not the network that the posterior was made from: its layer"
                    f" {self.layer!r} holds other weights"
                )

    def __repr__(self) -> str:
        chains, draws, size = self.draws.shape
        source = (
            f" {self.layer!r} of a network in {printable(self.framework)}" if self.framework else ""
        )
        head = f"Last layer{source}: {size:,} weights, {chains * draws:,} draws"
        verdict = "" if self.verdict is None else f", {self.verdict.level}"
        return f"{head}{verdict}\n{self.calibration}"

    __str__ = __repr__


def _about(posterior: Posterior, mean: Array) -> PyTree:
    """The posterior's moments about another mean."""
    if posterior.moments is None:
        return None
    return replace(posterior.moments, mean=mean)


def _apart(found: Array, known: Array) -> float:
    return float(np.max(np.abs(found - known), initial=0.0) / (1.0 + np.max(np.abs(known))))
