"""Minibatches with fixed numbers of groups of each size: their law by enumeration."""

from __future__ import annotations

from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ornstein as orn
from ornstein.compute.precision import width
from ornstein.curvature.derivatives import derivatives_of
from ornstein.curvature.measure import measure
from ornstein.curvature.strata import by_strata
from ornstein.errors import InputError
from ornstein.model.mixed import checked
from ornstein.rows import ragged
from ornstein.rows.ragged import Buckets
from ornstein.rows.strata import Strata

BUCKETS = Buckets((2, 5), (0, 8), 10)


@pytest.fixture(scope="module")
def model():
    """Five groups in two buckets, those of the longer one far from the others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ragged, "SMALL", 0)
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(5), [1, 1, 1, 9, 9])
        x = rng.normal(size=(len(labels), 1))
        y = x[:, 0] + 2.0 * (labels > 2) + rng.normal(size=len(labels))
        found = checked.glmm(x, y, labels, np.ones((len(labels), 1)))
    assert found.buckets.firsts == (0, 3)
    return found


def test_the_noise_is_that_of_all_minibatches(model):
    """Every minibatch of one group of each bucket, and of two and one."""
    curvature = measure(model)
    for counts, choices in (((1, 1), [(0, 1, 2), (3, 4)]), ((2, 1), [(0, 1, 2)] * 2 + [(3, 4)])):
        own = by_strata(model, curvature, np.array(counts))
        size = sum(counts)
        drawn = model.replace(strata=Strata(model.buckets, counts))
        with width("float64"):
            problem, theta = drawn.problem("float64"), jnp.asarray(curvature.mode)
            slope = jax.jit(jax.vmap(partial(drawn.loss.gradient, problem, theta)))
            found = np.asarray(slope(np.array(list(product(*choices)))))
        assert found.mean(axis=0) == pytest.approx(np.zeros(model.dim), abs=1e-7)
        enumerated = np.cov(found.T, bias=True)
        scale = np.abs(enumerated).max()
        assert own.noise / size == pytest.approx(enumerated, abs=1e-9 * scale)
        alike = np.abs(curvature.noise / size - enumerated).max()
        assert alike > 0.1 * scale, "C/S must be seen to be wrong"


def test_the_answer_to_a_spread_is_linear_and_that_of_single_groups(model):
    """K_b by differences of the gradients of single groups about the mode."""
    curvature = measure(model)
    counts = np.array([2, 1])
    own = by_strata(model, curvature, counts)
    rng = np.random.default_rng(1)
    root = rng.normal(size=(model.dim, model.dim)) * 0.1
    spread = root @ root.T
    hessians = []
    for step in 1e-4 * np.eye(model.dim):
        up, down = (
            np.concatenate(list(derivatives_of(model).example_gradients(curvature.mode + move)))
            for move in (step, -step)
        )
        hessians.append((up - down) / 2e-4)
    each = np.stack(hessians, axis=-1)
    expected = np.zeros_like(spread)
    for weight, groups in zip(own.probabilities[[0, 3]], ([0, 1, 2], [3, 4]), strict=True):
        part = each[groups]
        mean = part.mean(axis=0)
        squares = np.mean([a @ spread @ a.T for a in part], axis=0)
        share = len(groups) / 5
        expected += share**2 / (weight * len(groups)) * (squares - mean @ spread @ mean.T)
    scale = np.abs(expected).max()
    assert own.noise_response(spread) == pytest.approx(expected, abs=1e-5 * scale)


def test_minibatches_have_fixed_numbers_of_groups():
    strata = Strata(BUCKETS, (3, 1))
    groups = strata.draw(np.random.default_rng(0), (500, 8))
    assert np.all(groups[:, :6] < 8)
    assert np.all(groups[:, 6:] >= 8)
    assert set(groups[:, 6:].ravel()) == {8, 9}
    assert strata.probabilities.sum() == pytest.approx(1.0)
    shared = Strata.of(BUCKETS, np.array([1.0, 1e9]))
    assert shared.counts == (1, 15)


def test_what_cannot_be_stratified_is_a_sentence(model):
    with pytest.raises(InputError, match="multiple of 16 for the scheme 'stratified'"):
        orn.ConstantSGD().tune(measure(model, scheme="stratified"), 4, "stratified")
    with pytest.raises(InputError, match="the noise of fixed numbers of groups of each size"):
        orn.ConstantSGD().tune(measure(model, scheme="stratified"), 4)
    plain = orn.glm(np.arange(12.0)[:, None], np.arange(12.0) ** 0.5, noise_scale=1.0)
    with pytest.raises(InputError, match="is for mixed models"):
        measure(plain, scheme="stratified")
    with pytest.raises(InputError, match="one positive count for each of 2 buckets"):
        Strata(BUCKETS, (1, 0))


@pytest.mark.slow
def test_the_draws_have_the_law_that_strata_predict():
    """Groups of very different size; the posterior's sds, and those of C/S off."""
    rng = np.random.default_rng(2)
    counts = np.repeat([2, 40], [1200, 300])
    labels = np.repeat(np.arange(1500), counts)
    x = rng.normal(size=(len(labels), 1))
    y = 0.5 * x[:, 0] + 0.8 * rng.normal(size=1500)[labels] + rng.normal(size=len(labels))
    model = orn.glmm(x, (y > 0).astype(int), labels, family="bernoulli", points=9)
    post = orn.sample(
        model, orn.ConstantSGD(), scheme="stratified", draws=1000, progress=False, batch_size=32
    )
    assert post.check()["as predicted"].level == "trusted"
    sd = np.sqrt(np.diagonal(post.curvature.posterior_covariance))
    assert post.sd / sd == pytest.approx(np.ones(model.dim), abs=0.12)
