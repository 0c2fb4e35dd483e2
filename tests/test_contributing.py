"""The sampler of the guide: its code is taken from docs/developer/add-a-sampler.md, and it passes
what every sampler must.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import battery
import numpy as np
import pytest
from helpers import ROOT

import ornstein as orn

GUIDE = ROOT / "docs" / "developer" / "add-a-sampler.md"


def python_blocks(path):
    return re.findall(
        r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The guide's file, imported from a folder of its own."""
    (code,) = python_blocks(GUIDE)
    path = tmp_path_factory.mktemp("own") / "matched_sgd.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("matched_sgd", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["matched_sgd"] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["matched_sgd"]


def test_it_is_about_a_page(own):
    (code,) = python_blocks(GUIDE)
    assert len(code.splitlines()) <= 60


def test_it_passes_the_battery(own):
    row = battery.Row(own.MatchedSGD(), exact=True, axes=2)
    battery.check_protocol(row)
    battery.check_one_step(row, "gaussian", "float64")
    battery.check_same_seed(row)
    battery.check_stationary(row, battery.quadratic, batch_size=40)


def test_its_law_is_the_posterior_up_to_its_bound(own):
    _, curvature = battery.quadratic()
    for fraction in (0.1, 0.999):
        dynamics = own.MatchedSGD(fraction).tune(curvature, batch_size=40)
        assert dynamics.predict(curvature).kl_qp == pytest.approx(0.0, abs=1e-9)
        assert np.linalg.eigvalsh(dynamics.injected)[0] > 0.0
    with pytest.raises(orn.InputError, match="fraction"):
        own.MatchedSGD(1.5)


def test_a_step_beyond_the_bound_has_no_covariance_to_inject(own):
    """Negative control: at 1.01 of the largest factor the injected noise would have a negative
    eigenvalue.
    """
    _, curvature = battery.quadratic()
    step = 1.01 * own.MatchedSGD(1.0).tune(curvature, batch_size=40).preconditioner
    noise = orn.theory.matched_injection(
        curvature.hessian, curvature.effective_noise, step, curvature.n_data, 40
    )
    assert np.linalg.eigvalsh(noise)[0] < 0.0


SEEN = """
import ornstein as orn
from ornstein.interfaces.cli.arguments import SAMPLER_HELP
from ornstein.posterior.portable import describe, rebuild
from ornstein.samplers import PUBLIC, STORED, sampler_by_name
import mkdocs_hooks

sampler = sampler_by_name("matched-sgd")
assert sampler == orn.MatchedSGD()
assert "MatchedSGD" in dir(orn)
assert PUBLIC["MatchedSGD"] == STORED["MatchedSGD"] == "samplers.matched_sgd"
assert rebuild(describe(sampler, {}, "sampler"), {}) == sampler
assert "matched-sgd" in SAMPLER_HELP
assert "::: ornstein.MatchedSGD" in mkdocs_hooks.with_samplers("<!-- samplers -->")
"""


def test_a_file_and_a_line_add_it_to_the_library(tmp_path):
    """In a copy of the library, with the guide's line in its registry."""
    guide = GUIDE.read_text(encoding="utf-8")
    (line,) = re.findall(r"^ +(Entry\(.*\),)$", guide, flags=re.MULTILINE)
    (code,) = python_blocks(GUIDE)
    copy = tmp_path / "ornstein"
    shutil.copytree(ROOT / "src" / "ornstein", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "samplers" / "matched_sgd.py").write_text(code, encoding="utf-8")
    registry = copy / "samplers" / "__init__.py"
    before, start, after = registry.read_text(encoding="utf-8").partition("REGISTRY = (\n")
    assert start
    registry.write_text(f"{before}{start}    {line}\n{after}", encoding="utf-8")

    tools = ROOT / "tools"
    paths = os.pathsep.join([str(tmp_path), str(tools)])

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )

    stale = run(tools / "stub.py", "--check")
    assert stale.returncode == 1
    assert "make format" in stale.stdout
    assert run(tools / "stub.py").returncode == 0
    assert run(tools / "stub.py", "--check").returncode == 0
    assert "import MatchedSGD" in (copy / "__init__.pyi").read_text(encoding="utf-8")
    seen = run("-c", SEEN)
    assert seen.returncode == 0, seen.stderr
