"""What a posterior answers about rows: predictions, effects and leave-one-out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import ArrayLike

from ornstein.checks import is_whole
from ornstein.errors import InputError
from ornstein.model.families.likelihood import Predict
from ornstein.model.mixed.predict import MixedPredict
from ornstein.model.parameters import Layout
from ornstein.posterior.at_draws import RowsAtDraws
from ornstein.posterior.new_rows import asked_rows
from ornstein.posterior.own_function import OwnPredictive, of_function
from ornstein.posterior.own_model import model_of
from ornstein.posterior.predictive import Given, Placed, Predictive
from ornstein.streams import generator
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    from ornstein.curvature.curvature import Curvature
    from ornstein.model.model import Model
    from ornstein.posterior.effects import Effects
    from ornstein.posterior.loo import Loo


class Fitted(Protocol):
    """What the answers are made from: a Posterior."""

    @property
    def draws(self) -> Array: ...
    @property
    def mean(self) -> Array: ...
    @property
    def covariance(self) -> Array: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def variables(self) -> dict[str, Array]: ...
    @property
    def predict_function(self) -> Callable[..., Traced] | None: ...
    @property
    def model(self) -> Model | None: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def curvature(self) -> Curvature | None: ...


class Questions:
    """The methods of a Posterior that look at rows."""

    def predict(
        self: Fitted,
        inputs: PyTree,
        draws: int | None = 1000,
        seed: int = 0,
        groups: str | None = None,
        model: Model | None = None,
        *,
        offset: ArrayLike | float | None = None,
    ) -> Predictive:
        """What is predicted for new rows, from at most `draws` draws of the posterior, in float64:
        `.mean`, `.sd` and `.interval()` of the expectation E[y | inputs, θ], and the same of a
        single new value, noise included, in `.outcome`.

        Where the model was made from a table with column names, a data frame's columns are found
        by name, and `regress` takes the offset from the new rows too. An array's columns are taken
        in the order of the model's. Sparse rows stay sparse. A model of `glm` with an offset needs
        `offset` for these rows: a number, or one per row.

        For a mixed model `groups` says which effects enter: those of the "known" groups that the
        rows belong to, those of "new" ones, drawn from their distribution, or none, as in the
        "average" group, which is the default. Rows of `glmm` are then X, or a dict with X, groups
        and Z; those of a formula are a table, whose columns say which groups.

        `model` is needed after `orn.load` for known groups, and for outcomes with a known noise
        scale.
        """
        if self.predict_function is None:
            raise InputError("the model has no predict function: give one to Model(predict=…)")
        chosen = _some_draws(self.draws, draws, seed)
        if groups is not None or isinstance(self.predict_function, MixedPredict):
            from ornstein.posterior.group_effects import Source, predicted

            known = model_of(self, model)
            source = Source(chosen, self.layout, known, self.predict_function)
            return predicted(source, inputs, groups or "average", seed)
        if isinstance(self.predict_function, OwnPredictive):
            return Predictive(self.predict_function.simulated(self.layout, chosen, inputs, seed))
        if not isinstance(self.predict_function, Predict):
            found = of_function(self.predict_function, self.layout, chosen, inputs)
            return Predictive(Given(found))
        width = self.layout.shapes[self.layout.paths.index("coef")][0]
        asked = asked_rows(self.predict_function, width, inputs, offset)
        model = model_of(self, model)
        fixed = {} if model is None else model.hyperparameters
        rows = RowsAtDraws(
            self.predict_function.likelihood,
            self.layout,
            chosen,
            self.mean,
            asked.matrix,
            asked.offset,
            float(fixed["noise_scale"]) if "noise_scale" in fixed else None,
        )
        labels = _labels(self.predict_function, model)
        return Predictive(rows, Placed(asked.complete, asked.single), labels)

    def effects(
        self: Fitted,
        column: str,
        data: object = None,
        *,
        model: Model | None = None,
        draws: int | None = 1000,
        seed: int = 0,
    ) -> Effects:
        """What a column does to the expectation, in the outcome's units: a `curve` along its
        values with intervals; the average marginal effect, which is the slope dE[y]/dx of numbers
        and the difference to the first label of labels; and `ratios` where the link has them.

        Averages are over the rows of `data`, or of the model.
        """
        from ornstein.posterior.averaged_rows import Rows
        from ornstein.posterior.effects import average_effect

        model = model_of(self, model)
        rows = Rows.of(data, model, self.predict_function, "effects")
        return average_effect(at_draws_of(self, draws, seed), rows, column)

    def predict_at(
        self: Fitted,
        data: object = None,
        *,
        model: Model | None = None,
        draws: int | None = 1000,
        seed: int = 0,
        **levels: object,
    ) -> Effects:
        """The average expectation over rows where one column has each of some values:
        `predict_at(carrier=["AA", "DL"])`. The rows are those of `data`, or of the model.
        """
        from ornstein.posterior.averaged_rows import Rows
        from ornstein.posterior.effects import average_at

        if len(levels) != 1:
            raise InputError(f"predict_at takes one column with its values; got {list(levels)}")
        ((column, values),) = levels.items()
        model = model_of(self, model)
        rows = Rows.of(data, model, self.predict_function, "predict_at")
        chosen = (
            [values] if isinstance(values, str) or not isinstance(values, Iterable) else [*values]
        )
        return average_at(at_draws_of(self, draws, seed), rows, column, chosen)

    def loo(
        self: Fitted, model: Model | None = None, *, subset: int | None = None, seed: int = 0
    ) -> Loo:
        """The expected log density of new rows, by leaving out one after the other (PSIS).

        Args:
            model: where it is not at hand, after `orn.load`.
            subset: how many rows to smooth, drawn at random; None is all up to 2 GB, else 1000.
            seed: of these rows, and of the draws where there are more than 2000.
        """
        from ornstein.posterior.loo import loo

        flat = self.draws.reshape(-1, self.draws.shape[-1])
        return loo(flat, self.mean, model_of(self, model), subset, seed)

    def sandwich(self: Fitted, model: Model | None = None) -> Array:
        """The robust covariance of the parameters, (D, D): the posterior's covariance V as V G V,
        with G the covariance of the rows' summed gradients.

        It holds for large N where the likelihood is not the law of the data. For quantile
        regression, whose likelihood never is, these are the widths to report.

        `model` is needed after `orn.load`.
        """
        from ornstein.posterior.sandwich import sandwich

        return sandwich(model_of(self, model), self.mean, self.covariance)

    def to_arviz(
        self: Fitted, groups: Sequence[str] = (), *, model: Model | None = None, seed: int = 0
    ) -> Any:
        """An ArviZ InferenceData (0.x) or DataTree (1.x), one variable per leaf of the parameters.

        Args:
            groups: others beside the posterior, of "posterior_predictive", "log_likelihood" and
                "observed_data", which comes with either of a regression; each has the variable "y",
                and is refused above 2 GB. Those of a NumPyro model have its sites, deterministic
                ones with the predictive.
            model: where it is not at hand, after `orn.load`, and groups are asked for.
            seed: of the posterior_predictive.
        """
        from ornstein.posterior.arviz import inference_data

        attributes = {name: str(value) for name, value in self.settings.items()}
        if not groups:
            return inference_data(self.variables, attributes)
        from ornstein.posterior.pointwise import groups_of

        model = model_of(self, model)
        others = groups_of(groups, model, self.draws, self.mean, seed)
        return inference_data(self.variables, attributes, others=others)


def at_draws_of(
    posterior: Fitted, draws: int | None, seed: int = 0
) -> Callable[[PyTree], Predictive]:
    """What is predicted for rows at the same draws each time."""
    return lambda rows: Questions.predict(posterior, rows, draws, seed)


def _labels(predict: Predict, model: Model | None) -> tuple[str, ...]:
    """The labels of the outcome, of a table or of a model at hand."""
    spec = getattr(predict, "spec", None)
    classes = getattr(model, "classes", None) if spec is None else spec.classes
    return () if classes is None else tuple(str(label) for label in classes)


def _some_draws(given: Array, draws: int | None, seed: int) -> Array:
    """At most this number of all draws, (n, D), without replacement."""
    rng = generator(seed)
    flat = given.reshape(-1, given.shape[-1])
    if not len(flat):
        raise InputError(
            "there are no draws to predict with: only their moments were kept (keep='moments')"
        )
    if draws is not None and (not is_whole(draws) or draws < 1):
        raise InputError(f"draws must be a whole number, 1 or more; got {draws!r}")
    if draws is None or draws >= len(flat):
        return flat
    return flat[rng.choice(len(flat), int(draws), replace=False)]
