"""What CI adds to the tests: a browser where it may install one, and no skips but those
allowed.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from allowed_skips import is_allowed
from helpers import ROOT

SUITE = """
import pytest

def test_that_passes():
    pass

@pytest.mark.xfail
def test_that_is_expected_to_fail():
    assert False

def test_that_skips():
    {skip}
"""


def pytest_run(folder, skip, *options, ci="true"):
    (folder / "test_some.py").write_text(SUITE.format(skip=skip))
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT / "tests")}
    command = [sys.executable, "-m", "pytest", "-p", "allowed_skips", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "with a worker"])
def test_a_skip_for_any_other_reason_fails_the_run_under_ci(tmp_path, options):
    refused = pytest_run(tmp_path, 'pytest.skip("no browser")', *options)
    assert refused.returncode == 1
    assert "skips that CI does not allow" in refused.stdout
    assert "test_some.py::test_that_skips: no browser" in refused.stdout


def test_a_module_that_skips_fails_the_run_under_ci(tmp_path):
    for options in ((), ("-n", "1")):
        (tmp_path / "test_more.py").write_text('import pytest\npytest.importorskip("no_such")\n')
        refused = pytest_run(tmp_path, "pass", *options)
        assert refused.returncode == 1
        assert "test_more.py: could not import 'no_such'" in refused.stdout


@pytest.mark.parametrize(
    ("skip", "ci"),
    [
        ('pytest.skip("needs root, to mount a small disk")', "true"),
        ('pytest.skip("needs the data of the paper: wine is absent")', "true"),
        ('pytest.skip("needs torch")', "true"),
        ('pytest.skip("no browser")', ""),
    ],
)
def test_other_skips_are_fine(tmp_path, skip, ci):
    done = pytest_run(tmp_path, skip, ci=ci)
    assert done.returncode == 0, done.stdout
    assert "CI does not allow" not in done.stdout


def test_reasons():
    assert is_allowed("needs root: nobody else may mount")
    assert not is_allowed("it needs roots") and not is_allowed("")


def installer(folder, *, user="0", apt="exit 0", path=None):
    """.ci/browser among commands of our own; what it says, and what it asks apt-get for."""
    commands = folder / "bin"
    commands.mkdir()
    called = folder / "called"
    scripts = {"id": f"echo {user}", "timeout": 'shift; exec "$@"'}
    if apt is not None:
        scripts["apt-get"] = f'echo "$@" >> {called}; {apt}'
    for name, script in scripts.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n")
        (commands / name).chmod(0o755)
    if path is not None:
        (commands / path).symlink_to("/bin/true")
    done = subprocess.run(
        ["/bin/bash", str(ROOT / ".ci" / "browser")],
        env={"PATH": str(commands)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout, called.read_text().splitlines() if called.exists() else []


def test_ci_installs_a_browser_where_it_may(tmp_path):
    said, called = installer(tmp_path)
    assert said == "Installing Chromium ...\n"
    assert [line.split()[0] for line in called] == ["update", "install"]
    assert called[1].endswith(" chromium")


@pytest.mark.parametrize(
    ("situation", "says"),
    [
        ({"path": "chromium"}, ""),
        ({"user": "1000"}, "cannot install one"),
        ({"apt": None}, "cannot install one"),
        ({"apt": "exit 100"}, "could not be installed"),
    ],
)
def test_ci_goes_on_where_it_may_not(tmp_path, situation, says):
    said, called = installer(tmp_path, **situation)
    assert says in said
    assert not any("install" in line for line in called)
