"""Stochastic gradients, one way for each sampler: tuned by theory at the mode, on minibatches."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np

from ornstein.dynamics.dynamics import Dynamics, Sampler
from ornstein.dynamics.prediction import Prediction
from ornstein.errors import CurvatureError, OrnsteinError
from ornstein.posterior.posterior import Posterior
from ornstein.samplers import sampler_by_name
from ornstein.sampling.plan import planned, require_stable, tuned
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.run import run_here
from ornstein.ways.costs import COMPILING, step_seconds, tuning_seconds
from ornstein.ways.situation import Situation
from ornstein.ways.way import Forecast, impossible, restriction

# Minibatches of fewer rows are no minibatches: NUTS takes seconds there.
FEWEST_ROWS = 500


@dataclass(frozen=True)
class StochasticGradients:
    """A sampler of the library as a way.

    Attributes:
        share: of the distance between Laplace's approximation and the posterior that stays: all of
            it where gradient noise is taken for the posterior's spread; a part where small steps
            with injected noise follow the density itself.
        times: steps between draws, in units of what the sampler chooses.
    """

    name: str
    words: str
    share: float = 1.0
    times: int = 1
    stochastic: bool = True

    @property
    def sampler(self) -> Sampler:
        return sampler_by_name(self.name)

    def bounds(self, situation: Situation) -> tuple[float, float]:
        """A KL and seconds that no forecast is below, for free."""
        return self.share * situation.laplace_kl, COMPILING + tuning_seconds(situation.dim)

    def forecast(self, situation: Situation, request: SampleRequest) -> Forecast:
        curvature = situation.curvature
        if curvature is None:
            return impossible(self.name, situation.why)
        if situation.n_data < FEWEST_ROWS and not restriction(request):
            words = f"only {situation.n_data} rows: minibatches gain nothing"
            return impossible(self.name, words)
        try:
            # numbers may be anything here: what cannot be tuned is not taken
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dynamics, prediction = tuned(
                    self.sampler, curvature, request.batch_size, request.scheme
                )
                require_stable(dynamics, prediction)
        except OrnsteinError as error:
            return impossible(self.name, str(error))
        return self._forecast(situation, request, dynamics, prediction)

    def _forecast(
        self,
        situation: Situation,
        request: SampleRequest,
        dynamics: Dynamics,
        prediction: Prediction,
    ) -> Forecast:
        size, n_data = situation.dim, situation.n_data
        theory = max(prediction.kl_qp, prediction.kl_pq)
        tau, rows = prediction.relaxation_time, dynamics.batch_size
        thin = dynamics.window + dynamics.gap if dynamics.window > 1 else max(1.0, 2.0 * tau)
        thin = request.thin if isinstance(request.thin, int) else self.times * thin
        warmup = request.warmup if isinstance(request.warmup, int) else 10.0 * tau + 10.0
        steps = request.chains * (warmup + request.draws * thin)
        rows_read = rows * (2 if dynamics.control_variates else 1)
        each = step_seconds(rows_read, size, dynamics.preconditioner.ndim == 2)
        seconds = COMPILING + tuning_seconds(size) + steps * each
        memory = 12.0 * request.draws * request.chains * size
        return Forecast(
            self.name,
            theory + self.share * situation.laplace_kl,
            tau,
            max(1.0, 2.0 * tau) * rows_read / n_data,
            min(steps, request.max_steps) * rows_read / n_data,
            seconds,
            memory,
            self.words,
        )

    def run(
        self, situation: Situation, request: SampleRequest, work: float = math.inf
    ) -> Posterior:
        if situation.curvature is None:
            raise CurvatureError(situation.why)
        asked = replace(request, sampler=self.sampler)
        if self.times > 1 and request.thin == "auto":
            asked = replace(asked, thin=self._thinning(situation, asked))
        return run_here(situation.model, asked, known=situation.curvature)

    def _thinning(self, situation: Situation, request: SampleRequest) -> int | str:
        """`times` what the sampler would choose, as far as the steps allow; window means cannot be
        thinned.
        """
        assert situation.curvature is not None
        dynamics, prediction = tuned(
            self.sampler, situation.curvature, request.batch_size, request.scheme
        )
        if dynamics.window > 1:
            return "auto"
        thin = planned(request, dynamics, prediction, situation.dim).thin
        most = request.max_steps // (2 * request.draws * request.chains)
        return max(thin, min(self.times * thin, most))

    def longer(self) -> StochasticGradients:
        return replace(self, times=4 * self.times)
