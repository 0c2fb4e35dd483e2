"""What a sampler delivers: draws with names, summaries, predictions, the theory's word on them, and where they came from."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.checks import brief, is_number
from ornstein.collect import Draws, Moments
from ornstein.curvature import Curvature
from ornstein.dynamics import Dynamics
from ornstein.errors import InputError
from ornstein.layout import Layout
from ornstein.minibatch import is_whole
from ornstein.model import FULL_LIMIT
from ornstein.prediction import Prediction
from ornstein.sketch import Sketch
from ornstein.theory import Gaussian, Process, kl

if TYPE_CHECKING:
    import pandas

    from ornstein.diagnostics.importance import Weighted
    from ornstein.diagnostics.verdict import Verdict
    from ornstein.model import Model

Array = np.ndarray


def provenance() -> dict[str, str]:
    """Versions of what computed the draws."""
    import scipy

    from ornstein import __version__

    return {
        "ornstein": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


@dataclass(frozen=True, eq=False)
class Predictive:
    """Draws of E[y | x, θ] for new rows, shape (draws, rows, …), with their mean and standard deviation over the posterior."""

    draws: Array

    @property
    def mean(self) -> Array:
        return self.draws.mean(axis=0)

    @property
    def sd(self) -> Array:
        return self.draws.std(axis=0, ddof=1)

    def interval(self, probability: float = 0.95) -> tuple[Array, Array]:
        """Lower and upper ends of the central interval."""
        tail = (1.0 - probability) / 2.0
        low, high = np.quantile(self.draws, [tail, 1.0 - tail], axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws from (an approximation to) the posterior.

    Attributes:
        draws: float64, (chains, draws, dim); empty along draws where only moments were kept.
        names: one per parameter. params: the user's pytree with leading axes (chains, draws).
        constrained: what `params` and `summary` show instead, by name, where the sampler works on transformed values (NumPyro).
        mean, covariance: of all states between the draws as well (`settings["states"]` of them), so more precise than those of
            the draws alone; where a posterior was made from draws, of the draws.
        dynamics, curvature, prediction: what ran, where, and what theory said would come.
        settings: seed, versions, thinning, warm-up, steps and seconds.
        model: what was inferred, for `check` to ask; kept in memory and never saved.
    """

    draws: Array
    names: tuple[str, ...]
    layout: Layout
    settings: dict[str, Any]
    dynamics: Dynamics | None = None
    curvature: Curvature | None = None
    prediction: Prediction | None = None
    predict_function: Any = None
    moments: Gaussian | None = field(default=None, repr=False)
    constrained: dict[str, Array] | None = field(default=None, repr=False)
    model: Model | None = field(default=None, repr=False)

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
    def params(self) -> Any:
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
        values = [
            self.constrained[name] for name in sorted(self.constrained)
        ]  # the order of a Layout
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
                f"reference must be a Posterior or a theory.Gaussian; got a {type(reference).__name__}"
            )
        own = Gaussian(self.mean, self.covariance)
        other = (
            reference
            if isinstance(reference, Gaussian)
            else Gaussian(reference.mean, reference.covariance)
        )
        return kl(own, other), kl(other, own)

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """Mean, sd, central interval, Monte-Carlo error, effective sample size (bulk and tail) and R-hat per parameter.

        Its `attrs["passes_per_draw"]` says how often each row of the data was looked at for one draw; for draws that are
        means over windows, the table's corner says it too.
        """
        import pandas

        if not is_number(probability) or not 0.0 < probability < 1.0:
            raise InputError(f"probability must lie between 0 and 1; got {brief(probability)}")
        low, high = (1.0 - probability) / 2.0, (1.0 + probability) / 2.0
        if not self.draws.shape[1]:
            return pandas.DataFrame({"mean": self.mean, "sd": self.sd}, index=list(self.names))
        from ornstein.draw_statistics import effective_sample_size, split_r_hat

        names, draws = self.named_draws()
        rows = []
        for position in range(len(names)):
            values = draws[:, :, position]
            bulk = effective_sample_size(values, "bulk")
            rows.append(
                {
                    "mean": values.mean(),
                    "sd": values.std(ddof=1),
                    f"{100 * low:g}%": np.quantile(values, low),
                    f"{100 * high:g}%": np.quantile(values, high),
                    "mcse": values.std(ddof=1) / np.sqrt(bulk),
                    "ess_bulk": bulk,
                    "ess_tail": effective_sample_size(values, "tail"),
                    "r_hat": split_r_hat(values),
                }
            )
        table = pandas.DataFrame(rows, index=list(names))
        if self.dynamics is not None and self.curvature is not None:
            passes = self.settings["thin"] * self.dynamics.batch_size / self.curvature.n_data
            table.attrs["passes_per_draw"] = passes
            table.columns.name = (
                f"passes per draw: {passes:.3g}" if self.dynamics.window > 1 else None
            )
        return table

    def check(
        self, model: Model | None = None, *, stein: bool | int = False, seed: int = 0
    ) -> Verdict:
        """Can it be trusted? Findings in words and numbers, for a few per cent of the sampling time.

        Args:
            model: where it is not at hand, after `orn.load`; without it what needs the data is skipped, and said to be.
            stein: also the kernel Stein discrepancy of a few hundred draws; a number is the minibatch size of its gradients.
            seed: of the points that the posterior is evaluated at.
        """
        from ornstein.diagnostics.verdict import check

        return check(self, model, stein=stein, seed=seed)

    def reweight(self, draws: int = 1000, *, model: Model | None = None, seed: int = 0) -> Weighted:
        """Points of the draws' Gaussian, importance-weighted (PSIS) to stand for the posterior; one pass over the data each.

        For few parameters, and where the draws are near: `pareto_k` above 0.7 says that they are not.
        """
        from ornstein.diagnostics.importance import reweigh
        from ornstein.diagnostics.subject import Subject

        return reweigh(Subject(self, model if model is not None else self.model, seed), draws)

    def predict(self, inputs: Any, draws: int | None = 1000, seed: int = 0) -> Predictive:
        """E[y | inputs, θ] over the posterior, for at most `draws` of its draws."""
        if self.predict_function is None:
            raise InputError("the model has no predict function: give one to Model(predict=…)")
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        if not len(flat):
            raise InputError(
                "there are no draws to predict with: only their moments were kept (keep='moments')"
            )
        if draws is not None and (not is_whole(draws) or draws < 1):
            raise InputError(f"draws must be a whole number, 1 or more; got {draws!r}")
        if draws is not None and draws < len(flat):
            flat = flat[np.random.default_rng(seed).choice(len(flat), draws, replace=False)]
        values = (
            inputs.to_numpy()
            if hasattr(inputs, "to_numpy")
            else inputs.toarray()
            if hasattr(inputs, "toarray")
            else inputs
        )
        function = self.predict_function
        one = jax.jit(lambda theta, rows: function(self.layout.unflatten(theta), rows))
        try:
            inputs = jax.tree.map(_as_single, values)
            found = [np.asarray(one(jnp.asarray(theta, jnp.float32), inputs)) for theta in flat]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"predict fails on these inputs: {str(error).splitlines()[0]}"
            ) from error
        return Predictive(np.stack(found).astype(float))

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData (0.x) or DataTree (1.x), one variable per leaf of the parameters."""
        from ornstein.interfaces.arviz import inference_data

        attributes = {name: str(value) for name, value in self.settings.items()}
        return inference_data(self.variables, attributes)

    def report(self, path: str | Path, model: Model | None = None) -> Path:
        """Write an HTML page that needs nothing else: verdict, coefficients, covariance, chains, settings.

        After `orn.load` give the model too, for what needs the data: some findings, and how well predictions are calibrated.
        """
        from ornstein.interfaces.report import write_report

        return write_report(self, path, model=model)

    def save(self, path: str | Path) -> Path:
        """Write a file that `orn.load` reads; numbers and JSON only, no pickle."""
        from ornstein.storage import save_posterior

        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path must be the name of a file; got {brief(path)}")
        return save_posterior(self, Path(path))


def _as_single(leaf: Any) -> Any:
    """An array on the device, floats in single precision and whole numbers as they are."""
    array = np.asarray(leaf)
    return jnp.asarray(array, dtype=jnp.float32) if array.dtype.kind in "fO" else jnp.asarray(array)


def _mapped(displacements: Array, scale: Array | None) -> Array:
    """The output map applied to the deviations from the mean of all draws."""
    if scale is None or not displacements.shape[1]:
        return displacements
    mean = displacements.mean(axis=(0, 1))
    deviations = displacements - mean
    return mean + (deviations @ scale.T if scale.ndim == 2 else deviations * scale)
