"""What a sampler delivers: draws with names, summaries, predictions, the theory's word on them, and
where they came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ornstein.checks import FULL_LIMIT, brief, is_number, printable
from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.dynamics.prediction import Prediction
from ornstein.errors import InputError
from ornstein.model.coordinates import Coordinates
from ornstein.model.parameters import Layout
from ornstein.posterior.draws import Draws
from ornstein.posterior.history import Attempt
from ornstein.posterior.low_rank import Sketch
from ornstein.posterior.moments import Moments
from ornstein.posterior.questions import Questions
from ornstein.theory import Gaussian, Process, kl
from ornstein.types import Array, PyTree, Traced

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

    from ornstein.critique.critique import Critique
    from ornstein.model.model import Model
    from ornstein.posterior.group_effects import GroupEffects, Source
    from ornstein.verdict.importance import Weighted
    from ornstein.verdict.verdict import Verdict


@dataclass(frozen=True, eq=False)
class Posterior(Questions):
    """Draws from (an approximation to) the posterior.

    Attributes:
        draws: float64, (chains, draws, dim); empty along draws where only moments were kept.
        names: one per parameter. params: the user's pytree with leading axes (chains, draws).
        constrained: what `params` and `summary` show instead, by name, where the sampler works on
            transformed values (NumPyro).
        mean, covariance: of all states between the draws as well (`settings["states"]` of them), so
            more precise than those of the draws alone; where a posterior was made from draws, of
            the draws.
        dynamics, curvature, prediction: what ran, where, and what theory said would come.
        settings: seed, versions, thinning, warm-up, steps and seconds.
        model: what was inferred, for `check` to ask; kept in memory and never saved.
        history: the ways that `orn.sample` tried, with their verdicts and costs, where it chose.
        plan: what it chose among; verdict: what it found of these draws, which `check` repeats.
            Neither is saved.
        ran, coordinates: where the columns of a regression were changed for the run (far from zero,
            or nearly collinear), the posterior of the changed ones, and from its parameters to
            these. `dynamics` are those of the run.
    """

    draws: Array
    names: tuple[str, ...]
    layout: Layout
    settings: dict[str, Any]
    dynamics: Dynamics | None = None
    curvature: Curvature | None = None
    prediction: Prediction | None = None
    predict_function: Callable[..., Traced] | None = None
    moments: Gaussian | None = field(default=None, repr=False)
    constrained: dict[str, Array] | None = field(default=None, repr=False)
    model: Model | None = field(default=None, repr=False)
    history: tuple[Attempt, ...] = ()
    plan: object = field(default=None, repr=False)
    verdict: Verdict | None = field(default=None, repr=False)
    ran: Posterior | None = field(default=None, repr=False)
    coordinates: Coordinates | None = field(default=None, repr=False)

    @classmethod
    def from_run(
        cls,
        model: Model,
        dynamics: Dynamics,
        curvature: Curvature,
        prediction: Prediction,
        store: Draws | None,
        moments: Moments | Sketch,
        settings: dict[str, Any],
    ) -> Posterior:
        """Displacements from the mode as draws of θ, after the sampler's output map."""
        mean, covariance = moments.pooled()
        if dynamics.output_map is not None:
            covariance = Process.mapped(covariance, dynamics.output_map)
        displacements = (
            np.empty((len(moments.count), 0, curvature.dim)) if store is None else store.finished()
        )
        draws = _mapped(displacements, dynamics.output_map) + curvature.mode
        return cls(
            draws,
            tuple(model.names),
            model.layout,
            {**settings, "states": moments.states},
            dynamics,
            curvature,
            prediction,
            model.predict,
            Gaussian(curvature.mode + mean, covariance),
            model.constrained(draws),
            model,
        )

    @property
    def params(self) -> PyTree:
        return self.layout.unflatten(self.draws) if self.constrained is None else self.constrained

    @property
    def variables(self) -> dict[str, Array]:
        """One array (chains, draws, …) per leaf of the parameters, by its path."""
        if self.constrained is not None:
            return self.constrained
        leaves = jax.tree_util.tree_leaves(self.params)
        return {
            path: np.asarray(leaf) for path, leaf in zip(self.layout.paths, leaves, strict=True)
        }

    def named_draws(self) -> tuple[tuple[str, ...], Array]:
        """What `summary` describes: one name per column of an array (chains, draws, columns)."""
        if self.constrained is None:
            return self.names, self.draws
        # the order of a Layout
        values = [self.constrained[name] for name in sorted(self.constrained)]
        layout = Layout.of({name: array[0, 0] for name, array in self.constrained.items()})
        return layout.names(), np.concatenate(
            [array.reshape(*array.shape[:2], -1) for array in values], axis=2
        )

    @cached_property
    def mean(self) -> Array:
        return self.moments.mean if self.moments is not None else self.draws.mean(axis=(0, 1))

    @cached_property
    def covariance(self) -> Array:
        if self.moments is not None:
            return self.moments.covariance
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        if flat.shape[1] > FULL_LIMIT:
            return flat.var(axis=0, ddof=1)
        centred = flat - flat.mean(axis=0)
        return centred.T @ centred / (flat.shape[0] - 1)

    @property
    def sd(self) -> Array:
        return np.sqrt(
            self.covariance if self.covariance.ndim == 1 else np.diagonal(self.covariance)
        )

    def moment_process(self) -> Process:
        """The predicted process of the states that `mean` and `covariance` were taken from."""
        return replace(self.delivered_process(), spacing=self.settings["moment_spacing"])

    def delivered_process(self) -> Process:
        """The predicted process of the draws as they are spaced here."""
        if self.prediction is None or self.prediction.process is None or self.dynamics is None:
            raise InputError("this posterior was not made by a sampler whose law is predicted")
        return replace(self.prediction.process, spacing=self.settings["thin"])

    def kl_to(self, reference: Gaussian | Posterior) -> tuple[float, float]:
        """KL(these draws ‖ reference) and KL(reference ‖ these draws), both as Gaussians."""
        if not isinstance(reference, Gaussian | Posterior):
            raise InputError(
                "reference must be a Posterior or a theory.Gaussian; got a"
                f" {type(reference).__name__}"
            )
        own = Gaussian(self.mean, self.covariance)
        other = (
            reference
            if isinstance(reference, Gaussian)
            else Gaussian(reference.mean, reference.covariance)
        )
        return kl(own, other), kl(other, own)

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """Mean, sd, central interval, Monte-Carlo error, effective sample size (bulk and tail) and
        R-hat per parameter.

        Its `attrs["passes_per_draw"]` says how often each row of the data was looked at for one
        draw; for draws that are means over windows, the table's corner says it too.
        `attrs["history"]` holds the ways that `orn.sample` tried. Regressions have their priors in
        `attrs["priors"]`, those from a table also in a column, and the corner names parameters of
        which the prior says more than the data.
        """
        import pandas

        if not is_number(probability) or not 0.0 < probability < 1.0:
            raise InputError(f"probability must lie between 0 and 1; got {brief(probability)}")
        low, high = (1.0 - probability) / 2.0, (1.0 + probability) / 2.0
        if not self.draws.shape[1]:
            return pandas.DataFrame({"mean": self.mean, "sd": self.sd}, index=_labels(self.names))
        from ornstein.posterior.statistics import effective_sample_size, split_r_hat

        names, draws = self.named_draws()
        # what importance weights leave is not seen in the draws
        most = self.settings.get("effective_draws", np.inf)
        rows = []
        for position in range(len(names)):
            values = draws[:, :, position]
            bulk = min(effective_sample_size(values, "bulk"), most)
            rows.append(
                {
                    "mean": values.mean(),
                    "sd": values.std(ddof=1),
                    f"{100 * low:g}%": np.quantile(values, low),
                    f"{100 * high:g}%": np.quantile(values, high),
                    "mcse": values.std(ddof=1) / np.sqrt(bulk),
                    "ess_bulk": bulk,
                    "ess_tail": min(effective_sample_size(values, "tail"), most),
                    "r_hat": split_r_hat(values),
                }
            )
        table = pandas.DataFrame(rows, index=_labels(names))
        if self.history:
            table.attrs["history"] = [str(attempt) for attempt in self.history]
        if self.dynamics is not None and self.curvature is not None:
            passes = self.settings["thin"] * self.dynamics.batch_size / self.curvature.n_data
            table.attrs["passes_per_draw"] = passes
            table.columns.name = (
                f"passes per draw: {passes:.3g}" if self.dynamics.window > 1 else None
            )
        return self._with_priors(table)

    def _with_priors(self, table: pandas.DataFrame) -> pandas.DataFrame:
        from ornstein.model.regression import GLM
        from ornstein.posterior.prior_words import outweighed, priors_of, sentence, shares_of_priors
        from ornstein.regression.mixed import table_of

        spec = table_of(self.predict_function)
        known = spec.priors if spec is not None else {}
        if isinstance(self.model, GLM):
            known = self.model.priors
        if not known:
            return table
        table.attrs["priors"] = dict(zip(table.index, priors_of(table.index, known), strict=True))
        shares = shares_of_priors(self.model, self.mean, self.covariance)
        if names := outweighed(self.names, shares):
            before = f"{table.columns.name}; " if table.columns.name else ""
            table.columns.name = f"{before}{sentence(names)}"
        return (
            table.assign(prior=list(table.attrs["priors"].values())) if spec is not None else table
        )

    def __repr__(self) -> str:
        chains, draws, size = self.draws.shape
        how = self.settings.get("way") or self.settings.get("sampler")
        if self.dynamics is not None:
            how = self.dynamics.sampler
        by = f", by {printable(how)}" if how else ""
        return f"Posterior({size:,} parameters, {chains} × {draws:,} draws{by})"

    def _repr_html_(self) -> str:
        """With trust in the draws there is always the answer on the model beside it."""
        from ornstein.posterior.notebook import as_html

        levels = {}
        if self.verdict is not None:
            levels = {"Verdict": self.verdict.level, "Model": self.critique().level}
        return as_html(repr(self), levels, self.summary())

    def check(
        self,
        model: Model | None = None,
        *,
        stein: bool | int = False,
        seed: int = 0,
        of: Callable[[PyTree], ArrayLike] | None = None,
    ) -> Verdict:
        """Can it be trusted? Findings in words and numbers, for a few per cent of the sampling
        time.

        Args:
            model: where it is not at hand, after `orn.load`; without it what needs the data is
                skipped, and said to be.
            stein: also the kernel Stein discrepancy of a few hundred draws; a number is the
                minibatch size of its gradients.
            seed: of the points that the posterior is evaluated at.
            of: a function of the parameters (`params` at one draw) that returns a number or more;
                the verdict is then on these alone, as far as chains can tell.
        """
        if of is not None:
            from ornstein.verdict.quantity import verdict_on

            return verdict_on(self, of)
        own = model is None or model is self.model
        if self.verdict is not None and own and not stein and seed == 0:
            return self.verdict
        from ornstein.verdict.verdict import check

        return check(self, model, stein=stein, seed=seed)

    def critique(self, model: Model | None = None, *, seed: int = 0) -> Critique:
        """Does the model fit the data? Findings with the size of what is missed, and a remedy;
        whether the draws can be trusted is another question, for `check`.

        After `orn.load` give the model, which holds the data. At most 20,000 rows are examined,
        drawn by `seed`.
        """
        from ornstein.critique.critique import critique

        own = (model is None or model is self.model) and seed == 0
        return self._critique if own else critique(self, model, seed=seed)

    @cached_property
    def _critique(self) -> Critique:
        from ornstein.critique.critique import critique

        return critique(self)

    def reweight(self, draws: int = 1000, *, model: Model | None = None, seed: int = 0) -> Weighted:
        """Points of the draws' Gaussian, importance-weighted (PSIS) to stand for the posterior; one
        pass over the data each.

        For few parameters, and where the draws are near: `pareto_k` above 0.7 says that they are
        not.
        """
        from ornstein.verdict.importance import reweigh

        return reweigh(self, model, draws, seed)

    def group_effects(
        self,
        name: str | None = None,
        *,
        groups: ArrayLike | None = None,
        draws: int = 400,
        seed: int = 0,
    ) -> GroupEffects:
        """Draws of the effects of groups given the data, for some draws of the parameters of a
        mixed model: `summary()`, `shrinkage` and a caterpillar `plot()`.

        Args:
            name: of the factor in the formula, where there are several.
            groups: labels; None is all groups.
            draws: at how many draws of the posterior.
            seed: same seed, same draws.
        """
        from ornstein.posterior.group_effects import group_effects

        return group_effects(self._source(), name, groups, draws, seed)

    def _source(self) -> Source:
        """What the effects of groups need to know of the posterior."""
        from ornstein.posterior.group_effects import Source

        flat = self.draws.reshape(-1, self.draws.shape[-1])
        return Source(flat, self.layout, self.model, self.predict_function)

    def report(self, path: str | Path, model: Model | None = None) -> Path:
        """Write an HTML page that needs nothing else: verdict, coefficients, covariance, chains,
        settings.

        After `orn.load` give the model too, for what needs the data: some findings, and how well
        predictions are calibrated.
        """
        from ornstein.interfaces.report import write_report

        return write_report(self, path, model=model)

    def save(self, path: str | Path) -> Path:
        """Write a file that `orn.load` reads; numbers and JSON only, no pickle."""
        from ornstein.posterior.storage import save_posterior

        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path must be the name of a file; got {brief(path)}")
        return save_posterior(self, Path(path))


def _labels(names: tuple[str, ...]) -> pandas.Index:
    """Names as Python's own texts: those of Arrow cannot hold every one."""
    import pandas

    return pandas.Index(list(names), dtype=object)


def _mapped(displacements: Array, scale: Array | None) -> Array:
    """The output map applied to the deviations from the mean of all draws."""
    if scale is None or not displacements.shape[1]:
        return displacements
    mean = displacements.mean(axis=(0, 1))
    deviations = displacements - mean
    return mean + (deviations @ scale.T if scale.ndim == 2 else deviations * scale)
