"""Posterior files with forged contents, of every kind: refused, or of use; nothing in them reaches
a terminal as it is.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from helpers import laplace_instead
from mutations import limited, memory, places, with_a_lie_in_numbers, with_a_lie_in_words

import ornstein as orn
from ornstein.posterior.archive import read_archive, write_archive
from ornstein.posterior.history import Attempt
from ornstein.posterior.storage import FORMAT

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": RNG.normal(size=N),
        "g": list("uvwxyz") * (N // 6),
        "h": ["p", "q"] * (N // 2),
        "colour": RNG.choice(["red", "green", "blue"], N),
    }
)
TABLE["y"] = TABLE.a - TABLE.b + RNG.normal(size=N)
ESCAPE = "\x1b[2J"


def of_formula(formula):
    return orn.laplace(orn.regress(formula, TABLE), seed=0, draws=20)


def of_features():
    X, y = TABLE[["a", "b"]].to_numpy(), TABLE.colour.to_numpy()
    head = RNG.normal(size=(2, 3)), np.zeros(3)
    return orn.last_layer(X, y, (X, y), head=head, prior_precision=1.0, draws=20, progress=False)


def of_a_chain():
    model = orn.glm(TABLE[["a", "b"]], TABLE.y, noise_scale=1.0)
    options = {"draws": 20, "thin": 2, "warmup": 20, "batch_size": 10, "progress": False}
    found = orn.sample(model, orn.ConstantSGD("full"), **options)
    object.__setattr__(found, "history", (Attempt("laplace", "caution", 3.0, 0.1, "R-hat"),))
    return found


KINDS = {
    "table": lambda: of_formula("y ~ bs(a, df=4) + b + h"),
    "classes": lambda: of_formula("colour ~ a + h"),
    "mixed": lambda: of_formula("y ~ a + (1 | g)"),
    "groups": lambda: orn.laplace(orn.glmm(TABLE[["a"]], TABLE.y, TABLE.g), seed=0, draws=20),
    "last layer": of_features,
    "chain": of_a_chain,
}


ALIKE = ("classes", "groups")  # in what they hold, of others
EVERY = [pytest.param(kind, marks=pytest.mark.slow) if kind in ALIKE else kind for kind in KINDS]


@pytest.fixture(scope="module", params=EVERY)
def contents(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("kind") / "fit.orn"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ornstein.interfaces.networks.last_layer.sample", laplace_instead)
        KINDS[request.param]().save(path)
    return read_archive(path, FORMAT)


def loaded(path):
    """What loading gives, None where it is refused in one line."""
    try:
        with limited(2.0):
            return orn.load(path)
    except orn.FileError as error:
        assert "\n" not in str(error)
        return None


def fuzz(contents, path, count, seed):
    """How many forgeries were refused; of the others the summary and the verdict can be had."""
    rng, refused = np.random.default_rng(seed), 0
    with memory(500_000_000):
        for number in range(count):
            meta, arrays = copy.deepcopy(contents[0]), dict(contents[1])
            if rng.integers(3):
                said = with_a_lie_in_words(meta, rng)
            else:
                said = with_a_lie_in_numbers(arrays, rng)
            try:
                write_archive(path, meta, arrays)
            except (TypeError, ValueError):
                continue
            try:
                found = loaded(path)
                if found is not None:
                    _used(found)
            except Exception as error:
                raise AssertionError(f"forgery {number} of seed {seed}: {said}") from error
            refused += found is None
    return refused


def _used(found):
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            repr(found)
            found.summary()
            found.check()
    except orn.OrnsteinError as error:
        assert "\n" not in str(error)


def test_forged_contents(contents, tmp_path):
    assert fuzz(contents, tmp_path / "forged.orn", 25, seed=0) > 4


@pytest.mark.slow
def test_a_thousand_forged_contents(contents, tmp_path):
    assert fuzz(contents, tmp_path / "forged.orn", 1000, seed=1) > 200


def test_no_text_of_a_file_reaches_the_terminal_as_it_is(contents, tmp_path):
    """Escape sequences in each text of the file, one after the other."""
    path, shown = tmp_path / "forged.orn", 0
    for place in places(contents[0]):
        meta = copy.deepcopy(contents[0])
        node = meta
        for key in place[:-1]:
            node = node[key]
        if place == ("format",) or not isinstance(node[place[-1]], str):
            continue
        node[place[-1]] += ESCAPE
        write_archive(path, meta, contents[1])
        found = loaded(path)
        if found is not None:
            said = f"{found}{found.check().explain()}{[str(one) for one in found.history]}"
            assert ESCAPE not in said, place
            shown += 1
    assert shown > 3
