"""Ctrl-C between any two pieces of a run: a Posterior with draws, or KeyboardInterrupt."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import regression_data
from stopping import stopping_before

import ornstein as orn
from ornstein.engine import blocks


@pytest.mark.parametrize("keep", ["draws", "moments", "low-rank:2"])
def test_a_run_never_returns_without_draws(keep, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 2**10)
    model = orn.glm(*regression_data(100, 2, seed=3), noise_scale=1.0)
    options = {"draws": 40, "chains": 3, "warmup": 50, "batch_size": 10, "keep": keep}
    with stopping_before(None) as pieces:
        whole = orn.sample(model, orn.ConstantSGD("full"), progress=False, **options)
    assert whole.settings["complete"]
    partial, nothing = 0, 0
    for piece in range(1, len(pieces) + 1):
        try:
            with stopping_before(piece):
                post = orn.sample(model, orn.ConstantSGD("full"), progress=False, **options)
        except KeyboardInterrupt as error:
            assert "before the first draw" in str(error)
            nothing += 1
            continue
        partial += 1
        assert not post.settings["complete"]
        assert post.draws.shape[1] > 0 or keep == "moments"
        assert np.all(np.isfinite(post.draws))
        assert np.all(np.isfinite(post.mean))
        assert post.summary().shape[0] == model.dim
        assert post.check().level in ("trusted", "caution", "not trusted")
    assert partial
    assert nothing


def test_an_interrupted_run_is_not_extrapolated():
    model = orn.glm(*regression_data(100, 2, seed=3), noise_scale=1.0)
    options = {"draws": 20_000, "chains": 2, "extrapolate": True, "progress": False}
    sampler = orn.ConstantSGD("full")
    with stopping_before(None) as pieces:
        orn.sample(model, sampler, **{**options, "extrapolate": False})
    with stopping_before(len(pieces)) as begun:
        post = orn.sample(model, sampler, **options)
    assert not post.settings["complete"]
    assert "extrapolated" not in post.settings
    assert len(begun) <= len(pieces) + 1
