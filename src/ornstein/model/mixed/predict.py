"""E[y | x, b, θ] for new rows of a mixed model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ornstein.checks import require_finite
from ornstein.errors import InputError
from ornstein.model import tables
from ornstein.model.families.table import family_of
from ornstein.model.mixed.covariance import Covariance
from ornstein.model.mixed.density import FAMILIES, RowDensity
from ornstein.model.parameters import Layout
from ornstein.types import Array, Meta, PyTree, Traced


def later_link(family: str, link: str | None) -> str:
    """The link of a family, checked; empty for its first.

    >>> later_link("bernoulli", "probit"), later_link("bernoulli", "logit")
    ('probit', '')
    """
    law = family_of(family, link or None)
    return "" if law.link == law.links[0] else law.link


@dataclass(frozen=True, eq=False)
class NewGroupRows:
    """Rows to predict.

    Attributes:
        x: of the fixed effects; z: of all effects that vary, factor after factor.
        labels: of the groups, one column for each factor; None where they are not known.
        offset: one number per row. complete: which rows have all that they need; None is all.
        said: why the others have not.
    """

    x: Array
    z: Array
    labels: tuple[Array | None, ...]
    offset: Array | None = None
    complete: Array | None = None
    said: str = ""


@dataclass(frozen=True)
class MixedPredict:
    """Called on the columns of X alone it predicts for the average group, whose effects are zero.

    Attributes:
        family: of the response. covariance: of the effects.
        columns: of the fixed effects, the intercept's included where there is one.
        intercept: whether a column of ones is added to what is given.
        factors: what groups the rows, by name, and how many effects each has; their effects are
            one after the other in the covariance.
        link: empty for the family's first.
    """

    family: str
    covariance: Covariance
    columns: tuple[str, ...]
    intercept: bool
    factors: tuple[tuple[str, int], ...]
    link: str = ""

    def __call__(self, params: PyTree, x: Traced) -> Traced:
        return self.mean(self.fixed_part(params, x), params)

    def fixed_part(self, params: PyTree, x: Traced) -> Traced:
        """Xβ."""
        own = len(self.columns) - self.intercept
        if x.shape[-1] != own:
            raise InputError(f"predict needs rows of {own} columns; these have {x.shape[-1]}")
        if self.intercept:
            x = jnp.concatenate([x, jnp.ones_like(x[..., :1])], axis=-1)
        return x @ params["coef"]

    def mean(self, predictor: Traced, params: PyTree) -> Traced:
        """E[y | u]."""
        return self.density.mean(predictor, params)

    @property
    def density(self) -> RowDensity:
        """log p(y | u) of a row."""
        return RowDensity(self.family, self.link)

    @property
    def names(self) -> tuple[str, ...]:
        """What groups the rows."""
        return tuple(name for name, _ in self.factors)

    def part(self, place: int) -> slice:
        """Which of all effects are those of a factor."""
        start = sum(count for _, count in self.factors[:place])
        return slice(start, start + self.factors[place][1])

    def effect_names(self, place: int) -> tuple[str, ...]:
        """The effects of a factor, without its name."""
        name = self.factors[place][0]
        return tuple(
            effect.removesuffix(f"|{name}") for effect in self.covariance.effects[self.part(place)]
        )

    def new_rows(self, inputs: Any) -> NewGroupRows:
        """X, Z (ones for a random intercept), labels and offset, from X or a dict of these."""
        given = inputs if isinstance(inputs, dict) else {"X": inputs}
        if "X" not in given or set(given) - {"X", "Z", "groups", "offset"}:
            raise InputError(
                "give the rows to predict as X, or as a dict with 'X', 'groups', 'Z' and 'offset'"
            )
        tables.require_one_index(given.items())
        x = _columns(given["X"], self.columns[: len(self.columns) - self.intercept], "X")
        effects = len(self.covariance.effects)
        if "Z" in given:
            z = _columns(given["Z"], self.covariance.effects, "Z")
        else:
            z = np.ones((len(x), 1))
        if z.shape != (len(x), effects):
            raise InputError(f"predict needs Z of shape {(len(x), effects)}; it has {z.shape}")
        labels = tables.labels(given["groups"], "groups") if "groups" in given else None
        if labels is not None and labels.shape != (len(x),):
            raise InputError(f"X has {len(x)} rows but groups has shape {labels.shape}")
        offset = tables.numbers(given["offset"], "offset") if "offset" in given else None
        if offset is not None and offset.shape != (len(x),):
            raise InputError(f"X has {len(x)} rows but offset has shape {offset.shape}")
        return NewGroupRows(x, z, (labels,), offset)

    def to_json(self) -> dict[str, Any]:
        """As plain values, for a file."""
        return {
            "family": self.family,
            "effects": list(self.covariance.effects),
            "blocks": list(self.covariance.blocks),
            "columns": list(self.columns),
            "intercept": self.intercept,
            "factors": [list(factor) for factor in self.factors],
            "link": self.link,
        }

    @classmethod
    def from_json(cls, meta: Meta, layout: Layout) -> MixedPredict:
        """What `to_json` wrote, refused where it does not fit the parameters."""
        covariance = Covariance(
            tuple(str(name) for name in meta["effects"]), tuple(int(n) for n in meta["blocks"])
        )
        count = len(covariance.effects)
        factors = tuple(
            (str(name), int(size)) for name, size in meta.get("factors", [["group", count]])
        )
        columns = tuple(str(name) for name in meta["columns"])
        sizes = dict(zip(layout.paths, layout.shapes, strict=True))
        fits = sizes["coef"] == (len(columns),) and sizes["factor"] == (covariance.size,)
        whole = sum(covariance.blocks) == count == sum(size for _, size in factors)
        if meta["family"] not in FAMILIES or not fits or not whole:
            raise ValueError("a mixed model that does not fit its parameters")
        link = later_link(meta["family"], meta.get("link"))
        return cls(meta["family"], covariance, columns, bool(meta["intercept"]), factors, link)


def _columns(table: Any, names: tuple[str, ...], what: str) -> Array:
    """The matrix of some rows; the columns of a frame are found by name, where the fit's had
    names.
    """
    matrix, given = tables.features(table, what)
    found = np.asarray(matrix.toarray() if tables.is_sparse(matrix) else matrix, dtype=float)
    numbered = {tables.numbered(len(names)), tuple(f"z{place}" for place in range(len(names)))}
    if tables.is_frame(table) and (names not in numbered or set(given) == set(names)):
        found = found[:, tables.places_of(given, names)]
    require_finite(what, found, given)
    return found
