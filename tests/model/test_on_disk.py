"""Tables on disk: their space is claimed before it is written to."""

from __future__ import annotations

import errno
import os
import tempfile

import numpy as np
import pandas as pd
import pytest
from limits import child, finished, small_disk

import ornstein as orn
from ornstein.model import on_disk

OPEN = """
import sys
import ornstein as orn
try:
    print(orn.open_table(sys.argv[1], "y").features.sum())
except orn.InputError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """2 MB as rows on disk."""
    path = tmp_path_factory.mktemp("table") / "t.parquet"
    rows = np.ones((62_500, 5))
    pd.DataFrame(rows, columns=[*"abcd", "y"]).to_parquet(path)
    return path


def test_a_table_larger_than_the_room_for_it_is_refused(table, tmp_path):
    """Without a reservation the process dies of SIGBUS."""
    with small_disk(tmp_path / "disk", 1_000_000) as disk:
        code, out, err = finished(child(OPEN, table, env={"TMPDIR": str(disk)}))
        assert (code, err) == (0, "")
        assert out.startswith("the table takes 0.002 GB as rows on disk, and")
        assert str(disk) in out
        assert "TMPDIR" in out
        assert not list(disk.iterdir())
    with small_disk(tmp_path / "larger", 4_000_000) as disk:
        code, out, err = finished(child(OPEN, table, env={"TMPDIR": str(disk)}))
        assert (code, out, err) == (0, "250000.0\n", "")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_failed_reservation_is_a_sentence(number, table, monkeypatch):
    def refuse(descriptor, offset, size):
        assert size == 2_000_000
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(orn.InputError, match=r"takes 0\.002 GB.*TMPDIR") as caught:
        orn.open_table(table, "y")
    assert os.strerror(number) in str(caught.value)
    assert tempfile.gettempdir() in str(caught.value)


@pytest.mark.parametrize("known", [True, False])
def test_where_nothing_can_be_reserved_free_space_decides(known, table, monkeypatch):
    def unsupported(descriptor, offset, size):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    if known:
        monkeypatch.setattr(os, "posix_fallocate", unsupported)
    else:
        monkeypatch.delattr(os, "posix_fallocate")
    assert orn.open_table(table, "y").features.shape == (62_500, 4)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(on_disk.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(orn.InputError, match="TMPDIR"):
        orn.open_table(table, "y")


@pytest.mark.parametrize("held", [b"", b"\x93NUMPY\x01\x00v\x00{'descr'", "scalar", "text"])
def test_a_file_that_holds_no_rows_is_refused(held, tmp_path):
    path = tmp_path / "t.npy"
    if isinstance(held, bytes):
        path.write_bytes(held)
    else:
        np.save(path, np.float64(3.0) if held == "scalar" else np.array(["a"]))
    with pytest.raises(orn.InputError, match=r"cannot be mapped|must hold a numeric array"):
        orn.open_table(path)
