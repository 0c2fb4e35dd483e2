"""Binomial: successes among a known number of trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np

from ornstein.errors import InputError
from ornstein.model.families.bernoulli import log_probabilities
from ornstein.model.families.family import Family, Law, Shared
from ornstein.types import Array, PyTree, Traced


@dataclass(frozen=True)
class Binomial(Family):
    """y has two columns, successes and trials; the mean is the probability of a success.

    >>> Binomial().outcome(np.zeros(1), {"trials": 4}).mean()
    array([2.])
    """

    name: ClassVar[str] = "binomial"
    links: ClassVar[tuple[str, ...]] = ("logit", "probit", "cloglog")
    columns: ClassVar[tuple[str, ...]] = ("successes", "trials")
    discrete: ClassVar[bool] = True
    replaces: ClassVar[str] = "statsmodels GLM(Binomial), R glm(cbind(k, n - k))"

    def checked(self, y: Array) -> Array:
        successes, trials = y[:, 0], y[:, 1]
        if np.any(y != np.floor(y)) or np.any(successes < 0) or np.any(trials < 1):
            raise InputError("the binomial family needs whole successes from 0 and trials from 1")
        if np.any(successes > trials):
            row = int(np.argmax(successes > trials))
            raise InputError(
                f"row {row} of y has {successes[row]:g} successes in {trials[row]:g} trials; its"
                " columns are successes and trials"
            )
        if not np.any(successes) or np.all(successes == trials):
            raise InputError("all trials of y have the same result; there is nothing to separate")
        return y

    def log_density(
        self, u: Traced, y: Traced, auxiliary: Mapping[str, Traced], hyperparameters: PyTree
    ) -> Traced:
        success, failure = log_probabilities(self.link, u)
        successes, trials = y[0], y[1]
        gammaln = jax.scipy.special.gammaln
        ways = gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(trials - successes + 1.0)
        return successes * success + (trials - successes) * failure + ways

    def outcome(self, u: Array, auxiliary: Shared) -> Law:
        """Of as many trials as `auxiliary["trials"]` says, one where it does not."""
        from scipy.stats import binom

        return binom(auxiliary.get("trials", 1), self.mean(u, {}))

    def middle(self, y: Array, weights: Array | None) -> Array:
        successes, trials = np.average(y, axis=0, weights=weights)
        return np.asarray(self.inverse_link.forward(successes / trials))
