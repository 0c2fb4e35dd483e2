"""Mixed models as Models whose examples are groups.

The log likelihood of an example is that of all rows of a group, the group's effects integrated
out. N is the number of groups, and the parameters are the fixed effects, the covariance of the
effects and what the family has besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.errors import CurvatureError, InputError
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import SHAPES, cut_points
from ornstein.model.mixed.gaussian import GaussianMarginal, compressed
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.mixed.priors import LogPrior, MixedPriors
from ornstein.model.mixed.quadrature import QuadratureMarginal
from ornstein.model.mixed.start import first_guess, parameter_names
from ornstein.model.mixed.table import Rows, ragged_data
from ornstein.model.model import CHUNK_NUMBERS, Model, Span, flat_prior, spans_of
from ornstein.model.on_device import on_device
from ornstein.rows.grouped import GroupedRows
from ornstein.rows.ragged import Buckets, Ragged
from ornstein.rows.strata import Strata
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas

# The fall of log τ between the start of the search and where a component is called zero, and the w
# from which on a correlation is called one.
VANISHED, ONE = 7.0, 1000.0
FIRST_POINTS = {1: 9, 2: 5}  # nodes in each dimension, by the number of effects; else one


class MixedModel(Model):
    """A Model whose examples are groups; made by `glmm`.

    Attributes:
        family: of the response. covariance: of the effects.
        marginal: the log likelihood of a group.
        table: the rows, group by group, as they were given; `counts` is how many each group has.
        levels: the groups' labels, in the order of the examples.
        quadrature_error: of the log likelihood, in nats over all groups; 0 for a closed form.
        first: where the search for the mode began.
        strata: how many groups of each size a minibatch has, where these are fixed numbers.
        frame: of a formula, the rows of the table that it uses.
    """

    family: str
    covariance: Covariance
    marginal: GaussianMarginal | QuadratureMarginal
    table: Rows
    counts: Array
    levels: Array
    columns: tuple[str, ...]
    quadrature_error: float
    first: np.ndarray
    strata: Strata | None = None
    frame: pandas.DataFrame | None = None

    @property
    def factors(self) -> tuple[str, ...]:
        """What groups the rows."""
        assert isinstance(self.predict, MixedPredict)
        return self.predict.names

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

    def reweighted(self, factors: np.ndarray) -> Model:
        """Refused: groups are drawn alike, or by their size."""
        raise InputError(
            "the groups of a mixed model are not weighted: use the scheme 'replacement' or"
            " 'stratified'"
        )

    def require_mode(self, theta: np.ndarray) -> None:
        """Refuse a component on its way to zero, in words."""
        self.require_components(theta)

    def require_components(self, theta: np.ndarray) -> None:
        """Refuse a standard deviation that runs to zero, and a correlation that runs to one."""
        parameters = self.layout.unflatten(theta)["factor"]
        start = self.layout.unflatten(self.first)["factor"]
        for place, (i, j) in enumerate(self.covariance.places):
            name = self.covariance.effects[i]
            if i == j and parameters[place] < start[place] - VANISHED:
                raise CurvatureError(
                    f"the standard deviation of {name!r} among groups tends to zero"
                    f" ({np.exp(parameters[place]):.1g}): the groups differ in it no more than"
                    " chance explains, and under a flat prior the likelihood has no interior"
                    " maximum."
                    " Drop the effect, or use the default prior (priors=None), under which it stays"
                    " small"
                )
            if i != j and abs(parameters[place]) > ONE:
                other = self.covariance.effects[j]
                raise CurvatureError(
                    f"the correlation of {other!r} and {name!r} among groups tends to"
                    f" {np.sign(parameters[place]):+.0f}: the data do not tell them apart, and"
                    " under a flat prior the likelihood has no interior maximum. Use the default"
                    " prior (priors=None), or uncorrelated effects, (x || g) or correlated=False"
                )

    def component_places(self) -> list[int]:
        """Where the logarithms of L's diagonal are among the parameters."""
        begin = self.names.index(self.covariance.parameters[0])
        return [begin + k for k, (i, j) in enumerate(self.covariance.places) if i == j]

    def edges(self, theta: Array) -> list[tuple[int, float]]:
        """For each number of the covariance its place among the parameters and a value at which a
        standard deviation counts as zero, or a correlation as one.
        """
        begin = self.names.index(self.covariance.parameters[0])
        return [
            (begin + k, self.first[begin + k] - VANISHED - 2.0)
            if i == j
            else (begin + k, float(np.copysign(2.0 * ONE, theta[begin + k])))
            for k, (i, j) in enumerate(self.covariance.places)
        ]

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
            self.strata,
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
) -> MixedModel:
    """The model of checked rows, with a first guess of the parameters and of the nodes."""
    table, counts, order = rows.sorted_by_group()
    family, covariance, columns = predict.family, predict.covariance, predict.columns
    effects = len(covariance.effects)
    params, spread = first_guess(table, family, predict.link, covariance)
    marginal: GaussianMarginal | QuadratureMarginal
    if family == "gaussian":
        marginal, data = GaussianMarginal(covariance), _gaussian_data(table, counts)
    else:
        points = FIRST_POINTS.get(effects, 1) if points is None else points
        marginal = QuadratureMarginal(predict.density, covariance, points)
        data = ragged_data(table, counts, counts)
    prior, hyper = log_prior_of(table, family, covariance, priors, spread, columns)
    base = MixedModel(
        marginal,
        {name: leaf[0:1] for name, leaf in data.items()},
        prior,
        params,
        predict,
        hyper,
        names=parameter_names(params, columns, covariance),
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
        columns=columns,
        first=base.init,
        quadrature_error=0.0,
    )


def _gaussian_data(table: Rows, counts: Array) -> dict[str, Any]:
    x, z, weight = table.x, table.z, table.weight
    y = table.y if table.offset is None else table.y - table.offset
    if weight is not None:  # a row that counts w times is one of √w its length
        root = np.sqrt(weight)[:, None]
        x, y, z = root * x, root[:, 0] * y, root if z is None else root * z
    squeezed, held = compressed(x, z, y, counts)
    p = x.shape[1]
    # Rows of a triangle have no intercept of ones: its column is kept wherever rows were squeezed.
    kept = None if z is None and np.all(held == counts) else squeezed[:, p:-1]
    number = counts if weight is None else np.bincount(table.codes, weight)
    return ragged_data(Rows(squeezed[:, :p], kept, squeezed[:, -1], table.codes), held, number)


def log_prior_of(
    table: Rows,
    family: str,
    covariance: Covariance,
    priors: MixedPriors | str | None,
    spread: float,
    columns: tuple[str, ...],
) -> tuple[Any, dict[str, Array]]:
    """The prior's log density and its numbers."""
    if isinstance(priors, str):
        if priors != "flat":
            raise InputError(f"priors must be None, 'flat' or MixedPriors; got {priors!r}")
        return flat_prior, {}
    chosen = MixedPriors() if priors is None else priors
    if not isinstance(chosen, MixedPriors):
        raise InputError(
            f"priors must be None, 'flat' or MixedPriors; got a {type(chosen).__name__}"
        )
    return LogPrior(family, covariance), chosen.hyperparameters(table, spread, columns)
