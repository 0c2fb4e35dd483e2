"""What moving some of the draws did to their law, along many directions at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.special
import scipy.stats

from ornstein.types import Array

QUANTILES = np.array([0.05, 0.5, 0.95])
MOMENT_TESTS = 4  # of mean, variance, and the signed ranks of place and width
LARGEST_MEMORY = 0.9  # of a start that can be told from all of it


@dataclass(frozen=True, eq=False)
class Change:
    """Along K directions: how far the mean moves in sds, the log of the ratio of variances, and how
    far the 5, 50 and 95 % points move in sds, each with its z-score.

    `rank_z` is a z-score of place and width by signed ranks. A few draws far out, as a chain near
    instability makes them, would hide any change from means and variances.
    """

    shift: Array
    shift_z: Array
    log_ratio: Array
    ratio_z: Array
    quantile: Array  # (3, K)
    quantile_z: Array
    rank_z: Array

    @property
    def distance(self) -> Array:
        """KL between one-dimensional Gaussians of the moments before and after, the larger of both
        ways, in nats.
        """
        return moment_distance(self.shift, self.log_ratio)

    @property
    def moment_p(self) -> Array:
        """Two-sided p-value of each direction's place and width: the smallest of `MOMENT_TESTS`."""
        return two_sided(
            np.maximum(np.maximum(np.abs(self.shift_z), np.abs(self.ratio_z)), self.rank_z)
        )

    @property
    def quantile_p(self) -> Array:
        return two_sided(np.abs(self.quantile_z).max(axis=0))


def moment_distance(shift: Array, log_ratio: Array) -> Array:
    """KL between one-dimensional Gaussians, the larger of both ways: the mean of the other is
    `shift` sds of the one away, and the log of its variance differs by `log_ratio`.

    >>> moment_distance(np.array([0.0, 0.5]), np.array([0.0, 0.0])).tolist()
    [0.0, 0.125]
    """
    ratio = np.exp(log_ratio)
    one = 0.5 * (1.0 / ratio - 1.0 + log_ratio + shift**2 / ratio)
    other = 0.5 * (ratio - 1.0 - log_ratio + shift**2)
    return np.maximum(one, other)


def two_sided(score: Array | float) -> Array:
    """P(|z| > score) of a standard normal."""
    return 2.0 * scipy.special.ndtr(-np.abs(score))


def change(start: Array, end: Array, everything: Array, size: float) -> Change:
    """The change from `start` to `end`, (n, K) each. All draws are `everything`, (M, K), worth as
    much as `size` independent ones.

    A trajectory may remember a share of its start. What the start tells is regressed out, because
    the law of all draws is known better than that of the few, and the change is what it would be if
    nothing were remembered.
    """
    mean, sd = everything.mean(axis=0), everything.std(axis=0)
    before, after, known = ((part - mean) / sd for part in (start, end, everything))
    shift, shift_error = _regressed(before, after, known, size)
    square, square_error = _regressed(before**2, after**2, known**2, size)
    ratio = np.maximum(1.0 + square - shift**2, 1e-3)
    moves, scores = zip(
        *(_moved_point(before, after, known, p, size) for p in QUANTILES), strict=True
    )
    return Change(
        shift,
        shift / shift_error,
        np.log(ratio),
        square / square_error,
        np.stack(moves),
        np.stack(scores),
        np.maximum(
            np.abs(signed_ranks(after - before)),
            np.abs(signed_ranks(np.abs(after) - np.abs(before))),
        ),
    )


def signed_ranks(difference: Array) -> Array:
    """Wilcoxon's z-score of differences (n, ...), which is standard normal where they are symmetric
    about zero: what a reversible kernel changes in any quantity of draws of its own law is.

    >>> signed_ranks(np.array([1.0, -2.0, 3.0, -4.0, 0.0])).round(2)
    np.float64(-0.27)
    """
    ranks = scipy.stats.rankdata(np.abs(difference), axis=0)
    squares = np.sum(np.where(difference != 0.0, ranks**2, 0.0), axis=0)
    return np.sum(np.sign(difference) * ranks, axis=0) / np.sqrt(np.maximum(squares, 1.0))


def _regressed(start: Array, end: Array, known: Array, size: float) -> tuple[Array, Array]:
    """How far the mean of `end` is from that of all draws, and its standard error."""
    centred = start - start.mean(axis=0)
    squares = np.sum(centred**2, axis=0)
    memory = np.sum(centred * (end - end.mean(axis=0)), axis=0) / np.where(
        squares > 0, squares, 1.0
    )
    memory = np.clip(memory, -LARGEST_MEMORY, LARGEST_MEMORY)
    rest = end - memory * start
    known_mean = known.mean(axis=0)
    difference = rest.mean(axis=0) - (1.0 - memory) * known_mean
    # Of skewed quantities a small mean comes with a small variance, which would count twice: the
    # variance is at least that of a start which keeps its law.
    spread = known.var(axis=0)
    error = np.maximum(rest.var(axis=0, ddof=1), (1.0 - memory**2) * spread) / len(start)
    error = error + ((1.0 - memory) ** 2) * spread / size
    floor = np.finfo(float).tiny
    return difference / (1.0 - memory), np.sqrt(np.maximum(error, floor)) / (1.0 - memory)


def _moved_point(
    start: Array, end: Array, known: Array, share: float, size: float
) -> tuple[Array, Array]:
    """How far the point below which a share of the draws lies moves, in sds, and the z-score of the
    share that lies below it afterwards.
    """
    point = np.quantile(known, share, axis=0)
    before, after, of_all = ((part < point).astype(float) for part in (start, end, known))
    difference, error = _regressed(before, after, of_all, size)
    moved = np.quantile(end, share, axis=0) - point
    return moved, difference / error
