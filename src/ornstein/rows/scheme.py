"""How minibatches are drawn. The scheme is part of the sampler's law, so each one declares its
noise factor.

All schemes are independent over time given the data (slices: given the permutation of the moment).
A reshuffled epoch is not: within an epoch its gradients cancel, and the stationary law collapses.
"""

from __future__ import annotations

import math

from ornstein.checks import is_whole
from ornstein.errors import InputError

# All rows alike; with "leverage" those that say more about the parameters are drawn more often.
SCHEMES = ("replacement", "without-replacement", "slices")
LEVERAGE = "leverage"
STRATIFIED = "stratified"  # of mixed models: fixed numbers of groups of each size
UNIT = 16  # groups that are shared out among the sizes; a batch is a multiple of it
INDEPENDENT = ("replacement", LEVERAGE, STRATIFIED)  # every row of a minibatch for itself
_EPOCHS = ("epoch", "epochs", "reshuffle", "reshuffled", "reshuffled-epochs", "shuffle", "shuffled")


def checked_scheme(scheme: str) -> str:
    """The scheme's name, or a sentence on why it is refused.

    >>> checked_scheme("without_replacement")
    'without-replacement'
    """
    name = str(scheme).strip().lower().replace("_", "-").replace(" ", "-")
    if name in _EPOCHS:
        raise InputError(
            f"minibatch scheme {scheme!r} is refused: the minibatches of a reshuffled epoch are"
            " anti-correlated, their noise cancels over the epoch and the draws come out about ten"
            f" times too narrow. Use one of {(*SCHEMES, LEVERAGE, STRATIFIED)}."
        )
    every = (*SCHEMES, LEVERAGE, STRATIFIED)
    if name not in every:
        raise InputError(f"unknown minibatch scheme {scheme!r}; choose one of {every}")
    return name


def checked_batch_size(batch_size: int, n_data: int, scheme: str) -> int:
    """An integer S with 1 ≤ S ≤ N, and S < N where S = N would leave no noise."""
    if not is_whole(batch_size):
        raise InputError(f"batch_size must be a whole number, not {batch_size!r}")
    if not 1 <= batch_size <= n_data:
        raise InputError(
            f"batch_size must lie between 1 and the number of rows, {n_data}; got {batch_size}"
        )
    if scheme == STRATIFIED and int(batch_size) % UNIT:
        raise InputError(
            f"batch_size must be a multiple of {UNIT} for the scheme {STRATIFIED!r}; got"
            f" {batch_size}"
        )
    if batch_size == n_data and scheme not in INDEPENDENT:
        raise InputError(
            f"batch_size {batch_size} is the whole data set: drawn {scheme}, its gradient has no"
            " noise and nothing is sampled"
        )
    return int(batch_size)


def noise_factor(scheme: str, n_data: int, batch_size: int) -> float:
    """f in Cov(ĝ) = f·C/S: 1 where rows are drawn independently, (N−S)/(N−1) otherwise.

    >>> noise_factor("without-replacement", 11, 6)
    0.5
    """
    return 1.0 if scheme in INDEPENDENT else (n_data - batch_size) / (n_data - 1)


def effective_batch(scheme: str, n_data: int, batch_size: int) -> float:
    """S/f, which stands for S in every rate."""
    return batch_size / noise_factor(scheme, n_data, batch_size)


def automatic_batch(n_data: int) -> int:
    """The power of two nearest √N, between 16 and 1024 and at most N/4.

    >>> automatic_batch(5000), automatic_batch(10**7), automatic_batch(20)
    (64, 1024, 5)
    """
    size = 2 ** round(math.log2(math.sqrt(n_data)))
    return max(1, min(max(16, size), 1024, n_data // 4))
