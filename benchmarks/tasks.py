"""The tasks: generated data of a given shape, and the model on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Task:
    name: str
    family: str
    rows: int
    columns: int
    batch_size: int
    classes: int = 1

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Features and response, float32, the same for everyone."""
        rng = np.random.default_rng(0)
        features = rng.standard_normal((self.rows, self.columns), dtype=np.float32)
        truth = rng.standard_normal((self.columns, self.classes)).astype(np.float32) / np.sqrt(
            self.columns
        )
        signal = features @ truth
        if self.family == "gaussian":
            return features, (signal[:, 0] + rng.standard_normal(self.rows)).astype(np.float32)
        if self.family == "bernoulli":
            return features, (rng.random(self.rows) < 1.0 / (1.0 + np.exp(-signal[:, 0]))).astype(
                np.float32
            )
        return features, np.argmax(signal + rng.gumbel(size=signal.shape), axis=1).astype(np.int32)


TASKS = (
    Task("T1 linear N=4898 D=11 S=100", "gaussian", 4898, 11, 100),
    Task("T2 linear N=10000 D=10 S=10", "gaussian", 10_000, 10, 10),
    Task("T2 linear N=10000 D=10 S=1", "gaussian", 10_000, 10, 1),
    Task("T3 logistic N=245057 D=4 S=10000", "bernoulli", 245_057, 4, 10_000),
    Task("T4 softmax N=60000 D=784 K=10 S=100", "categorical", 60_000, 784, 100, 10),
    Task("T5 logistic N=1e6 D=100 S=1000", "bernoulli", 1_000_000, 100, 1000),
)
