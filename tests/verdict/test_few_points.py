"""Importance weights of fewer pairs of points than parameters: no covariance is known whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import ornstein as orn
from ornstein.verdict.importance import TOLERABLE_NOISE, weigh

SIZE = 26


@dataclass
class Normal:
    """−log of a normal density with these standard deviations."""

    sd: np.ndarray

    def values(self, points: np.ndarray) -> np.ndarray:
        return 0.5 * np.sum((points / self.sd) ** 2, axis=1)


def distances(sd: np.ndarray) -> list[tuple[float, float]]:
    law = orn.Gaussian(np.zeros(SIZE), np.eye(SIZE))
    with np.errstate(all="ignore"):  # as in a check
        return [weigh(Normal(sd), law, 24, seed).moment_distance() for seed in range(20)]


def test_draws_of_the_right_law_have_no_distance():
    """As many rows as allow few passes must not condemn draws that are exact."""
    for distance, noise in distances(np.ones(SIZE)):
        assert distance == pytest.approx(0.0, abs=1e-9)
        assert noise == distance


@pytest.mark.parametrize("ratio", [1.15, 0.85])
def test_a_wrong_width_is_more_than_noise_allows(ratio):
    """A KL of 0.2 to 0.6 nats; with noise as large as itself it is never called small."""
    for distance, noise in distances(np.full(SIZE, ratio)):
        assert noise == distance > TOLERABLE_NOISE
