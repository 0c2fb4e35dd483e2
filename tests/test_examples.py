"""Every example runs from its file as the documentation says, and says what it is there to say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
SOURCE = FOLDER.parent / "src"
# What each prints, and the libraries beyond the core that it needs.
EXAMPLES = {
    "sklearn_pipeline": (("R² on new rows", "90 % intervals hold", "verdict:"), ("sklearn",)),
    "numpyro_regression": (("against NUTS", "verdict:"), ("numpyro",)),
    "flax_last_layer": (
        ("held-out rows", "trained network:", "temperature scaling:", "last layer:", "verdict:"),
        ("flax", "optax", "sklearn"),
    ),
    "sklearn_mlp": (("held-out rows", "last layer:", "most doubtful:", "verdict:"), ("sklearn",)),
    "torch_last_layer": (
        ("trained on 600", "temperature scaling:", "last layer:", "all in", "verdict:"),
        ("torch", "sklearn"),
    ),
    "flax_small_network": (
        ("MAP network:", "constant SGD:", "SGFS:", "verdict:"),
        ("flax", "optax", "sklearn"),
    ),
    "equinox_low_rank": (
        ("trained network:", "MAP last layer:", "low-rank Gaussian:", "verdict:"),
        ("equinox", "optax", "sklearn"),
    ),
}
HELPERS = {"calibration"}
FULL_SIZE = {"hyperparameters"}  # needs the paper's data and minutes
DATA = FOLDER.parents[1] / "shared" / "data"


def output(name: str, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_example_is_forgotten():
    assert {path.stem for path in FOLDER.glob("*.py")} == EXAMPLES.keys() | HELPERS | FULL_SIZE


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    phrases, needed = EXAMPLES[name]
    for library in needed:
        pytest.importorskip(library, reason=f"needs {library}")
    said = output(name)
    assert all(phrase in said for phrase in phrases), said
    # Networks are compared with the one at the mode, by log loss and calibration error.
    scores = re.findall(
        r"accuracy ([\d.]+)(?: ± [\d.]+)? +NLL ([\d.]+)(?: ± [\d.]+)? +ECE ([\d.]+)", said
    )
    if "accuracy" in said:
        assert len(scores) >= 2
        assert all(
            float(accuracy) > 0.8 and float(loss) < 1.0 and float(error) < 0.3
            for accuracy, loss, error in scores
        ), said


@pytest.mark.nightly
def test_hyperparameters_at_full_size(tmp_path, monkeypatch):
    if not DATA.exists():
        pytest.skip("needs the data of the paper, in ../shared/data beside the project")
    monkeypatch.setenv("ORNSTEIN_DATA", str(DATA))
    monkeypatch.chdir(tmp_path)
    said = output("hyperparameters", "mnist")
    assert (
        "60,000 rows" in said
        and "best of the grid" in said
        and (tmp_path / "mnist-em.png").exists()
    )
