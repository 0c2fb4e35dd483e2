"""The wheel and the source distribution: reproducible, complete, and nothing else in them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import ornstein

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ornstein"
NOT_CODE = {".j2", ".css", ".html", ".typed", ".pyi", ".svg", ".json"}


def built(builder, folder, monkeypatch):
    """The archive that a builder makes, with the time that reproducible builds set."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return Path(next(builder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("builder", [WheelBuilder, SdistBuilder])
def test_a_second_build_has_the_same_bytes(builder, tmp_path, monkeypatch):
    first = built(builder, tmp_path / "one", monkeypatch)
    second = built(builder, tmp_path / "two", monkeypatch)
    assert first.name == second.name
    assert sha256(first) == sha256(second)


def test_the_wheel_holds_the_package_and_its_data(tmp_path, monkeypatch):
    wheel = built(WheelBuilder, tmp_path, monkeypatch)
    assert wheel.name == f"ornstein-{ornstein.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = {
        f"ornstein/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.suffix == ".py" or path.suffix in NOT_CODE
    }
    assert tracked <= names
    others = {name for name in names if not name.startswith("ornstein/")}
    assert all(name.startswith(f"ornstein-{ornstein.__version__}.dist-info/") for name in others)
    assert any(name.endswith("licenses/LICENSE") for name in others)
    assert any(name.endswith("entry_points.txt") for name in others)


def test_the_source_distribution_can_be_tested(tmp_path, monkeypatch):
    with tarfile.open(built(SdistBuilder, tmp_path, monkeypatch)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"}
    assert wanted <= names
    assert any(name.startswith("tests/laws/") for name in names)
    assert not any(part in name for name in names for part in (".git/", ".venv", "__pycache__"))


def test_one_version_everywhere():
    version = ornstein.__version__
    cited = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    released = re.findall(
        r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert cited == [version] and released[0] == version
    readme = (ROOT / "README.md").read_text("utf-8")
    assert set(re.findall(r"ornstein-(\d[\d.]*\d)", readme)) == {version}


@pytest.mark.nightly
def test_it_installs_and_runs_in_an_empty_environment(tmp_path, monkeypatch):
    wheel = built(WheelBuilder, tmp_path, monkeypatch)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "empty")], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--no-input"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + "\n".join(f"{k},{2 * k + k % 3}" for k in range(60)), "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), "-m", "ornstein", "fit", str(table), "--target", "y", "--out", "fit"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "trusted" in done.stdout and (tmp_path / "fit" / "report.html").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_it_resolves_for_later_pythons(version, tmp_path, monkeypatch):
    wheel = built(WheelBuilder, tmp_path, monkeypatch)
    command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-input"]
    command += ["--python-version", version, "--only-binary=:all:", "--target", str(tmp_path)]
    done = subprocess.run([*command, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
