"""A saved fit of every family predicts in another process what it predicted in the first, bit for
bit: expectation, outcome, its interval and its draws.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np

import ornstein as orn

X = np.random.default_rng(1).normal(size=(60, 2))
NEW = np.random.default_rng(2).normal(size=(5, 2))
COUNTS = np.random.default_rng(3).poisson(np.exp(0.5 + X @ [0.4, -0.3]))
POSITIVE = (COUNTS + 1.0) / (np.max(COUNTS) + 2.0)
RESPONSES = {
    "bernoulli": COUNTS > 1,
    "binomial": np.column_stack([COUNTS, COUNTS + 2]),
    "categorical": np.minimum(COUNTS, 2),
    "ordinal": np.minimum(COUNTS, 3),
    "exponential": np.column_stack([POSITIVE, COUNTS > 0]),
    "weibull": np.column_stack([POSITIVE, COUNTS > 0]),
} | dict.fromkeys(("gamma", "beta", "log-normal"), POSITIVE)
FAMILIES = {name: name for name in orn.families.TABLE if name != "quantile"} | {
    "student-t, df fixed": orn.families.StudentT(df=4),
    "quantile": orn.families.Quantile(tau=0.9),
    "binomial, cloglog": orn.families.Binomial("cloglog"),
    "ordinal, probit": orn.families.Ordinal("probit"),
}


def predicted(post: orn.Posterior) -> list[np.ndarray]:
    """Everything that a prediction says."""
    new = post.predict(NEW)
    found = [new.mean, new.sd, *new.interval(), new.outcome.draws(4)]
    if not new.source.likelihood.law.classes:
        found += [new.outcome.mean, new.outcome.sd, *new.outcome.interval()]
    return found


ELSEWHERE = """
    import sys
    import numpy as np
    import ornstein as orn
    from test_new_process import predicted

    for name in sys.argv[1:]:
        np.savez(name + ".npz", *predicted(orn.load(name + ".orn")))
"""


def model_of(name: str) -> orn.GLM:
    family = FAMILIES[name]
    law = orn.families.family_of(family)
    y = RESPONSES.get(law.name, COUNTS)
    return orn.glm(X, y, family, classes=range(4) if law.ordered else None)


def test_every_family_predicts_the_same(tmp_path):
    here = {}
    for place, name in enumerate(FAMILIES):
        model = model_of(name)
        draws = model.init + 0.3 * np.random.default_rng(5).normal(size=(2, 30, model.dim))
        post = orn.Posterior(
            draws, model.names, model.layout, {}, predict_function=model.predict, model=model
        )
        here[f"fit{place}"] = predicted(post)
        post.save(tmp_path / f"fit{place}.orn")
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ELSEWHERE), *here],
        cwd=tmp_path,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])},
    )
    for name, arrays in here.items():
        there = np.load(tmp_path / f"{name}.npz")
        assert len(there.files) == len(arrays) >= 5
        for one, key in zip(arrays, there.files, strict=True):
            np.testing.assert_array_equal(one, there[key])
