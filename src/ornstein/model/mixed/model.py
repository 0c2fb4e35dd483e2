"""Mixed models as Models whose examples are groups.

The log likelihood of an example is that of all rows of a group, the group's effects integrated
out. N is the number of groups, and the parameters are the fixed effects, the covariance of the
effects and what the family has besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ornstein.errors import CurvatureError, InputError
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import SHAPES, RowDensity, cut_points
from ornstein.model.mixed.gaussian import GaussianMarginal, compressed
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.mixed.priors import LogPrior, MixedPriors
from ornstein.model.mixed.quadrature import QuadratureMarginal
from ornstein.model.model import CHUNK_NUMBERS, Model, Span, flat_prior, spans_of
from ornstein.model.on_device import on_device
from ornstein.rows.grouped import GroupedRows
from ornstein.rows.ragged import Buckets, Ragged
from ornstein.types import Array, PyTree

# The fall of log L between the start of the search and where a component is called zero.
VANISHED = 7.0
FIRST_DEVIATION = 0.5  # of effects in units of the response's spread, where the search starts
FIRST_POINTS = {1: 9, 2: 5}  # nodes in each dimension, by the number of effects; else one


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a mixed model, checked: fixed-effects columns, those of the effects (None is the
    intercept alone), response, group of each row and offset.
    """

    x: Array
    z: Array | None
    y: Array
    codes: Array
    offset: Array | None = None

    def sorted_by_group(self) -> tuple[Rows, Array, Array]:
        """The rows group by group, groups in order of size; the sizes, and which group is where."""
        counts = np.bincount(self.codes)
        order = np.argsort(counts, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        ranked = place[self.codes]
        rows = np.argsort(ranked, kind="stable")
        taken = [None if a is None else a[rows] for a in (self.x, self.z, self.y, self.offset)]
        x, z, y, offset = taken
        assert x is not None and y is not None
        return Rows(x, z, y, ranked[rows], offset), counts[order], order


class MixedModel(Model):
    """A Model whose examples are groups; made by `glmm`.

    Attributes:
        family: of the response. covariance: of the effects.
        marginal: the log likelihood of a group.
        table: the rows, group by group, as they were given; `counts` is how many each group has.
        levels: the groups' labels, in the order of the examples.
        quadrature_error: of the log likelihood, in nats over all groups; 0 for a closed form.
        first: where the search for the mode began.
        group_name: what the groups are called.
    """

    family: str
    covariance: Covariance
    marginal: GaussianMarginal | QuadratureMarginal
    table: Rows
    counts: Array
    levels: Array
    group_name: str
    columns: tuple[str, ...]
    quadrature_error: float
    first: np.ndarray

    @property
    def buckets(self) -> Buckets:
        return self.data["x"].buckets

    def with_points(self, points: int) -> MixedModel:
        """The same model with another rule of quadrature."""
        if not isinstance(self.marginal, QuadratureMarginal) or points == self.marginal.points:
            return self
        marginal = self.marginal.with_points(points)
        return self.replace(marginal=marginal, loss=replace(self.loss, log_likelihood=marginal))

    def spans(self, rows: int, block: int) -> Iterator[Span]:
        """Groups to be looked at together, none from two buckets; the work that a group takes is
        that of its rows at all nodes.
        """
        buckets = self.buckets
        for length, first, stop in zip(buckets.lengths, buckets.firsts, buckets.stops, strict=True):
            work = max(1.0, length * self.nodes / self.dim)
            numbers = length * (self.data["x"].shape[-1] + 2)
            most = min(int(rows / work), CHUNK_NUMBERS // numbers)
            yield from spans_of(first, stop, most, block)

    @property
    def work(self) -> int:
        """Rows, filled up, at all nodes."""
        return self.buckets.padded * self.nodes

    @property
    def nodes(self) -> int:
        """At how many places the rows of a group are looked at."""
        marginal = self.marginal
        if isinstance(marginal, GaussianMarginal):
            return 1
        return int(marginal.points ** len(self.covariance.effects)) + 3

    def require_mode(self, theta: np.ndarray) -> None:
        """Refuse a component on its way to zero, in words."""
        self.require_components(theta)

    def require_components(self, theta: np.ndarray) -> None:
        """Refuse a standard deviation that the data and the prior let run to zero."""
        parameters = self.layout.unflatten(theta)["factor"]
        start = self.layout.unflatten(self.first)["factor"]
        for place, (i, j) in enumerate(self.covariance.places):
            if i == j and parameters[place] < start[place] - VANISHED:
                raise CurvatureError(
                    f"the standard deviation of {self.covariance.effects[i]!r} among groups runs"
                    f" to zero ({np.exp(parameters[place]):.1g}): the groups differ in it no more"
                    " than chance explains, and under a flat prior the likelihood has no maximum"
                    " inside. Drop the effect, or use the default prior (priors=None), under"
                    " which it stays small"
                )

    def component_places(self) -> list[int]:
        """Where the logarithms of L's diagonal are among the parameters."""
        begin = self.names.index(self.covariance.parameters[0])
        return [begin + k for k, (i, j) in enumerate(self.covariance.places) if i == j]

    def constrained(self, draws: np.ndarray) -> dict[str, np.ndarray] | None:
        """Coefficients by column, and the components on their natural scale: standard deviations
        and correlations of the effects, sigma, shape, size or cut points.
        """
        if draws.size == 0:
            return None
        params = self.layout.unflatten(np.asarray(draws, dtype=float))
        found = {name: params["coef"][..., i] for i, name in enumerate(self.columns)}
        found |= self.covariance.named(params["factor"])
        return found | natural_shape(self.family, params)

    def _centred(self, centre: np.ndarray) -> tuple[PyTree, np.ndarray]:
        """Put Xβ at the centre into the offset (gaussian: into y), in float64."""
        if not np.any(centre):
            return self.data, centre
        fixed = self.data["x"].values @ self.layout.unflatten(centre)["coef"]
        return self._shifted(self.data, fixed), self._likelihood_centre(centre)

    def _centred_rows(self, rows: PyTree, centre: np.ndarray) -> PyTree:
        return self._shifted(rows, rows["x"] @ self.layout.unflatten(centre)["coef"])

    def _shifted(self, rows: PyTree, fixed: Array) -> PyTree:
        name, sign = ("y", -1.0) if self.family == "gaussian" else ("offset", 1.0)
        before = rows.get(name, 0.0)
        if isinstance(rows["x"], Ragged):
            values = before.values if isinstance(before, Ragged) else 0.0
            return {**rows, name: rows["x"].with_values(values + sign * fixed)}
        return {**rows, name: before + sign * fixed}

    def _likelihood_centre(self, centre: np.ndarray) -> np.ndarray:
        params = self.layout.unflatten(centre.copy())
        return self.layout.flatten({**params, "coef": np.zeros_like(params["coef"])})

    def _laid_out(self, data: PyTree, dtype: str, batch_size: int) -> PyTree:
        cast = partial(on_device, dtype=dtype)
        ragged = {name: leaf for name, leaf in data.items() if isinstance(leaf, Ragged)}
        any_one: Ragged = ragged["x"]
        return GroupedRows(
            {name: cast(leaf.values) for name, leaf in ragged.items()},
            {name: cast(leaf) for name, leaf in data.items() if name not in ragged},
            cast(any_one.starts),
            cast(any_one.counts),
            any_one.buckets,
        )


def natural_shape(family: str, params: PyTree) -> dict[str, Array]:
    """What a family has besides the predictor, on its natural scale, by name."""
    if family == "ordinal":
        cuts = params["cutpoints"]
        flat = np.asarray(cuts).reshape(-1, cuts.shape[-1])
        points = np.stack([np.asarray(cut_points(row)) for row in flat]).reshape(cuts.shape)
        return {f"cutpoint[{k}]": points[..., k] for k in range(cuts.shape[-1])}
    if family not in SHAPES:
        return {}
    names = {"log_scale": "sigma", "log_size": "size", "log_shape": "shape"}
    return {names[SHAPES[family]]: np.exp(params[SHAPES[family]])}


def mixed_model(
    rows: Rows,
    predict: MixedPredict,
    levels: Array,
    priors: MixedPriors | str | None = None,
    points: int | None = None,
    group_name: str = "group",
) -> MixedModel:
    """The model of checked rows, with a first guess of the parameters and of the nodes."""
    table, counts, order = rows.sorted_by_group()
    family, covariance, columns = predict.family, predict.covariance, predict.columns
    effects = len(covariance.effects)
    params, spread = _first_guess(table, family, covariance)
    marginal: GaussianMarginal | QuadratureMarginal
    if family == "gaussian":
        marginal, data = GaussianMarginal(covariance), _gaussian_data(table, counts)
    else:
        points = FIRST_POINTS.get(effects, 1) if points is None else points
        marginal = QuadratureMarginal(RowDensity(family), covariance, points)
        data = _ragged_data(table, counts, counts)
    prior, hyper = _prior(table, family, covariance, priors, spread)
    base = MixedModel(
        marginal,
        {name: leaf[0:1] for name, leaf in data.items()},
        prior,
        params,
        predict,
        hyper,
        names=_names(params, columns, covariance),
    )
    return base.replace(
        data=data,
        n_data=len(counts),
        family=family,
        covariance=covariance,
        marginal=marginal,
        table=table,
        counts=counts,
        levels=np.asarray(levels)[order],
        group_name=group_name,
        columns=columns,
        first=base.init,
        quadrature_error=0.0,
    )


def _gaussian_data(table: Rows, counts: Array) -> dict[str, Any]:
    y = table.y if table.offset is None else table.y - table.offset
    squeezed, held = compressed(table.x, table.z, y, counts)
    p = table.x.shape[1]
    z = None if table.z is None else squeezed[:, p:-1]
    # Rows of a triangle have no intercept of ones: its column is kept wherever rows were squeezed.
    if z is None and np.any(held < counts):
        z = squeezed[:, p:-1]
    return _ragged_data(Rows(squeezed[:, :p], z, squeezed[:, -1], table.codes), held, counts)


def _ragged_data(table: Rows, held: Array, counts: Array) -> dict[str, Any]:
    starts = np.cumsum(held) - held
    first = Ragged(table.x, starts, held, Buckets.of(held))
    data: dict[str, Any] = {"x": first, "y": first.with_values(table.y)}
    if table.z is not None:
        data["z"] = first.with_values(table.z)
    if table.offset is not None:
        data["offset"] = first.with_values(table.offset)
    return data | {"held": held.astype(np.int32), "count": counts.astype(float)}


def _prior(
    table: Rows,
    family: str,
    covariance: Covariance,
    priors: MixedPriors | str | None,
    spread: float,
) -> tuple[Any, dict[str, Array]]:
    if isinstance(priors, str):
        if priors != "flat":
            raise InputError(f"priors must be None, 'flat' or MixedPriors; got {priors!r}")
        return flat_prior, {}
    chosen = MixedPriors() if priors is None else priors
    if not isinstance(chosen, MixedPriors):
        raise InputError(
            f"priors must be None, 'flat' or MixedPriors; got a {type(chosen).__name__}"
        )
    return LogPrior(family, covariance), chosen.hyperparameters(table.x, table.z, spread)


def _first_guess(
    table: Rows, family: str, covariance: Covariance
) -> tuple[dict[str, Array], float]:
    """Where the search for the mode starts, and the spread of the response on the scale of the
    linear predictor.
    """
    coef, spread = np.zeros(table.x.shape[1]), 1.0
    params: dict[str, Array] = {}
    if family == "gaussian":
        y = table.y if table.offset is None else table.y - table.offset
        coef = np.linalg.lstsq(table.x, y, rcond=None)[0]
        residual = float(np.std(y - table.x @ coef))
        if residual <= max(1e-7 * float(np.std(y)), 1e-13 * float(np.max(np.abs(y)))):
            raise InputError(
                "y is constant, or X explains it exactly: there is nothing left for groups to"
                " differ in"
            )
        params["log_scale"] = np.asarray(np.log(0.7 * residual))
        spread = float(np.std(y))
    elif family == "ordinal":
        params["cutpoints"] = _first_cuts(table.y)
    else:
        coef = _first_intercept(table, family)
    if family in ("gamma", "negative-binomial"):
        params[SHAPES[family]] = np.zeros(())
    z = np.ones((1, 1)) if table.z is None else table.z
    unit = residual if family == "gaussian" else 1.0
    sizes = np.sqrt(np.mean(z**2, axis=0))
    params |= {"coef": coef, "factor": covariance.start(FIRST_DEVIATION * unit / sizes)}
    return params, spread


def _first_intercept(table: Rows, family: str) -> Array:
    """The overall mean on the scale of the link as the coefficient of a constant column."""
    coef = np.zeros(table.x.shape[1])
    constant = np.flatnonzero(np.ptp(table.x, axis=0) == 0.0)
    if not len(constant) or table.x[0, constant[0]] == 0.0:
        return coef
    if family == "binomial":
        mean = (table.y[:, 0].sum() + 0.5) / (table.y[:, 1].sum() + 1.0)
    else:
        mean = (table.y.sum() + 0.5) / (len(table.y) + 1.0)
    logit = family in ("bernoulli", "binomial")
    link = np.log(mean / (1.0 - mean)) if logit else np.log(mean)
    if table.offset is not None:
        link = link - np.mean(table.offset)
    coef[constant[0]] = link / table.x[0, constant[0]]
    return coef


def _first_cuts(y: Array) -> Array:
    levels = int(y.max()) + 1
    below = np.clip([np.mean(y <= k) for k in range(levels - 1)], 1e-3, 1.0 - 1e-3)
    cuts = np.log(below / (1.0 - below))
    return np.concatenate([cuts[:1], np.log(np.maximum(np.diff(cuts), 0.05))])


def _names(
    params: dict[str, Array], columns: tuple[str, ...], covariance: Covariance
) -> tuple[str, ...]:
    names: list[str] = []
    for key in sorted(params):
        if key == "coef":
            names += columns
        elif key == "factor":
            names += covariance.parameters
        elif key == "cutpoints":
            names += [
                "cutpoint[0]",
                *(f"log step[{k}]" for k in range(1, len(params[key]))),
            ]
        else:
            names.append(key)
    return tuple(names)
