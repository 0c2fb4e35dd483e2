"""Where the search for other modes starts, and which it finds from there."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from adversaries import DRAWS, posterior_of

import ornstein as orn
from ornstein.verdict import modes
from ornstein.verdict.subject import Subject
from ornstein.verdict.surroundings import Surroundings


def two_along_an_axis(size, distance):
    """Draws of the first of two normals, which lie apart along an axis three times as long as the
    others, a mixture of all parameters.
    """
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))
    root, away = rotation * np.where(np.arange(size) == 0, 3.0, 1.0), np.zeros(size)
    away[0], whiten = distance, np.linalg.inv(root)

    def log(t):
        z = whiten @ t
        return jnp.logaddexp(-0.5 * z @ z, -0.5 * (z - away) @ (z - away))

    rows = np.zeros(4)
    model = orn.Model(lambda t, row: log(t) / 4 + 0.0 * row, rows, init=np.zeros(size))
    draws = np.random.default_rng(0).normal(size=(DRAWS, size)) @ root.T
    return posterior_of(model, draws)


def found_by(post):
    return Surroundings(Subject(post, post.model)).modes


def test_a_mode_along_a_principal_axis_is_found(monkeypatch):
    """In twenty dimensions, where points at random hardly ever lie near it."""
    post = two_along_an_axis(20, 25.0)
    (found,) = found_by(post)
    assert abs(found.share - 0.5) < 0.1
    monkeypatch.setattr(modes, "_principal_axes", lambda subject: np.zeros((0, 20)))
    assert found_by(post) == ()


def test_the_only_mode_of_a_skewed_posterior_is_not_another_one():
    """Of 150 parameters, each with its mean 0.45 sd from the mode: no draw is near that."""
    model = orn.Model(
        lambda t, row: jnp.sum(t - jnp.exp(t)) / 4 + 0.0 * row, np.zeros(4), init=np.zeros(150)
    )
    draws = -np.random.default_rng(0).gumbel(size=(DRAWS, 150))
    post = posterior_of(model, draws)
    distances = np.linalg.norm(draws / post.sd, axis=1)
    assert distances.min() > 8.0
    assert found_by(post) == ()


def test_starts_lie_on_both_sides_at_all_distances():
    post = two_along_an_axis(3, 25.0)
    found = modes.starts(Subject(post, post.model), 60, np.random.default_rng(0))
    assert found.shape == (60, 3)
    apart = np.abs((found - post.mean) / post.sd).max(axis=1)
    assert all(np.any(np.abs(apart - distance) < 0.2 * distance) for distance in (3, 6, 12, 25, 50))
    assert np.any(np.all(found == post.model.init, axis=1))


def test_a_numpyro_model_starts_at_draws_of_its_prior():
    import numpyro
    import numpyro.distributions as dist

    def groups(y):
        mean = numpyro.sample("mean", dist.Normal(100.0, 1.0))
        with numpyro.plate("groups", 2):
            own = numpyro.sample("own", dist.Normal(mean, 0.1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(own.sum(), 1.0), obs=y)

    model = orn.from_numpyro(groups, y=jnp.full(20, 200.0))
    found = model.elsewhere(np.random.default_rng(0))
    uniform, prior = found[:3], found[3:]
    assert np.all(np.abs(uniform) <= 2.0) and len(prior) == 3
    place = model.names.index("mean")
    others = np.delete(prior, place, axis=1)
    assert np.all(np.abs(prior[:, place] - 100.0) < 5.0) and np.ptp(prior[:, place]) > 0.0
    assert np.all(np.abs(others - prior[:, [place]]) < 0.5)
