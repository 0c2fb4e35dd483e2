"""Compiled code outlives the process: the second one takes it from the folder."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ornstein as orn

PROGRAM = """
import sys
import numpy as np
import jax.monitoring
import ornstein as orn

seen = []
jax.monitoring.register_event_listener(lambda event, **rest: seen.append(event))
orn.cache_compilations(sys.argv[1])
X = np.random.default_rng(0).normal(size=(200, 2))
model = orn.glm(X, X @ [1.0, -1.0], noise_scale=1.0)
post = orn.sample(model, orn.ConstantSGD("full"), draws=20, chains=1, progress=False)
hits, misses = (seen.count("/jax/compilation_cache/cache_" + what) for what in ("hits", "misses"))
print(hits, misses, post.draws.sum().hex())
"""


def hits_misses_and_draws(folder) -> tuple[int, int, str]:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    hits, misses, draws = run.stdout.split()
    return int(hits), int(misses), draws


def test_a_second_process_compiles_nothing_and_draws_the_same(tmp_path):
    folder = tmp_path / "a" / "b"
    _, misses, first = hits_misses_and_draws(folder)
    assert misses > 0
    assert any(folder.iterdir())
    hits, misses, second = hits_misses_and_draws(folder)
    assert hits > 0
    assert misses == 0
    assert second == first


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(orn.FileError, match="cannot be kept in"):
        orn.cache_compilations(tmp_path / "file" / "below")
    with pytest.raises(orn.InputError, match="name of a folder"):
        orn.cache_compilations(3)  # type: ignore[arg-type]
