"""Names from strangers (columns, labels, files) are shown, and never obeyed."""

from __future__ import annotations

import contextlib
import html
import io
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ornstein as orn
from ornstein.checks import printable
from ornstein.interfaces.cli.main import main
from ornstein.interfaces.cli.results import write_plots
from ornstein.interfaces.table.fitting import from_table
from ornstein.posterior import plots

FILES = ["fit.orn", "posterior.nc", "report.html"]
HOSTILE = [
    "share [/]",
    "[red]",
    "\x1b[2J\x1b[31mtrusted",
    "nul\0inside",
    "\0",
    "\u202ednuora\u2066 yaw rehto eht",
    "$\\frac{1}$ $",
    "{{ 7 * 7 }} {% raw %}",
    "</title><script>alert(1)</script>",
    'id="x" #040404 --> ]]>',
    "first\nVerdict: trusted\r\x08",
    ":skull: \u200b\ufeff\x9b31m",
    "long " * 400 + "name",
    "\U0001f600 größe 大小",
]
QUICK = ["--draws", "20", "--chains", "2", "--batch-size", "10"]


def run(*arguments):
    """Exit code, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0), out.getvalue(), err.getvalue()


def harmless(text):
    """Whether a terminal or a browser shows all of it and obeys none."""
    return all(letter.isprintable() or letter == "\n" for letter in text)


def table(columns, target, labels, path, rows=60):
    """A column of labels, columns of numbers, and a target that depends on the first of these."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.normal(size=rows) for name in columns})
    frame[f"{columns[0]} kind"] = np.resize(np.array(labels, dtype=object), rows)
    frame[target] = frame[columns[0]] + rng.normal(size=rows)
    frame.to_parquet(path)
    return frame


def check_shown(code, out, err, folder):
    assert harmless(out), out
    assert harmless(err), err
    assert "Traceback" not in err
    if code:
        assert code == 2, err
        assert sum(line.startswith("Error: ") for line in err.splitlines()) == 1
        assert not folder.exists()
        return
    assert sorted(path.name for path in folder.iterdir()) == FILES
    assert sum(line.startswith("Verdict: ") for line in out.splitlines()) == 1
    assert harmless((folder / "report.html").read_text(encoding="utf-8"))


def test_all_of_them_at_once(tmp_path, monkeypatch):
    """Through fit and predict, with every figure."""
    target, labels = HOSTILE[0], HOSTILE[1:4]
    frame = table(HOSTILE[1:], target, labels, tmp_path / "t.parquet")
    code, out, err = run(
        "fit", tmp_path / "t.parquet", "-t", target, *QUICK, "--out", tmp_path / "f"
    )
    assert code == 0, err
    check_shown(code, out, err, tmp_path / "f")
    assert "regression of 'share [/]'" in out
    assert "[red]" in out
    assert "\\x1b[2J\\x1b[31mtrusted" in out
    page = (tmp_path / "f" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    for name in HOSTILE[:-2]:
        assert html.escape(printable(name), quote=False) in page.replace("&#34;", '"'), name
    posterior = orn.load(tmp_path / "f" / "fit.orn")
    assert set(HOSTILE[1:]) <= set(posterior.names)
    code, out, err = run("predict", tmp_path / "f" / "fit.orn", tmp_path / "t.parquet")
    assert code == 0, err
    assert harmless(out + err)
    found = pd.read_csv(tmp_path / "t-predictions.csv")
    assert len(found) == len(frame)
    assert "share [/]_mean" in out
    (tmp_path / "plots").mkdir()
    assert len(write_plots(posterior, tmp_path / "plots")) == 3
    plots.trace(posterior, path=tmp_path / "plots" / "traces.png")
    assert harmless(str(posterior.check()))
    assert harmless(posterior.check().explain())
    comparison = orn.compare({"[/] \x1b[2J": posterior, "other": posterior}, reference=posterior)
    assert harmless(str(comparison))
    assert "[/] \\x1b[2J" in str(comparison)
    comparison.plot(tmp_path / "plots" / "overlay.png")


def test_classes_stay_in_the_headings(tmp_path):
    rng = np.random.default_rng(0)
    labels = ["\x1b", "[b]", "[red]"]
    frame = pd.DataFrame({"x": rng.normal(size=90), "k": np.resize(labels, 90)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    code, out, err = run("fit", tmp_path / "t.csv", "-t", "k", *QUICK, "--out", tmp_path / "f")
    assert code == 0, err
    assert harmless(out + err)
    assert from_table(orn.load(tmp_path / "f" / "fit.orn"))[1].classes == tuple(sorted(labels))
    code, out, err = run("predict", tmp_path / "f" / "fit.orn", tmp_path / "t.csv")
    assert code == 0, err
    assert all(f"k_mean[{label}]" in out for label in ("\\x1b", "[b]"))
    assert harmless(out + err)


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr("ornstein.interfaces.report.report.sections", lambda posterior, model: {})


NAMES = st.one_of(
    st.text(min_size=1, max_size=12),
    st.sampled_from(HOSTILE),
    st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE)).map("".join),
).filter(lambda name: not any("\ud800" <= letter <= "\udfff" for letter in name))


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    columns=st.lists(NAMES, min_size=2, max_size=2, unique_by=lambda name: name.strip()),
    labels=st.lists(NAMES, min_size=2, max_size=2, unique=True),
)
@example(columns=["\0", "a"], labels=["\0", "\0\0"])
@example(columns=["a", "a=b"], labels=["b", " "])
def test_any_name_through_fit(columns, labels, tmp_path, no_figures):
    target, *features = columns
    path, folder = tmp_path / "t.parquet", tmp_path / "f"
    shutil.rmtree(folder, ignore_errors=True)
    table(features, target, labels, path)
    code, out, err = run("fit", path, "-t", target.strip(), *QUICK, "--out", folder)
    check_shown(code, out, err, folder)
    if code == 0:
        code, out, err = run(
            "predict", folder / "fit.orn", path, "--out", tmp_path / "p.csv", "--force"
        )
        assert code in (0, 2), err
        assert harmless(out + err)


def test_halves_of_surrogate_pairs_reach_every_file(tmp_path):
    """They come with models of one's own, not with tables."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 2))
    posterior = orn.laplace(
        orn.glm(features, features[:, 0] + rng.normal(size=60), prior_precision=1.0), draws=50
    )
    posterior = replace(posterior, names=("\ud800", "b\0", *posterior.names[2:]))
    assert orn.load(posterior.save(tmp_path / "fit.orn")).names == posterior.names
    page = posterior.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "\\ud800" in page
    assert harmless(page)
    posterior = replace(posterior, settings={**posterior.settings, "note": "\ud800\0"})
    data = posterior.to_arviz()
    assert data["posterior"].attrs["note"] == "\\ud800\\x00"
