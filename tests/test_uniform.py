"""Uniform integers: the words of SplitMix64, Lemire's method on their halves, and the law that results."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from ornstein.precision import double
from ornstein.uniform import FEW, UniformIntegers, _words

MASK = 2**64 - 1
LEVEL = 1e-4  # of every chi-square test, with a fixed seed: right integers fail once in 10⁴ seeds


def generator(seed=3):
    return np.random.Generator(np.random.SFC64(seed))


def filled(below, length, seed=3):
    out = np.empty(length, dtype=np.int32)
    UniformIntegers(below).fill(generator(seed), out)
    return out


def split_mix(state):
    """SplitMix64 word by word, as published."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
        yield word ^ (word >> 31)


def test_the_words_are_those_that_others_get_from_the_same_seed():
    """The first five words from seed 1234567, as other implementations have them."""
    with double():
        words = np.asarray(_words(np.uint64(1234567), 5))
    assert words.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@pytest.mark.parametrize("below", [1, 2, 5, 4898, 245_057, 3 * 2**29, 2**31 - 1])
def test_number_for_number_by_lemires_method(below):
    """In whole numbers of any size; with 3·2²⁹ one half in four is rejected and drawn anew."""
    length, ours = FEW + 1, generator()
    out = filled(below, length)
    words = split_mix(int(ours.integers(0, 2**64, dtype=np.uint64)))
    halves = [half for _, word in zip(range(length // 2 + 1), words, strict=False) for half in (word & (2**32 - 1), word >> 32)]
    products = [half * below for half in halves[:length]]
    rejected = np.array([product % 2**32 < 2**32 % below for product in products])
    wanted = np.array([product >> 32 for product in products])
    wanted[rejected] = ours.integers(0, below, rejected.sum(), dtype=np.int32)
    assert np.array_equal(out, wanted)
    if below == 3 * 2**29:
        assert rejected.mean() == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / length))


@pytest.mark.parametrize("length", [0, 1, FEW, FEW + 1, 2**17, 2**17 + 1])
def test_every_length_is_filled_and_a_few_come_from_numpy(length):
    out = filled(100, length)
    assert out.size == length and np.all((out >= 0) & (out < 100))
    if length <= FEW:
        assert np.array_equal(out, generator().integers(0, 100, length, dtype=np.int32))


@pytest.mark.parametrize("below", [7, 1000, 3 * 2**29])
def test_single_integers_and_pairs_are_uniform(below):
    """2²⁰ of them in 1000 classes or fewer: classes that are 1.5 % too likely and too rare by turns are found in 9 of 10 seeds."""
    out = filled(below, 2**20).astype(np.int64)
    classes = min(below, 1000)
    single = out * classes // below
    assert scipy.stats.chisquare(np.bincount(single, minlength=classes), _expected(below, classes, out.size)).pvalue > LEVEL
    few = out * min(below, 30) // below
    for apart in (1, 2, 10, 2**19):  # neighbours are halves of one word
        pairs = few[:-apart] * 30 + few[apart:]
        counts = np.bincount(pairs, minlength=900)
        share = _expected(below, min(below, 30), 1.0)
        wanted = np.zeros((30, 30))
        wanted[: share.size, : share.size] = np.outer(share, share) * counts.sum()
        chosen = wanted.reshape(-1) > 0
        assert scipy.stats.chisquare(counts[chosen], wanted.reshape(-1)[chosen]).pvalue > LEVEL


def _expected(below, classes, total):
    """How many of the values 0…below−1 fall into every class."""
    edges = [-(-number * below // classes) for number in range(classes + 1)]
    return np.diff(edges) / below * total


def test_halves_that_are_not_rejected_would_be_seen():
    """The negative control: without the rejection, values below 3·2²⁹ that are 2 modulo 3 come half as often as the others."""
    halves = generator().integers(0, 2**32, 2**20, dtype=np.uint64)
    raw = (halves * np.uint64(3 * 2**29) >> np.uint64(32)).astype(np.int64)
    assert scipy.stats.chisquare(np.bincount(raw % 3)).pvalue < 1e-10
    assert scipy.stats.chisquare(np.bincount(filled(3 * 2**29, 2**20) % 3)).pvalue > LEVEL


def test_one_source_gives_other_integers_every_time_and_equal_ones_from_equal_states():
    source, one = UniformIntegers(1000), generator()
    first, second = np.empty((2, 2**16), dtype=np.int32)
    source.fill(one, first)
    source.fill(one, second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(2**16)
    assert np.array_equal(filled(1000, 2**16), first)
