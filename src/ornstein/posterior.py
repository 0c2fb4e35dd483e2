"""What a sampler delivers: draws with names, summaries, predictions, the theory's word on them, and where they came from."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ornstein.collect import Draws, Moments
from ornstein.curvature import Curvature
from ornstein.dynamics import Dynamics
from ornstein.errors import InputError
from ornstein.layout import Layout
from ornstein.prediction import Prediction
from ornstein.theory import Gaussian, Process, kl

if TYPE_CHECKING:
    import pandas

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
        mean, covariance: of all states between the draws as well (`settings["states"]` of them), so more precise than those of
            the draws alone; where a posterior was made from draws, of the draws.
        dynamics, curvature, prediction: what ran, where, and what theory said would come.
        settings: seed, versions, thinning, warm-up, steps and seconds.
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

    @classmethod
    def from_run(
        cls,
        model: Model,
        dynamics: Dynamics,
        curvature: Curvature,
        prediction: Prediction,
        store: Draws | None,
        moments: Moments,
        settings: dict[str, Any],
    ) -> Posterior:
        """Displacements from the mode as draws of θ, after the sampler's output map."""
        mean, covariance = moments.pooled()
        if dynamics.output_map is not None:
            covariance = Process.mapped(covariance, dynamics.output_map)
        displacements = np.empty((len(moments.count), 0, curvature.dim)) if store is None else store.finished()
        return cls(
            _mapped(displacements, dynamics.output_map) + curvature.mode,
            tuple(model.names),
            model.layout,
            {**settings, "states": int(moments.count.sum())},
            dynamics,
            curvature,
            prediction,
            model.predict,
            Gaussian(curvature.mode + mean, covariance),
        )

    @property
    def params(self) -> Any:
        return self.layout.unflatten(self.draws)

    @cached_property
    def mean(self) -> Array:
        return self.moments.mean if self.moments is not None else self.draws.mean(axis=(0, 1))

    @cached_property
    def covariance(self) -> Array:
        if self.moments is not None:
            return self.moments.covariance
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        if flat.shape[1] > 2000:
            return flat.var(axis=0, ddof=1)
        centred = flat - flat.mean(axis=0)
        return centred.T @ centred / (flat.shape[0] - 1)

    @property
    def sd(self) -> Array:
        return np.sqrt(self.covariance if self.covariance.ndim == 1 else np.diagonal(self.covariance))

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
        own = Gaussian(self.mean, self.covariance)
        other = reference if isinstance(reference, Gaussian) else Gaussian(reference.mean, reference.covariance)
        return kl(own, other), kl(other, own)

    def summary(self, probability: float = 0.95) -> pandas.DataFrame:
        """Mean, sd, central interval, Monte-Carlo error, effective sample size (bulk and tail) and R-hat per parameter."""
        import pandas

        low, high = (1.0 - probability) / 2.0, (1.0 + probability) / 2.0
        if not self.draws.shape[1]:
            return pandas.DataFrame({"mean": self.mean, "sd": self.sd}, index=list(self.names))
        from ornstein.interfaces.arviz import effective_sample_size, split_r_hat

        rows = []
        for position in range(len(self.names)):
            values = self.draws[:, :, position]
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
        return pandas.DataFrame(rows, index=list(self.names))

    def check(self) -> Verdict:
        """Can it be trusted? See `ornstein.diagnostics.verdict`."""
        from ornstein.diagnostics.verdict import check

        return check(self)

    def predict(self, inputs: Any, draws: int | None = 1000, seed: int = 0) -> Predictive:
        """E[y | inputs, θ] over the posterior, for at most `draws` of its draws."""
        if self.predict_function is None:
            raise InputError("the model has no predict function: give one to Model(predict=…)")
        flat = self.draws.reshape(-1, self.draws.shape[-1])
        if draws is not None and draws < len(flat):
            flat = flat[np.random.default_rng(seed).choice(len(flat), draws, replace=False)]
        values = inputs.to_numpy() if hasattr(inputs, "to_numpy") else inputs
        inputs = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float32), values)
        function = self.predict_function
        one = jax.jit(lambda theta, rows: function(self.layout.unflatten(theta), rows))
        return Predictive(np.stack([np.asarray(one(jnp.asarray(theta, jnp.float32), inputs)) for theta in flat]).astype(float))

    def to_arviz(self) -> Any:
        """An ArviZ InferenceData (0.x) or DataTree (1.x), one variable per leaf of the parameters."""
        from ornstein.interfaces.arviz import inference_data

        leaves = jax.tree_util.tree_leaves(self.params)
        variables = {path: np.asarray(leaf) for path, leaf in zip(self.layout.paths, leaves, strict=True)}
        attributes = {name: str(value) for name, value in self.settings.items()}
        return inference_data(variables, attributes)

    def save(self, path: str | Path) -> Path:
        """Write a file that `orn.load` reads; numbers and JSON only, no pickle."""
        from ornstein.storage import save_posterior

        return save_posterior(self, Path(path))


def _mapped(displacements: Array, scale: Array | None) -> Array:
    """The output map applied to the deviations from the mean of all draws."""
    if scale is None or not displacements.shape[1]:
        return displacements
    mean = displacements.mean(axis=(0, 1))
    deviations = displacements - mean
    return mean + (deviations @ scale.T if scale.ndim == 2 else deviations * scale)
