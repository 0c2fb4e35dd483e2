"""Loading a file from a stranger: an error or the same content, nothing executed, nothing large
allocated.

Mutations: flipped bits, overwritten, inserted, deleted, repeated and truncated stretches, forged
lengths, and whole archives that are well-formed but lie about their content. A single FileError
class is the only way out.
"""

from __future__ import annotations

import pickle
import zipfile

import jax
import numpy as np
import pytest
from helpers import regression_data
from mutations import forged_header, limited, memory, mutated, npy, rewritten, with_meta

import ornstein as orn
from ornstein.samplers.sgnht import SGNHT


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    X, y = regression_data(100, 2)
    path = tmp_path_factory.mktemp("saved") / "fit.orn"
    orn.sample(
        orn.glm(X, y, prior_precision=1.0),
        orn.ConstantSGD("full"),
        draws=5,
        chains=2,
        progress=False,
        warmup=50,
        batch_size=10,
        thin=1,
    ).save(path)
    return path


def equal(some, other):
    return (
        np.array_equal(some.draws, other.draws)
        and some.names == other.names
        and some.layout == other.layout
        and some.settings == other.settings
        and np.array_equal(some.mean, other.mean)
        and np.array_equal(some.covariance, other.covariance)
        and np.array_equal(some.curvature.hessian, other.curvature.hessian)
        and np.array_equal(some.dynamics.preconditioner, other.dynamics.preconditioner)
        and some.dynamics.sampler == other.dynamics.sampler
        and some.predict_function == other.predict_function
    )


def fuzz(saved, tmp_path, count, seed):
    content, original = saved.read_bytes(), orn.load(saved)
    rng, path, refused = np.random.default_rng(seed), tmp_path / "mutated.orn", 0
    with memory(500_000_000):
        for number in range(count):
            path.write_bytes(mutated(content, rng))
            try:
                with limited(2.0):
                    loaded = orn.load(path)
            except orn.FileError:
                refused += 1
                continue
            assert equal(loaded, original), (
                f"mutation {number} of seed {seed} was loaded with other content"
            )
    return refused


def test_mutated_files(saved, tmp_path):
    refused = fuzz(saved, tmp_path, 1000, seed=0)
    assert 800 < refused < 1000  # most are noticed; some bytes of an archive mean nothing


@pytest.mark.slow
def test_ten_thousand_mutated_files(saved, tmp_path):
    assert fuzz(saved, tmp_path, 10_000, seed=1) > 8000


def put(**values):
    return lambda entries: entries.update(values)


def nested(meta, *path, value):
    node = meta
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return meta


class Trap:
    def __reduce__(self):
        return (open, ("trap-was-sprung", "w"))


LIES = {
    "terabytes announced": put(
        **{
            "draws.npy": forged_header(
                "{'descr': '<f8', 'fortran_order': False, 'shape': (10**6, 10**6), }"
            )
        }
    ),
    "terabytes, literal": put(
        **{
            "draws.npy": forged_header(
                "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000, 1000), }"
            )
        }
    ),
    "negative shape": put(
        **{
            "draws.npy": forged_header(
                "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3), }"
            )
        }
    ),
    "wide text": put(
        **{
            "draws.npy": forged_header(
                "{'descr': '<U99999999', 'fortran_order': False, 'shape': (1000,), }"
            )
        }
    ),
    "code in the header": put(**{"draws.npy": forged_header("__import__('os').abort()")}),
    "deep header": put(**{"draws.npy": forged_header("(" * 100)}),
    "pickled array": put(**{"draws.npy": npy(np.array([Trap()], dtype=object), allow_pickle=True)}),
    "pickle for text": put(
        **{"meta.npy": npy(np.array([Trap()], dtype=object), allow_pickle=True)}
    ),
    "structured array": put(**{"draws.npy": npy(np.zeros(3, dtype=[("a", "f8")]))}),
    "not an array": put(**{"draws.npy": b"hello"}),
    "an array too many": put(**{"more.npy": npy(np.zeros(3))}),
    "an array too few": lambda entries: entries.pop("draws.npy"),
    "no text": lambda entries: entries.pop("meta.npy"),
    "text is no JSON": put(**{"meta.npy": npy(np.array("{"))}),
    "text is a list": put(**{"meta.npy": npy(np.array("[1, 2]"))}),
    "deep text": put(**{"meta.npy": npy(np.array("[" * 100_000))}),
    "draws of other shape": put(**{"draws.npy": npy(np.zeros((2, 5, 7)))}),
    "flat draws": put(**{"draws.npy": npy(np.zeros(20))}),
    "NaN among the draws": put(**{"draws.npy": npy(np.full((2, 5, 4), np.nan))}),
    "text for draws": put(**{"draws.npy": npy(np.full((2, 5, 4), "a"))}),
    "other format": with_meta(lambda meta: {**meta, "format": "something-1"}),
    "unlisted class": with_meta(lambda meta: nested(meta, "dynamics", "class", value="Popen")),
    "class from elsewhere": with_meta(
        lambda meta: nested(meta, "dynamics", "class", value="os.system")
    ),
    "unknown field": with_meta(lambda meta: nested(meta, "dynamics", "shell", value="true")),
    "missing array": with_meta(
        lambda meta: nested(meta, "dynamics", "preconditioner", value={"array": "nowhere"})
    ),
    "negative rows": with_meta(lambda meta: nested(meta, "curvature", "n_data", value=-5)),
    "rows in words": with_meta(lambda meta: nested(meta, "curvature", "n_data", value="many")),
    "huge layout": with_meta(
        lambda meta: nested(meta, "layout", "shapes", value=[[10**12], [], []])
    ),
    "layout of words": with_meta(
        lambda meta: nested(meta, "layout", "shapes", value=[["a"], [], []])
    ),
    "colliding paths": with_meta(
        lambda meta: nested(meta, "layout", "paths", value=["a", "a.b", "a.b.c"])
    ),
    "names of numbers": with_meta(lambda meta: {**meta, "names": 4}),
    "settings of words": with_meta(lambda meta: {**meta, "settings": "none"}),
    "batch of nothing": with_meta(lambda meta: nested(meta, "dynamics", "batch_size", value=0)),
    "batch in words": with_meta(lambda meta: nested(meta, "dynamics", "batch_size", value="ten")),
    "reshuffled epochs": with_meta(lambda meta: nested(meta, "dynamics", "scheme", value="epoch")),
}


@pytest.mark.parametrize("lie", LIES)
def test_well_formed_files_that_lie(lie, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lie.orn"
    path.write_bytes(rewritten(saved, LIES[lie]))
    with memory(500_000_000), pytest.raises(orn.FileError) as caught:
        orn.load(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "trap-was-sprung").exists()


def test_the_trap_would_have_been_sprung(tmp_path, monkeypatch):
    """Negative control: unpickled, the same bytes do act."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Trap())).close()
    assert (tmp_path / "trap-was-sprung").exists()


def test_an_archive_that_unpacks_to_more_than_it_is(saved, tmp_path):
    path = tmp_path / "bomb.orn"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("draws.npy", npy(np.zeros(10_000_000)))
    assert path.stat().st_size < 200_000
    with memory(50_000_000), pytest.raises(orn.FileError):
        orn.load(path)


@pytest.mark.parametrize("name", ["sgnht", "full", "moments"])
def test_what_is_saved_comes_back(name, tmp_path):
    X, y = regression_data(200, 2)
    sampler = SGNHT() if name == "sgnht" else None
    options = {"keep": "moments"} if name == "moments" else {}
    before = orn.sample(
        orn.glm(X, y, noise_scale=1.0, prior_precision=1.0),
        sampler,
        draws=20,
        thin=2,
        warmup=20,
        batch_size=20,
        progress=False,
        **options,
    )
    after = orn.load(before.save(tmp_path / "fit.orn"))
    assert equal(before, after)
    assert type(after.dynamics) is type(before.dynamics)
    assert after.prediction.kl_qp == pytest.approx(before.prediction.kl_qp, rel=1e-6, abs=1e-9)
    assert after.prediction.approximate == before.prediction.approximate
    assert jax.tree.structure(after.params) == jax.tree.structure(before.params)
