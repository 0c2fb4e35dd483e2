"""Data beyond memory: the same chain as in memory, from memory maps, Parquet, Arrow and Zarr, in a
third of the space.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import ROOT, logistic_data, regression_data

import ornstein as orn
from ornstein.engine import blocks
from ornstein.model import on_disk as tables_on_disk
from ornstein.rows import feed
from ornstein.samplers.iasg import IASG
from ornstein.samplers.sgld import SGLD, robbins_monro

SHORT = {"draws": 40, "chains": 2, "thin": 30, "batch_size": 12, "progress": False, "seed": 4}


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    """Windows of a few steps, and blocks of a few windows: every boundary is met."""
    monkeypatch.setattr(feed, "WINDOW_BYTES", 12 * 4 * 4 * 17)
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", 2**11)


@pytest.fixture(scope="module")
def binary():
    X, y = logistic_data(500, 3)
    return X.astype(np.float32), y


def on_disk(path, array):
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def agree(streamed, held, exact=True):
    """The same indices and the same arithmetic: what is left is rounding in float32."""
    assert streamed.settings["steps"] == held.settings["steps"]
    np.testing.assert_allclose((streamed.draws - held.draws) / held.sd, 0.0, atol=1e-3)
    if exact:
        np.testing.assert_array_equal(streamed.draws, held.draws)


@pytest.mark.parametrize("scheme", ["replacement", "without-replacement", "slices"])
def test_a_memory_map_gives_the_chain_of_the_array(scheme, binary, tmp_path):
    X, y = binary
    model = orn.glm(on_disk(tmp_path / "x.npy", X), y, family="bernoulli", prior_precision=1.0)
    assert model.streams
    held = orn.sample(
        orn.glm(X, y, family="bernoulli", prior_precision=1.0),
        orn.ConstantSGD("full"),
        scheme=scheme,
        **SHORT,
    )
    agree(orn.sample(model, orn.ConstantSGD("full"), scheme=scheme, **SHORT), held)


SAMPLERS = {
    "momentum": (orn.ConstantSGD("diagonal", damping=0.4), {}),
    "normals and a schedule": (SGLD(schedule=robbins_monro(1e-3)), {}),
    "window means": (IASG(window=130, gap=10), {"thin": "auto"}),
    "a stride beyond a window": (orn.ConstantSGD("full"), {"thin": 83, "draws": 20}),
    "float64": (orn.ConstantSGD("full"), {"dtype": "float64"}),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_kind_of_kernel_can_be_fed(name, tmp_path):
    X, y = regression_data(300, 3)
    weights, offset = np.linspace(0.5, 1.5, 300), np.linspace(-1.0, 1.0, 300)
    sampler, options = SAMPLERS[name]
    models = [
        orn.glm(x, y, weights=weights, offset=offset, prior_precision=1.0)
        for x in (X, on_disk(tmp_path / "x.npy", X))
    ]
    held, streamed = (orn.sample(model, sampler, **{**SHORT, **options}) for model in models)
    # sums over several windows are added in another order
    agree(streamed, held, exact=name != "window means")


def test_a_model_of_ones_own_on_memory_maps(tmp_path):
    X, y = regression_data(300, 2)

    def log_likelihood(params, example):
        return -0.5 * (example["y"] - example["x"] @ params["w"]) ** 2

    def model(**data):
        return orn.Model(
            log_likelihood, data, lambda p: -0.5 * jnp.sum(p["w"] ** 2), init={"w": jnp.zeros(2)}
        )

    streamed = model(x=on_disk(tmp_path / "x.npy", X), y=on_disk(tmp_path / "y.npy", y))
    assert streamed.streams
    agree(
        orn.sample(streamed, orn.ConstantSGD("full"), **SHORT),
        orn.sample(model(x=X, y=y), orn.ConstantSGD("full"), **SHORT),
    )
    assert orn.check_gradients(streamed) == pytest.approx(orn.check_gradients(model(x=X, y=y)))


def test_a_streamed_run_is_resumed_to_the_bit(binary, tmp_path):
    X, y = binary
    model = orn.glm(on_disk(tmp_path / "x.npy", X), y, family="bernoulli", prior_precision=1.0)
    whole = orn.sample(model, orn.ConstantSGD("full"), **{**SHORT, "draws": 80})
    orn.sample(model, orn.ConstantSGD("full"), checkpoint=tmp_path / "run", **SHORT)
    resumed = orn.resume(tmp_path / "run", model, draws=80, progress=False)
    np.testing.assert_array_equal(resumed.draws, whole.draws)


def test_nothing_but_windows_of_rows_reaches_the_device(binary, tmp_path, monkeypatch):
    X, y = binary
    largest = 0
    gathered = orn.GLM.gathered

    def watched(self, indices, centre, dtype):
        nonlocal largest
        rows = gathered(self, indices, centre, dtype)
        largest = max(largest, sum(leaf.nbytes for leaf in jax.tree.leaves(rows)))
        return rows

    monkeypatch.setattr(orn.GLM, "gathered", watched)
    monkeypatch.setattr(
        orn.GLM, "problem", lambda *arguments: pytest.fail("all rows were put on the device")
    )
    orn.sample(
        orn.glm(on_disk(tmp_path / "x.npy", X), y, family="bernoulli", prior_precision=1.0),
        orn.ConstantSGD("full"),
        **SHORT,
    )
    assert 0 < largest <= 2 * feed.WINDOW_BYTES


@pytest.fixture(scope="module")
def table(tmp_path_factory, binary):
    """The same rows as a folder of two Parquet files, one Arrow file and a Zarr array."""
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    import pyarrow.parquet

    X, y = binary
    folder = tmp_path_factory.mktemp("tables")
    whole = pa.table({**{f"c{i}": X[:, i] for i in range(3)}, "y": y})
    (folder / "parquet").mkdir()
    pyarrow.parquet.write_table(
        whole.slice(0, 200), folder / "parquet" / "part-0.parquet", row_group_size=64
    )
    pyarrow.parquet.write_table(whole.slice(200), folder / "parquet" / "part-1.parquet")
    feather.write_feather(whole, folder / "rows.arrow", compression="uncompressed")
    np.save(folder / "x.npy", X)
    return folder


@pytest.mark.parametrize("source", ["parquet", "rows.arrow", "data set", "x.npy"])
def test_tables_on_disk(source, table, binary, monkeypatch):
    import pyarrow.dataset

    monkeypatch.setattr(tables_on_disk, "PIECE_BYTES", 1000)  # many pieces
    X, y = binary
    opened = pyarrow.dataset.dataset(table / "parquet") if source == "data set" else table / source
    model = orn.glm(
        opened, y if source == "x.npy" else "y", family="bernoulli", prior_precision=1.0
    )
    assert model.streams and isinstance(model.features, np.memmap)
    assert model.names[:3] == (("x0", "x1", "x2") if source == "x.npy" else ("c0", "c1", "c2"))
    agree(
        orn.sample(model, orn.ConstantSGD("full"), **SHORT),
        orn.sample(
            orn.glm(X, y, family="bernoulli", prior_precision=1.0), orn.ConstantSGD("full"), **SHORT
        ),
    )


def test_zarr(binary, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr(tables_on_disk, "PIECE_BYTES", 1000)
    X, y = binary
    array = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=X.shape, chunks=(64, 3), dtype="float32"
    )
    array[:] = X
    held = orn.sample(
        orn.glm(X, y, family="bernoulli", prior_precision=1.0), orn.ConstantSGD("full"), **SHORT
    )
    for source in (array, tmp_path / "x.zarr"):
        agree(
            orn.sample(
                orn.glm(source, y, family="bernoulli", prior_precision=1.0),
                orn.ConstantSGD("full"),
                **SHORT,
            ),
            held,
        )
    model = orn.Model(lambda theta, x: -0.5 * jnp.sum((x - theta) ** 2), array, init=jnp.zeros(3))
    assert model.streams


def test_tables_that_cannot_be_used(table, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    def written(name, **columns):
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY no")
    cases = {
        "there is no table": (tmp_path / "nowhere", "y"),
        "holds no .parquet": (tmp_path / "empty", "y"),
        "cannot be read as a table": (tmp_path / "broken.parquet", "y"),
        "cannot be mapped": (tmp_path / "broken.npy", np.ones(3)),
        "no column 'z'": (table / "parquet", "z"),
        "must be numeric, not string": (written("text.parquet", a=["u", "v"], y=[0, 1]), "y"),
        "has a missing value": (written("null.parquet", a=[1.0, None], y=[0, 1]), "y"),
        "not finite": (written("nan.parquet", a=[1.0, np.nan], y=[0.0, 1.0]), "y"),
        "needs rows and columns": (written("narrow.parquet", y=[0.0, 1.0]), "y"),
    }
    for sentence, (source, target) in cases.items():
        with pytest.raises(orn.InputError, match=sentence):
            orn.glm(source, target, prior_precision=1.0)


LIMITED = """
import os, resource, sys
import numpy as np
import ornstein as orn

path, rows, columns, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
options = dict(draws=20, chains=2, thin=20, warmup=100, batch_size=64, progress=False)
rng = np.random.default_rng(0)
small = rng.normal(size=(2000, columns)).astype(np.float32)
np.save(path + ".small.npy", small)
labels = small[:, 0] > 0.1 * rng.normal(size=2000)
model = orn.glm(path + ".small.npy", labels, family="bernoulli")
orn.sample(model, orn.ConstantSGD("full"), **options)  # compiled
X = np.load(path, mmap_mode="r")
y = np.concatenate([X[start:start + 10_000, :3].sum(axis=1) for start in range(0, rows, 10_000)])
y = y + np.random.default_rng(1).logistic(size=rows) > 0
with open("/proc/self/status") as status:
    now = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
# A third of the data, on top of what is there.
resource.setrlimit(resource.RLIMIT_DATA, (now + rows * columns * 4 // 3,) * 2)
if how == "in memory":
    X = np.array(X)
post = orn.sample(orn.glm(X, y, family="bernoulli"), orn.ConstantSGD("full"), **options)
print(float(post.draws.sum()))
"""


@pytest.mark.slow
def test_three_times_the_memory_that_is_allowed(tmp_path):
    """The kernel's limit on memory that is not backed by a file is a third of the data; held in
    memory it must fail.
    """
    rows, columns, path = 4_000_000, 40, tmp_path / "x.npy"  # 640 MB
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    rng = np.random.default_rng(2)
    for start in range(0, rows, 100_000):
        out[start : start + 100_000] = rng.standard_normal((100_000, columns), dtype=np.float32)
    del out
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }

    def run(how):
        arguments = [
            sys.executable,
            "-c",
            textwrap.dedent(LIMITED),
            str(path),
            str(rows),
            str(columns),
            how,
        ]
        return subprocess.run(
            arguments, env=environment, capture_output=True, text=True, timeout=1500, check=False
        )

    streamed, held = run("streamed"), run("in memory")
    assert streamed.returncode == 0, streamed.stderr[-2000:]
    assert held.returncode != 0 and "MemoryError" in held.stderr
