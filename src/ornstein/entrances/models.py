"""The doors to models: from arrays, from groups and from tables, in this process or on Dask."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from numpy.typing import ArrayLike

from ornstein.model import regression
from ornstein.model.families.family import Family
from ornstein.model.mixed.model import MixedModel
from ornstein.model.mixed.priors import MixedPriors
from ornstein.model.priors import Prior
from ornstein.model.regression import GLM
from ornstein.regression.mixed import from_formula, spec_of
from ornstein.regression.regress import Regression, Request


def glm(
    X: object,
    y: object,
    family: str | Family = "gaussian",
    prior_precision: ArrayLike | None = None,
    noise_scale: float | str = "infer",
    intercept: bool = True,
    weights: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    intercept_precision: float | None = None,
    classes: ArrayLike | None = None,
    link: str | None = None,
    priors: Mapping[str, Prior] | None = None,
) -> GLM:
    """A regression as a Model.

    Args:
        X: rows × columns; NumPy, JAX, pandas, polars, scipy.sparse or a memory map. Column names
            become parameter names. Beyond memory: a path to an .npy file, a Zarr array, or a
            Parquet or Arrow file or folder (see `open_table`).
        y: one value per row; labels of any kind for the two discrete families; the column's name
            where X is a table on disk.
        family: gaussian, bernoulli, categorical, poisson, negative-binomial or student-t; or one of
            `orn.families`, which can fix numbers: `orn.families.StudentT(df=4)`.
        prior_precision: None is weakly informative on the scale of the data: slopes have the
            standard deviation 2.5/sd(x), a column of two values 2.5 per step between them, times
            sd(y) for gaussian and student-t; the intercept's prior is that of a row of averages;
            noise scales and other parameters of the family have proper priors. A number, or one
            per column, is 1/variance of normal priors on the coefficients as they are, with
            everything else flat; 0 is flat.
        noise_scale: gaussian family: a number fixes σ, "infer" adds log σ as a parameter.
        intercept: whether to add an intercept.
        intercept_precision: 1/variance of a normal prior on the intercept as it is; None is flat
            where `prior_precision` is a number.
        weights: multiply the rows' log likelihoods.
        classes: the labels of the two discrete families in order, where not all of them need be in
            y.
        offset: added to the linear predictor, one number per row (categorical: one per row and
            class).
        priors: by column, "intercept" (of a row of averages) or the family's own "scale", "df",
            "dispersion": one of `orn.priors`, as `{"x0": orn.priors.Normal(0, 1)}`; the others as
            `prior_precision` says. `model.priors` lists them all.
        link: another link than the family's first: logit, probit or cloglog for bernoulli.

    >>> import numpy as np
    >>> model = glm(np.eye(3), [0, 1, 1], family="bernoulli")
    >>> model.dim, model.names
    (4, ('x0', 'x1', 'x2', 'intercept'))
    """
    settings: dict[str, Any] = {
        "family": family,
        "prior_precision": prior_precision,
        "noise_scale": noise_scale,
        "intercept": intercept,
        "weights": weights,
        "offset": offset,
        "intercept_precision": intercept_precision,
        "classes": classes,
        "link": link,
        "priors": priors,
    }
    if is_dask(X):
        from ornstein.cluster.shards import sharded_glm

        return sharded_glm(X, y, settings)  # type: ignore[return-value]
    return regression.glm(X, y, **settings)


def glmm(
    X: object,
    y: object,
    groups: object,
    Z: object = None,
    family: str = "gaussian",
    priors: MixedPriors | str | None = None,
    *,
    intercept: bool = True,
    offset: ArrayLike | None = None,
    points: int | str = "auto",
    correlated: bool = True,
    weights: ArrayLike | None = None,
    link: str | None = None,
) -> MixedModel:
    """A mixed model as a Model whose examples are groups, the groups' effects integrated out.

    Its parameters are the fixed effects, the covariance of the effects and what the family has
    besides; `summary` shows the standard deviations and correlations of the effects. The search
    for the mode takes place here.

    Args:
        X: rows × columns of the fixed effects.
        y: the response; for the binomial family two columns, successes and trials.
        groups: one label per row; all rows with the same label share their effects.
        Z: columns whose coefficients vary among groups, the intercept's column of ones included;
            None is a random intercept.
        family: gaussian (in closed form), bernoulli, binomial, poisson, negative-binomial, gamma
            (log link) or ordinal (logit, without an intercept).
        priors: None is weakly informative (`MixedPriors`); "flat" is for comparison with maximum
            likelihood.
        intercept: whether X gets a column of ones; never for the ordinal family.
        offset: added to the linear predictor, one number per row.
        points: nodes of the quadrature in each dimension; "auto" takes as many as bring its error
            below 0.01 nats over all groups. Groups with three or more effects take one (Laplace).
        correlated: whether the effects of a group may be correlated.
        weights: multiply the rows' log likelihoods given the effects.
        link: another link than the family's first, as in `glm`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(np.arange(30), 5)
    >>> y = rng.normal(size=30)[groups] + rng.normal(size=150)
    >>> model = glmm(rng.normal(size=(150, 1)), y, groups)
    >>> model.n_data, model.names
    (30, ('x0', 'intercept', 'log sd[intercept]', 'log_scale'))
    """
    from ornstein.curvature.nodes import settled
    from ornstein.model.mixed import checked

    own = intercept and family != "ordinal"
    settings = (offset, points, correlated, weights, link)
    model = checked.glmm(X, y, groups, Z, family, priors, own, *settings)
    return settled(model, None if points == "auto" else int(points))


def regress(
    formula: str,
    data: Any,
    family: Any = "auto",
    link: str | None = None,
    priors: Mapping[str, Any] | MixedPriors | str | None = None,
    missing: str = "drop",
    weights: Any = None,
    zero: str | None = None,
    scale: str | None = None,
    *,
    progress: bool = True,
) -> Regression | MixedModel:
    """A regression from a table as a Model that knows the names of its columns.

    Args:
        formula: "y ~ a + bs(b, df=5) * c + offset(log(e))", or "y ~ ." for all columns. It may call
            C, bs, cr, cc, poly, log, log1p, exp, sqrt, center, scale, I and offset, and nothing
            else. Columns of text become indicators, with the first label as the reference. Terms
            such as (1 + x | g) make it a mixed model, as in `glmm`: (x || g) for effects without
            correlation, (1 | a/b) for groups within groups, (1 | a) + (1 | b) for crossed ones.
        data: a table of pandas, polars or Arrow, a dict of columns, or the path of a CSV, Parquet
            or Arrow file.
        family: as in `glm`; "auto" is bernoulli for two values, categorical for labels, gaussian
            for other numbers.
        link: as in `glm`.
        priors: by the name of a column, of a term or of a coefficient; None is weakly informative,
            on the scale of the data. For a mixed model also `MixedPriors` or "flat".
        missing: "drop" leaves out rows with a missing value and prints how many, "error" refuses
            them, "indicator" fills them in and adds a column that says where.
        weights: multiply the rows' log likelihoods: the name of a column, or one number per row.
        zero: what explains the zeros of a zero-inflated or hurdle family, as in "x + z": the logit
            of their probability is linear in these columns.
        scale: what explains the scale of a gaussian, student-t or log-normal family: its logarithm
            is linear in these columns.
        progress: whether to print what was understood of the table.

    >>> table = {"size": [50, 70, 80, 100], "area": ["n", "s", "n", "s"], "price": [1, 3, 2, 5]}
    >>> regress("price ~ size + area", table, progress=False).names
    ('size', 'area=s', 'intercept', 'log_scale')
    """
    parts = tuple(
        (word, text) for word, text in (("zero", zero), ("scale", scale)) if text is not None
    )
    model = from_table(Request(formula, family, link, priors, missing, weights, parts=parts), data)
    if progress:
        print("\n".join(understood(model)), file=sys.stderr)
    return model


def from_table(request: Request, data: Any) -> Regression | MixedModel:
    """The model of a formula and a table, ready to be sampled."""
    from ornstein.curvature.nodes import settled

    model = from_formula(request, data)
    return settled(model, None) if isinstance(model, MixedModel) else model


def understood(model: Regression | MixedModel) -> tuple[str, ...]:
    """What was made of the table, in sentences."""
    rows = len(model.table.y) if isinstance(model, MixedModel) else model.n_data
    return spec_of(model).understood(rows)


def is_dask(value: object) -> bool:
    """Whether it is one of Dask's collections."""
    return type(value).__module__.split(".")[0] in ("dask", "dask_expr")
