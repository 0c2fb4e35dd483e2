"""The nightly job: `ornstein fit … --scheduler local:1 --checkpoint run`, on new data."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import ROOT

import ornstein as orn
from ornstein.interfaces.cli.main import main

distributed = pytest.importorskip("distributed", reason="--scheduler needs Dask")


def here(*words):
    """Exit code of the command in this process."""
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    return int(stopped.value.code or 0)


def elsewhere(*words):
    """Exit code and what the command prints to stderr in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    code = "from ornstein.interfaces.cli.main import main; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


@pytest.fixture
def days(tmp_path):
    """Two tables of the same shape, and the words of the nightly job."""
    rng = np.random.default_rng(0)
    for name in ("day1", "day2"):
        table = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
        table["y"] = table["a"] + rng.normal(size=300)
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    quick = ("--target", "y", "--draws", 50, "--chains", 2, "--checkpoint", tmp_path / "run")
    return [
        ("fit", tmp_path / f"day{day}.csv", *quick, "--out", tmp_path / f"out{day}")
        for day in (1, 2)
    ]


def refused(said, tmp_path):
    said = " ".join(said.split())
    assert "300 rows as before, with other values" in said and "choose another folder" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "out2").glob("*"))
    assert orn.load(tmp_path / "out1" / "fit.orn").settings["rows"] == 300


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_yesterdays_parts_are_not_todays_answer(days, tmp_path, capsys):
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="inproc://",
        dashboard_address=None,
        silence_logs=50,
    ) as cluster:
        place = ("--scheduler", cluster.scheduler_address)
        assert here(*days[0], *place) == 0
        capsys.readouterr()
        assert here(*days[1], *place) == 2
    refused(capsys.readouterr().err, tmp_path)


@pytest.mark.slow
def test_the_nightly_job(days, tmp_path):
    code, said = elsewhere(*days[0], "--scheduler", "local:1")
    assert code == 0, said
    code, said = elsewhere(*days[1], "--scheduler", "local:1")
    assert code == 2
    refused(said, tmp_path)
