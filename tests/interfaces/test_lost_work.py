"""No fit is lost: to a terminal that cannot print, to Ctrl-C, or to a name that was taken."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from limits import child, finished
from matplotlib.figure import Figure

import ornstein as orn
from ornstein.interfaces.cli.main import main
from ornstein.interfaces.cli.outputs import is_ours
from ornstein.posterior.plots import write_figure

FILES = ["fit.orn", "posterior.nc", "report.html"]

# A fit with a page of one line, for that is quicker, and Ctrl-C at a chosen moment. The signal is a
# real one that the process sends itself.
FIT = """
import os, signal, sys, threading, time
from pathlib import Path
moment = sys.argv.pop(1)

def strike(*rest, times=1, **more):
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)

def striking_before(owner, name, at=1, times=1):
    real, calls = getattr(owner, name), []
    def struck(*arguments, **named):
        calls.append(1)
        if len(calls) == at:
            strike(times=times)
        return real(*arguments, **named)
    setattr(owner, name, struck)

import ornstein.interfaces.report as report
report.write_report = lambda posterior, path, verdict, **_: path.write_text("a page") and path
from ornstein.engine import blocks, chain, run as engine
from ornstein.posterior import posterior
from ornstein.sampling import collect, run
blocks.BLOCK_NUMBERS = 2**11
if moment == "importing":
    import builtins
    real = builtins.__import__
    def importing(name, *rest, **more):
        if name == "pandas" and "pandas" not in sys.modules:
            strike()
        return real(name, *rest, **more)
    builtins.__import__ = importing
elif moment == "measuring":
    striking_before(run, "measure")
elif moment == "compiling":
    striking_before(chain, "run_block")
elif moment == "first values":
    striking_before(collect.Collection, "receive")
elif moment == "later":
    striking_before(collect.Collection, "receive", at=60)
elif moment == "twice":
    striking_before(chain.Chain, "advance", at=60, times=3)
elif moment == "checking":
    striking_before(posterior.Posterior, "check")
elif moment == "judging":
    from ornstein.ways import automatic
    striking_before(automatic, "judge")
elif moment == "lost":  # in a callback of the garbage collector, which cannot raise
    import gc
    from ornstein.sampling.session import Session
    received, receive, collect_draws = [], collect.Collection.receive, Session.collect
    first_error = engine._first_error
    def receiving(self, *arguments):
        receive(self, *arguments)
        received.append(1)
    def strike_once(phase, info):
        gc.callbacks.remove(strike_once)
        strike()
    def collecting(futures):
        while len(received) < 60:
            time.sleep(0.01)
        gc.callbacks.append(strike_once)
        gc.collect()
        first_error(futures)
    def collected(self, *arguments):
        engine._first_error = collecting
        return collect_draws(self, *arguments)
    collect.Collection.receive, Session.collect = receiving, collected
from ornstein.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    frame["y"] = frame["a"] + rng.normal(size=200)
    path = tmp_path_factory.mktemp("table") / "t.csv"
    frame.to_csv(path, index=False)
    return path


# The command as it is.
PLAIN = """
from ornstein.__main__ import main
print("ready", flush=True)
main()
"""


def command(table, out, draws, sampler="constant-sgd-full"):
    options = ["--draws", draws, "--chains", "2", "--sampler", sampler]
    return ["fit", table, "-t", "y", *options, "--out", out]


def fit(table, out, moment="never", *, draws=200, sampler="constant-sgd-full", **options):
    return child(FIT, moment, *command(table, out, draws, sampler), **options)


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def written(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_stdout_that_cannot_print_loses_nothing(table, tmp_path):
    """A pipe whose reader has left, a full disk, a Latin-1 terminal, and no stdout at all."""
    read, pipe = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    processes = {
        "pipe": fit(table, tmp_path / "pipe", stdout=pipe),
        "full": fit(table, tmp_path / "full", stdout=full),
    }
    found = {name: finished(process) for name, process in processes.items()}
    processes = {
        "latin-1": fit(table, tmp_path / "latin-1", env={"PYTHONIOENCODING": "latin-1"}),
        "stderr": fit(table, tmp_path / "stderr", stderr=full),
    }
    found |= {name: finished(process) for name, process in processes.items()}
    os.close(pipe)
    os.close(full)
    for name, (code, _, err) in found.items():
        assert code == 0, (name, err)
        assert written(tmp_path / name) == FILES
        assert orn.load(tmp_path / name / "fit.orn").draws.shape == (2, 200, 4)
        assert "Traceback" not in (err or "")
    for name, reason in (("pipe", "Broken pipe"), ("full", "No space left on device")):
        warnings = [line for line in found[name][2].splitlines() if line.startswith("Warning")]
        assert warnings == [
            f"Warning: stdout cannot be written to ({reason}); files are not affected"
        ]
    assert "Verdict: " in found["latin-1"][1]
    assert "\\u2192" in found["latin-1"][1] or "\\u2713" in found["latin-1"][1]


MOMENTS = ("importing", "measuring", "compiling", "twice")


def test_an_interrupt_before_there_are_draws_is_one_sentence(table, tmp_path):
    for pair in (MOMENTS[:2], MOMENTS[2:]):
        processes = {moment: fit(table, tmp_path / moment, moment, draws=10**6) for moment in pair}
        for moment, process in processes.items():
            code, out, err = finished(process)
            assert code == 130, (moment, code, err)
            assert out == "", moment
            errors = [line for line in err.splitlines() if line.startswith("Error: interrupted")]
            assert len(errors) == 1, (moment, err)
            assert "Traceback" not in err, (moment, err)
            assert not (tmp_path / moment).exists(), moment


def test_an_interrupt_later_keeps_the_draws_so_far(table, tmp_path):
    processes = {
        moment: fit(table, tmp_path / moment, moment, draws=10**6)
        for moment in ("first values", "later", "lost")
    }
    for moment, process in processes.items():
        code, out, err = finished(process)
        assert code == 130, (moment, err)
        assert "Traceback" not in err, (moment, err)
        if moment == "first values" and not (tmp_path / moment).exists():
            assert "before the first draw" in err  # the other chain had none yet
            continue
        posterior = orn.load(tmp_path / moment / "fit.orn")
        assert posterior.settings["complete"] is False
        taken = posterior.draws.shape[1]
        assert 0 < taken < 10**5, moment
        sentence = (
            f"Error: interrupted: {taken} of 1000000 draws a chain were taken, and are saved in"
            f" {tmp_path / moment}"
        )
        assert sentence in err
        assert "Verdict: " in out
        assert written(tmp_path / moment) == FILES


def test_an_interrupt_while_a_way_is_judged_keeps_its_draws(table, tmp_path):
    """Without a sampler: the library chooses a way, and judges it before it hands it over."""
    code, out, err = finished(fit(table, tmp_path / "fit", "judging", sampler="auto"))
    assert code == 130 and "Traceback" not in err, err
    posterior = orn.load(tmp_path / "fit" / "fit.orn")
    assert posterior.settings["complete"] is False and posterior.draws.shape == (2, 200, 4)
    assert "200 of 200 draws a chain were taken, and are saved in" in err
    assert "Verdict: " in out
    assert written(tmp_path / "fit") == FILES


def test_an_interrupt_of_the_report_says_what_is_saved(table, tmp_path):
    code, _, err = finished(fit(table, tmp_path / "fit", "checking"))
    assert code == 130
    assert "not everything was written; the fit is in" in err
    assert "Traceback" not in err
    assert orn.load(tmp_path / "fit" / "fit.orn").draws.shape == (2, 200, 4)


@pytest.mark.slow
def test_an_interrupt_at_any_moment(table, tmp_path):
    """From the first import to the last draws: 130, a sentence, and all files or none."""
    rng = np.random.default_rng(0)
    for number, delay in enumerate(rng.uniform(0.0, 8.0, 20)):
        out = tmp_path / str(number)
        process = child(PLAIN, *command(table, out, 10**6))
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        code, _, err = finished(process)
        assert code == 130, (delay, code, err)
        assert "Error: interrupted" in err, (delay, err)
        assert "Traceback" not in err, (delay, err)
        files = written(out)
        if files not in ([], FILES):  # it was over, and being written
            assert "fit.orn" in files, delay
            assert "not everything was written; the fit is in" in err, delay


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr(
        "ornstein.interfaces.report.write_report",
        lambda posterior, path, verdict, **_: (
            path.write_text('<meta name="generator" content="ornstein">') and path
        ),
    )


def test_a_user_s_own_files_are_not_written_over(table, tmp_path, no_report, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("my own report")
    again = command(table, out, 50)
    assert run(*again) == 2
    error = capsys.readouterr().err
    assert "report.html was not written by this command" in error
    assert "--force" in error
    assert written(out) == ["report.html"]
    assert (out / "report.html").read_text() == "my own report"
    assert run(*again, "--force") == 0
    assert written(out) == FILES
    # Now all three files are ornstein's: they may be replaced, and that is said.
    capsys.readouterr()
    assert run(*again) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "holds an earlier result, which will be replaced" in said
    for name in FILES:
        (out / name).write_text("my own")
        assert run(*again) == 2
        assert (out / name).read_text() == "my own"
        assert run(*again, "--force") == 0


def test_plots_are_not_written_over_files_of_the_user_s(table, tmp_path):
    mine, ours = tmp_path / "mine.png", tmp_path / "ours.png"
    mine.write_bytes(b"my own")
    for name in ("plan", "compare"):
        assert run(name, table, "-t", "y", "--plot", mine) == 2
        assert run(name, table, "-t", "y", "--plot", table, "--force") == 2
    assert mine.read_bytes() == b"my own"
    figure = Figure()
    for ending in (".png", ".svg", ".pdf"):
        write_figure(figure, ours.with_suffix(ending))
        assert is_ours(ours.with_suffix(ending))
        figure.savefig(tmp_path / f"foreign{ending}")
        assert not is_ours(tmp_path / f"foreign{ending}")


def test_predict_writes_over_neither_its_input_nor_a_foreign_table(table, tmp_path, no_report):
    data, fitted = tmp_path / "data.csv", tmp_path / "fit" / "fit.orn"
    data.write_bytes(table.read_bytes())
    assert run("fit", data, "-t", "y", "--draws", "50", "--out", fitted.parent) == 0
    (tmp_path / "link.csv").symlink_to(data)
    (tmp_path / "fit.csv").symlink_to(fitted)
    before = data.read_bytes(), fitted.read_bytes()
    for out in ("data.csv", "link.csv", "fit.csv"):
        for force in ([], ["--force"]):
            assert run("predict", fitted, data, "--out", tmp_path / out, *force) == 2
    assert (data.read_bytes(), fitted.read_bytes()) == before
    other = tmp_path / "other.csv"
    other.write_text("my,own\n1,2\n")
    assert run("predict", fitted, data, "--out", other) == 2
    assert other.read_text() == "my,own\n1,2\n"
    assert run("predict", fitted, data, "--out", other, "--force") == 0
    assert run("predict", fitted, data, "--out", other) == 0  # its own, by now
    assert "y_mean" in pd.read_csv(other).columns


def test_no_folder_is_left_where_nothing_came_of_it(table, tmp_path, capsys):
    out = tmp_path / "a" / "b"
    assert run("fit", table, "-t", "z", "--out", out) == 2
    assert run("fit", table, "-t", "y", "--batch-size", "10000", "--out", out) == 2
    assert not (tmp_path / "a").exists()
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "t.parquet").write_bytes(b"")
    assert run("fit", tmp_path / "parts", "-t", "y", "--out", tmp_path / "parts") == 2
    assert "is the input of this command" in capsys.readouterr().err
