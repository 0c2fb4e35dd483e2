"""Files are replaced whole or not at all: full disks, several writers, killed writers, Ctrl-C."""

from __future__ import annotations

import os
import signal
import stat
import time

import numpy as np
import pytest
from limits import child, finished, small_disk

from ornstein.errors import FileError
from ornstein.posterior.archive import format_of, read_archive, write_archive
from ornstein.posterior.files import replacing

FORMAT = "ornstein-test"


def save(path, size):
    write_archive(path, {"format": FORMAT}, {"values": np.full(size, size, dtype=np.int64)})


def loaded(path):
    return read_archive(path, FORMAT)[1]["values"]


def only(folder, *names):
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    with small_disk(tmp_path / "disk", 200_000) as disk:
        save(disk / "fit.orn", 1000)
        (disk / "page.html").write_text("old")
        with pytest.raises(FileError, match=r"cannot write .*fit\.orn: No space left on device"):
            save(disk / "fit.orn", 100_000)
        with (
            pytest.raises(FileError, match="No space left on device"),
            replacing(disk / "page.html") as temporary,
        ):
            temporary.write_text("new" * 10**6)
        assert loaded(disk / "fit.orn").size == 1000
        assert (disk / "page.html").read_text() == "old"
        only(disk, "fit.orn", "page.html")


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, pandas as pd
from ornstein.errors import FileError
from ornstein.interfaces.cli.results import write_netcdf
from ornstein.interfaces.table.predicting import write_table
from ornstein.model.parameters import Layout
from ornstein.posterior.drawing import write_figure
from ornstein.posterior.posterior import Posterior
from matplotlib.figure import Figure

folder = Path(sys.argv[1])
draws = np.random.default_rng(0).normal(size=(2, int(sys.argv[2]), 3))
layout = Layout.of({"coef": np.zeros(2), "intercept": np.zeros(())})
posterior = Posterior(draws, ("a", "b", "intercept"), layout, {"ornstein": "0"})
import ornstein as orn
table = dict(a=[0.0, 1.0, 2.0, 4.0], b=[1.0, 0.0, 1.5, 1.0], y=[0.0, 1.0, 1.5, 2.0])
known = orn.regress("y ~ a + b", table, progress=False).predict.spec
figure = Figure()
figure.subplots().plot(draws[0, :2000])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
failed = 0
for write in (
    lambda: posterior.save(folder / "fit.orn"),
    lambda: write_table(pd.DataFrame(draws[0]), folder / "p.csv"),
    lambda: write_table(pd.DataFrame(draws[0], columns=list("abc")), folder / "p.parquet"),
    lambda: write_netcdf(posterior, known, folder / "posterior.nc"),
    lambda: write_figure(figure, folder / "plot.png"),
):
    try:
        write()
    except FileError as error:
        assert "cannot write" in str(error), error
        failed += 1
print(failed)
"""


def test_every_kind_of_file_survives_a_limit_on_its_size(tmp_path):
    code, out, err = finished(child(LIMITED, tmp_path, 100, 10**9))
    assert (code, out.strip(), err) == (0, "0", "")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"fit.orn", "p.csv", "p.parquet", "posterior.nc", "plot.png"}
    code, out, err = finished(child(LIMITED, tmp_path, 20_000, 8192))
    assert (code, out.strip(), err) == (0, "5", "")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


ANNOUNCED = """
import numpy as np
from ornstein.posterior.arviz import inference_data
inference_data({"x": np.zeros((1, 4))}, {})
"""


def test_the_first_file_of_a_day_announces_nothing_of_another_library(tmp_path, monkeypatch):
    """ArviZ 0.23 keeps in the user's cache on which day it last announced its successor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert finished(child(ANNOUNCED)) == (0, "", "")


WRITER = """
import sys
from pathlib import Path
import numpy as np
from ornstein.posterior.archive import write_archive
size = int(sys.argv[2])
for _ in range(25):
    write_archive(Path(sys.argv[1]), {"format": "ornstein-test"},
                  {"values": np.full(size, size, dtype=np.int64)})
"""


def test_eight_writers_of_one_path_leave_no_damaged_file(tmp_path):
    path = tmp_path / "fit.orn"
    sizes = [1000 * (number + 1) for number in range(8)]
    writers = [child(WRITER, path, size) for size in sizes]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            values = loaded(path)
            assert np.all(values == values.size)
            seen.add(values.size)
        time.sleep(0.002)
    assert [finished(writer) for writer in writers] == [(0, "", "")] * 8
    assert seen <= set(sizes)
    assert loaded(path).size in sizes
    only(tmp_path, "fit.orn")


SLOW_WRITER = """
import sys, time
from ornstein.posterior.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print("begun", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_writer_leaves_is_removed_and_a_living_one_s_is_not(tmp_path):
    dead, alive = (child(SLOW_WRITER, tmp_path / name) for name in ("dead", "alive"))
    for process in (dead, alive):
        assert process.stdout.readline() == "begun\n"
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert len(list(tmp_path.glob(".*.part"))) == 2
    save(tmp_path / "fit.orn", 10)
    assert len(list(tmp_path.glob(".*.part"))) == 1
    alive.send_signal(signal.SIGINT)
    alive.communicate(timeout=60)
    only(tmp_path, "fit.orn")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_of_a_block_that_fails(error, tmp_path):
    (tmp_path / "page").write_text("old")
    with pytest.raises(error), replacing(tmp_path / "page") as temporary:
        temporary.write_text("new")
        raise error
    assert (tmp_path / "page").read_text() == "old"
    only(tmp_path, "page")


def test_links_are_followed_and_permissions_kept(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o604)
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o604
    with replacing(tmp_path / "fresh") as temporary:
        temporary.write_text("new")
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o666 & ~mask


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path, "it is a folder"),
        (tmp_path / "pipe", "it is not an ordinary file"),
        (tmp_path / "absent" / "file", "No such file or directory"),
    ):
        with pytest.raises(FileError, match=reason), replacing(path):
            raise AssertionError("the block must not run")
    with pytest.raises(FileError, match="no array can be named"):
        write_archive(tmp_path / "a.orn", {"format": FORMAT}, {"a\0b": np.zeros(1)})


def test_the_format_of_a_file_is_known_without_its_arrays(tmp_path):
    save(tmp_path / "fit.orn", 10)
    (tmp_path / "other.orn").write_text("ornstein-test")
    assert format_of(tmp_path / "fit.orn") == FORMAT
    assert format_of(tmp_path / "other.orn") == format_of(tmp_path / "absent.orn") == ""
