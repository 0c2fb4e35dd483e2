"""A model whose rows lie in shards that no single process holds: Dask arrays and data frames.

Every shard becomes a model of its own with the prior to the power n_p/N, so that the mean loss of
all is L = Σ_p (n_p/N) L_p and everything `measure` asks (value, gradient, Hessian, noise) is the
same weighted sum: mode, A and C come out exactly, by one map-reduce per question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.compute.one_thread import one_thread
from ornstein.curvature.derivatives import Derivatives, derivatives_of
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.family import Family
from ornstein.model.families.gaussian import Gaussian
from ornstein.model.families.table import family_of
from ornstein.model.linear import LinearPredictor
from ornstein.model.loss import Problem
from ornstein.model.model import Model
from ornstein.model.regression import glm, require_noise
from ornstein.model.regression_prior import Facts
from ornstein.model.spread import Spread
from ornstein.sampling.fingerprint import Content, data_digest
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    import pandas
    from dask.delayed import Delayed
    from distributed import Client, Future


@dataclass(frozen=True)
class PoweredPrior:
    """A log prior times `power`."""

    log_prior: Callable[[PyTree, PyTree], Traced]
    power: float

    def __call__(self, params: PyTree, hyperparameters: PyTree) -> Traced:
        return self.power * self.log_prior(params, hyperparameters)


def with_prior_power(model: Model, power: float) -> Model:
    """The model with its prior to a power: the share of a shard that holds that part of all
    rows.
    """
    return model.replace(
        loss=replace(model.loss, log_prior=PoweredPrior(model.loss.log_prior, power))
    )


class ShardedModel(Model):
    """What `glm` makes of Dask collections; `orn.sample(model, client=client)` runs it.

    `template` is the same model on a few rows, `blocks` are the shards' rows still to be computed
    (Dask's Delayed), `build` turns the rows of a block into a Model.
    """

    blocks: list[Delayed]
    block_rows: list[int]
    build: Callable[[PyTree], Model]

    def __init__(
        self,
        template: Model,
        blocks: list[Delayed],
        rows: list[int],
        build: Callable[[PyTree], Model],
    ) -> None:
        vars(self).update(vars(template), data=None, n_data=int(sum(rows)))
        vars(self).update(blocks=blocks, block_rows=rows, build=build)

    @property
    def streams(self) -> bool:
        return False

    def problem(
        self, dtype: str = "float32", centre: Array | None = None, batch_size: int = 0
    ) -> Problem:
        raise InputError(
            "the rows of this model are on a cluster: pass sample the client that holds them,"
            " client=…"
        )

    def require_mode(self, theta: Array) -> None:
        require_noise(self, theta)

    @property
    def one_valley(self) -> bool:
        return True

    @property
    def linear(self) -> LinearPredictor | None:
        raise InputError(
            "the rows of this model are on a cluster: pass sample the client that holds them,"
            " client=…"
        )


@dataclass
class Shards:
    """The shards of a model as models on the workers of a cluster."""

    model: ShardedModel
    client: Client
    groups: list[list[int]]  # the blocks in every shard

    def __post_init__(self) -> None:
        model = self.model
        self.rows = [sum(model.block_rows[i] for i in group) for group in self.groups]
        self.futures: list[Future] = []
        self.send()

    def send(self) -> None:
        """Have the workers make the models, unless they are there already."""
        model = self.model
        if self.futures and not any(future.cancelled() for future in self.futures):
            return
        self.futures = [
            self.client.compute(
                _delayed(_shard)(
                    model.build, count / model.n_data, *[model.blocks[i] for i in group]
                )
            )
            for group, count in zip(self.groups, self.rows, strict=True)
        ]

    def content(self) -> Content:
        """What identifies the rows of all shards."""
        digests = self.client.gather(self.client.map(data_digest, self.futures, pure=False))
        derivatives = ShardedDerivatives(self)
        return Content(self.rows, digests, lambda theta: derivatives.value_and_gradient(theta)[0])

    @classmethod
    def on(cls, model: ShardedModel, client: Client, smallest: int) -> Shards:
        """Neighbouring blocks are put together until each shard has at least `smallest` rows."""
        groups: list[list[int]] = [[]]
        for position in range(len(model.block_rows)):
            groups[-1].append(position)
            if sum(model.block_rows[i] for i in groups[-1]) >= smallest:
                groups.append([])
        last = groups.pop()
        if last and groups:
            groups[-1] += last
        return cls(model, client, groups or [last])

    def merged(self, unfit: set[int]) -> Shards:
        """The shards in `unfit` put together with a neighbour."""
        groups: list[list[int]] = []
        waiting: list[int] = []
        for number, group in enumerate(self.groups):
            waiting = waiting + group
            if number not in unfit:
                groups.append(waiting)
                waiting = []
        if waiting:
            groups[-1:] = [groups[-1] + waiting] if groups else [waiting]
        return Shards(self.model, self.client, groups)

    def mean(self, question: str, *arguments: Array) -> PyTree:
        """Σ_p (n_p/N) of the shards' answers, added up in the order of the shards."""
        # not client.map: Dask loses its way with keyword arguments of more than 100 kB
        answers = self.client.gather(
            [
                self.client.submit(_answer, future, question, arguments, pure=False)
                for future in self.futures
            ]
        )
        weights = [count / self.model.n_data for count in self.rows]
        parts = [answer if isinstance(answer, tuple) else (answer,) for answer in answers]
        totals = tuple(
            sum(w * part[k] for w, part in zip(weights, parts, strict=True))
            for k in range(len(parts[0]))
        )
        return totals if isinstance(answers[0], tuple) else totals[0]


@dataclass(frozen=True)
class ShardedDerivatives:
    """The answers of all shards to what the curvature asks, added up."""

    shards: Shards

    def part(self, rows: Array) -> None:
        """Nothing: rows stay where they are."""

    def example_gradients(self, theta: Array) -> Iterator[Array]:
        raise InputError("gradients of single rows stay on the cluster")

    def value(self, theta: Array) -> float:
        return self.value_and_gradient(theta)[0]

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, slope = self.shards.mean("value_and_gradient", theta)
        return float(value), slope

    def hessian(self, theta: Array) -> Array:
        return self.shards.mean("hessian", theta)

    def gradient_moments(self, theta: Array) -> tuple[Array, Array]:
        return self.shards.mean("gradient_moments", theta)

    def diagonal_moments(self, theta: Array) -> tuple[Array, Array]:
        return self.shards.mean("diagonal_moments", theta)

    def hessian_product(self, theta: Array, vector: Array) -> Array:
        return self.shards.mean("hessian_product", theta, vector)

    def squared_hessian(self, theta: Array) -> Callable[[Array], Array]:
        return lambda covariance: self.shards.mean("squared_hessian", theta, covariance)


@one_thread()
def _answer(model: Model, question: str, arguments: tuple[Array, ...]) -> PyTree:
    derivatives: Derivatives = derivatives_of(model)
    if question == "squared_hessian":
        theta, covariance = arguments
        respond = derivatives.squared_hessian(theta)
        assert respond is not None
        return respond(covariance)
    return getattr(derivatives, question)(*arguments)


def _shard(build: Callable[[PyTree], Model], power: float, *blocks: PyTree) -> Model:
    """One or more blocks, (features, target) each, as a model with its share of the prior."""
    parts = [np.concatenate([np.asarray(block[k]) for block in blocks]) for k in range(2)]
    return with_prior_power(build(tuple(parts)), power)


@dataclass(frozen=True)
class BuildGLM:
    """Rows of a block as a regression."""

    names: tuple[str, ...]
    settings: dict[str, Any]

    def __call__(self, block: tuple[Array, Array]) -> Model:
        import pandas

        features, target = block
        model = glm(features, target, **self.settings)
        if self.names:
            model = glm(
                pandas.DataFrame(features, columns=list(self.names)), target, **self.settings
            )
        return model


def sharded_glm(X: object, y: object, settings: dict[str, Any]) -> ShardedModel:
    """A regression on a Dask array and a Dask vector, or on a Dask data frame and the name of one
    of its columns.
    """
    for name in ("weights", "offset"):
        if settings.pop(name) is not None:
            raise InputError(f"{name} are not supported for data on a cluster")
    blocks, names = _blocks(X, y)
    law = family_of(settings["family"], settings.get("link"))
    discrete = law.labels
    import dask

    facts = dask.compute(*[_delayed(_facts)(block, discrete) for block in blocks])
    rows = [fact["rows"] for fact in facts]
    if not sum(rows):
        raise InputError("the data on the cluster hold no rows")
    if discrete and settings["classes"] is None:
        settings["classes"] = np.unique(np.concatenate([fact["labels"] for fact in facts]))
    if settings.get("prior_precision") is None or settings.get("priors"):
        settings["facts"] = _facts_of_all(law, facts, settings["classes"])
    first = next(position for position, count in enumerate(rows) if count)
    build = BuildGLM(names, settings)
    template = _template(build, dask.compute(_delayed(_head)(blocks[first]))[0], facts)
    return ShardedModel(template, blocks, rows, build)


def _template(
    build: BuildGLM, block: tuple[Array, Array], facts: Sequence[Mapping[str, PyTree]]
) -> Model:
    """The model on a few rows; where the noise scale is inferred its search starts at the spread of
    the whole target.
    """
    gaussian = isinstance(family_of(build.settings["family"]), Gaussian)
    if not gaussian or build.settings["noise_scale"] != "infer":
        return build(block)
    features, target = block
    model = build((features, np.arange(len(target), dtype=float)))
    count, total, squares = (
        sum(fact[name] for fact in facts) for name in ("rows", "sum", "squares")
    )
    spread = max(squares / count - (total / count) ** 2, 0.0) ** 0.5
    if spread == 0.0:
        raise InputError(
            "y is constant: the noise scale cannot be inferred. Give noise_scale a number"
        )
    init = model.init.copy()
    init[list(model.names).index("log_scale")] = np.log(spread)
    return model.replace(init=init)


def _blocks(X: Any, y: Any) -> tuple[list[Delayed], tuple[str, ...]]:
    if hasattr(X, "to_delayed") and hasattr(X, "columns"):
        if not isinstance(y, str) or y not in X.columns:
            raise InputError(f"y must name a column of the data frame; got {y!r}")
        names = tuple(str(name) for name in X.columns if name != y)
        return [_delayed(_split)(part, y) for part in X.to_delayed()], names
    import dask.array

    if not isinstance(y, dask.array.Array):
        raise InputError(
            "X is a Dask array: y must be one too, or X a Dask data frame and y the name of a"
            " column"
        )
    if X.ndim != 2 or y.ndim != 1:
        raise InputError(
            f"X must have two axes and y one; they have shapes {X.shape} and {y.shape}"
        )
    if X.shape[0] != y.shape[0]:
        raise InputError(f"X has {X.shape[0]} rows but y has {y.shape[0]}")
    X = X.rechunk({1: -1})
    y = y.rechunk({0: X.chunks[0]})
    pairs = zip(X.to_delayed().ravel(), y.to_delayed().ravel(), strict=True)
    return [_delayed(_pair)(features, target) for features, target in pairs], ()


def _delayed(function: Callable[..., PyTree]) -> Any:
    import dask

    return dask.delayed(function, pure=False)


def _pair(features: Array, target: Array) -> tuple[Array, Array]:
    return np.asarray(features), np.asarray(target)


def _split(frame: pandas.DataFrame, target: str) -> tuple[Array, Array]:
    from ornstein.model.tables import features

    return features(frame.drop(columns=target))[0], frame[target].to_numpy()


def _head(block: tuple[Array, Array]) -> tuple[Array, Array]:
    return block[0][:50], block[1][:50]


def _facts(block: tuple[Array, Array], discrete: bool) -> dict[str, PyTree]:
    target = block[1]
    rows = {"rows": len(target), "columns": _spread(block[0])}
    if discrete:
        labels, counts = np.unique(tables.labels(target, "y"), return_counts=True)
        return {**rows, "labels": labels, "counts": counts}
    numbers = np.asarray(target, dtype=float)
    return {**rows, "sum": float(numbers.sum()), "squares": float(numbers @ numbers)}


def _spread(features: Array) -> Spread | None:
    return Spread.of(features) if len(features) else None


def _facts_of_all(
    law: Family, facts: Sequence[Mapping[str, PyTree]], classes: Array | None
) -> Facts:
    """What default priors ask of the rows of all blocks."""
    parts = [fact["columns"] for fact in facts if fact["columns"] is not None]
    columns = reduce(Spread.merged, parts)
    if classes is not None:
        counts = np.zeros(len(classes))
        for fact in facts:
            np.add.at(counts, np.searchsorted(classes, fact["labels"]), fact["counts"])
        return Facts(columns, 1.0, law.middle(np.arange(len(classes)), counts))
    count, total, squares = (
        sum(fact[name] for fact in facts) for name in ("rows", "sum", "squares")
    )
    mean = total / count
    spread = max(squares / count - mean**2, 0.0) ** 0.5
    around = np.array([mean - spread, mean + spread])
    return Facts(columns, law.unit(around, None), law.middle(np.array([mean]), np.array([count])))
