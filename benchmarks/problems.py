"""The data sets on which the time to a posterior is measured, as arrays that every competitor can
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import ornstein as orn

NAMES = ("wine", "protein", "skin", "covertype")


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression with unit noise and a standard normal prior, no intercept; and the posterior it
    should lead to.

    `marginal`: the distance is that between the products of the marginals. With 378 parameters the
    whole covariance has 71631 numbers, which no sampler knows to a KL of 0.05 before a million
    draws.
    """

    name: str
    family: str
    features: np.ndarray  # float32
    response: np.ndarray  # float32, or int32 codes of the classes
    mean: np.ndarray
    covariance: np.ndarray  # of the reference; variances alone where `marginal`
    error: float = 0.0  # the KL that the reference's own Monte-Carlo error makes, about

    @property
    def marginal(self) -> bool:
        return self.covariance.ndim == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the coefficients."""
        columns = self.features.shape[1]
        return (
            (columns, int(self.response.max()) + 1) if self.family == "categorical" else (columns,)
        )

    @property
    def batch_size(self) -> int:
        """The same for everyone who takes minibatches: the power of two nearest √N, 16 to 1024."""
        return int(np.clip(2 ** round(np.log2(len(self.response)) / 2), 16, 1024))

    def model(self) -> orn.GLM:
        return model_of(self.family, self.features, self.response)

    def distance(self, mean: np.ndarray, covariance: np.ndarray) -> float:
        """KL(what was found ‖ reference), both as Gaussians, in nats."""
        from ornstein.theory import Gaussian, kl

        mean, covariance = (
            np.asarray(mean, dtype=float).ravel(),
            np.asarray(covariance, dtype=float),
        )
        if not np.all(np.isfinite(mean)) or not np.all(np.isfinite(covariance)):
            return float("inf")
        if self.marginal and covariance.ndim == 2:
            covariance = np.diagonal(covariance)
        return kl(Gaussian(mean, covariance), Gaussian(self.mean, self.covariance))

    def save(self, path: Path) -> None:
        arrays = {
            "features": self.features,
            "response": self.response,
            "mean": self.mean,
            "covariance": self.covariance,
        }
        np.savez(path, name=self.name, family=self.family, **arrays)

    @classmethod
    def load(cls, path: Path) -> Problem:
        with np.load(path) as file:
            arrays = {key: file[key] for key in ("features", "response", "mean", "covariance")}
            return cls(str(file["name"]), str(file["family"]), **arrays)


def model_of(family: str, features: np.ndarray, response: np.ndarray) -> orn.GLM:
    import ornstein as orn

    return orn.glm(
        features, response, family, prior_precision=1.0, noise_scale=1.0, intercept=False
    )


def arrays_of(
    name: str, directory: str | None = None, rows: int | None = None
) -> tuple[str, np.ndarray, np.ndarray]:
    """Family, features and response; `FileError` where the data set is not at hand. `rows` takes
    the first of them, shuffled.
    """
    from ornstein.paper import data

    if name == "covertype":
        split = data.covertype(directory)
        family, features, response = "categorical", split.X, (split.y - 1).astype(np.int32)
    elif name == "skin":
        features, response = data.skin(directory)
        family, features, response = (
            "bernoulli",
            data.standardised(features),
            response.astype(np.float32),
        )
    else:
        features, response = (data.wine if name == "wine" else data.protein)(directory)
        family, features, response = (
            "gaussian",
            data.standardised(features),
            data.standardised(response),
        )
    response = response.astype(np.float32) if family == "gaussian" else response
    if rows is not None and rows < len(response):
        chosen = np.random.default_rng(0).permutation(len(response))[:rows]
        features, response = features[chosen], response[chosen]
    return family, np.ascontiguousarray(features, dtype=np.float32), response
