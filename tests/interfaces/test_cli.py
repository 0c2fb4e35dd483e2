"""The command line as a user meets it: files in, files out, one sentence where something is
wrong.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from limits import child, finished

import ornstein as orn
from ornstein.interfaces.cli import console
from ornstein.interfaces.cli.arguments import SAMPLER_HELP, robust_sampler
from ornstein.interfaces.cli.main import main
from ornstein.interfaces.cli.scheduling import scheduler
from ornstein.interfaces.cli.theory_table import curvature_of, theory_table
from ornstein.interfaces.table.fitting import from_table, shown
from ornstein.interfaces.table.predicting import predict_table
from ornstein.samplers import FORMS, sampler_by_name

QUICK = ["--draws", "200", "--chains", "2"]
COMMANDS = ("demo", "fit", "predict", "compare", "theory")


def run(*arguments: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def houses(rows: int = 1500, seed: int = 0) -> pd.DataFrame:
    """price = 50 + 2·size + 15·[area is south] + noise of sd 10, and targets of the other kinds."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"size": rng.normal(100.0, 20.0, rows), "age": rng.uniform(0.0, 80.0, rows)}
    )
    table["area"] = rng.choice(["north", "south"], rows)
    signal = (table["size"] - 100.0) / 20.0
    table["price"] = (
        50.0 + 2.0 * table["size"] + 15.0 * (table["area"] == "south") + rng.normal(0.0, 10.0, rows)
    )
    table["sold"] = np.where(
        rng.uniform(size=rows) < scipy.special.expit(0.8 * signal), "yes", "no"
    )
    table["visits"] = rng.poisson(np.exp(0.8 + 0.3 * signal))
    table["kind"] = np.array(["barn", "flat", "house"])[
        (rng.gumbel(size=(rows, 3)) + np.outer(signal, [0, 0.5, 1])).argmax(1)
    ]
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A table and a fit of it, made through the command line."""
    place = tmp_path_factory.mktemp("cli")
    houses().to_csv(place / "houses.csv", index=False)
    drop = ["--drop", "sold", "--drop", "visits", "--drop", "kind"]
    assert run("fit", place / "houses.csv", "--target", "price", *drop, "--out", place / "fit") == 0
    return place


@pytest.fixture
def no_report(monkeypatch):
    """`fit` without the page, which takes longer than a small fit: for tests that are about
    something else.
    """
    monkeypatch.setattr(
        "ornstein.interfaces.report.write_report", lambda posterior, path, **known: path
    )


def one_sentence(text: str) -> bool:
    lines = text.strip().splitlines()
    return len(lines) == 1 and lines[0].startswith("Error: ") and "Traceback" not in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    assert run(command, "--help") == 0
    assert f"Example:  ornstein {command}" in " ".join(
        capsys.readouterr().out.replace("│", " ").split(" ")
    )


def test_the_help_of_fit_names_every_sampler():
    """It is written out, so that `--help` need not import them."""
    assert re.split(", | or ", SAMPLER_HELP.rstrip("."))[-len(FORMS) :] == list(FORMS)


def test_no_command_shows_what_there_is(capsys):
    assert run() == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert "Example:  ornstein fit" in shown
    assert run("--version") == 0
    assert orn.__version__ in capsys.readouterr().out


def test_starting_up_does_not_load_what_is_heavy():
    heavy = "{'jax', 'pandas', 'matplotlib', 'arviz', 'scipy', 'sklearn', 'numpyro', 'jinja2'}"
    code = f"import sys, ornstein.interfaces.cli; print(sorted({heavy} & set(sys.modules)))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_fit_writes_what_it_promises(folder):
    import arviz

    files = {path.name for path in (folder / "fit").iterdir()}
    assert files == {"fit.orn", "posterior.nc", "report.html"}
    posterior = orn.load(folder / "fit" / "fit.orn")
    original = shown(posterior)
    summary = original.summary()
    truth = {"size": 2.0, "age": 0.0, "area=south": 15.0, "intercept": 50.0, "scale": 10.0}
    for name, value in truth.items():
        assert abs(summary.loc[name, "mean"] - value) < 4.0 * summary.loc[name, "sd"]
    data = arviz.from_netcdf(folder / "fit" / "posterior.nc")
    assert list(data["posterior"]["feature"].values) == ["size", "age", "area=south"]
    np.testing.assert_allclose(data["posterior"]["coef"].values, original.params["coef"])
    np.testing.assert_allclose(data["posterior"]["scale"].values, original.params["scale"])


def test_predict_adds_columns_and_its_intervals_hold_new_values(folder, capsys):
    """Coverage of 95 % intervals on 3000 new rows: binomial error 0.4 points, so 5 of them is 2
    points.
    """
    new = houses(3000, seed=1)
    new.drop(columns="price").to_csv(folder / "new.csv", index=False)
    assert run("predict", folder / "fit" / "fit.orn", folder / "new.csv") == 0
    assert "new-predictions.csv" in capsys.readouterr().out
    found = pd.read_csv(folder / "new-predictions.csv")
    assert list(found.columns[-4:]) == ["price_mean", "price_sd", "price_low", "price_high"]
    inside = (new["price"] >= found["price_low"]) & (new["price"] <= found["price_high"])
    assert abs(inside.mean() - 0.95) < 0.02
    asked = ("--out", folder / "both.csv", "--expectation")
    assert run("predict", folder / "fit" / "fit.orn", folder / "new.csv", *asked) == 0
    both = pd.read_csv(folder / "both.csv")
    assert list(both.columns[-3:]) == [
        f"price_expectation_{name}" for name in ("sd", "low", "high")
    ]
    assert np.all(both["price_expectation_sd"] < 0.2 * both["price_sd"])
    # Without the noise of a single value the intervals would hold next to nothing.
    posterior = orn.load(folder / "fit" / "fit.orn")
    low, high = posterior.predict(new, draws=200).interval()
    assert np.mean((new["price"] >= low) & (new["price"] <= high)) < 0.5


def test_predictions_of_numbers_are_the_posterior_s_own(folder):
    posterior = orn.load(folder / "fit" / "fit.orn")
    rows = houses(20, seed=2)
    found = predict_table(posterior, rows, draws=10**6)
    params = shown(posterior).params
    design = np.column_stack([rows["size"], rows["age"], rows["area"] == "south"])
    expected = np.einsum("np,cdp->cdn", design, params["coef"]) + params["intercept"][:, :, None]
    np.testing.assert_allclose(found["price_mean"], expected.mean(axis=(0, 1)), rtol=1e-4)
    spread = np.sqrt(expected.var(axis=(0, 1)) + np.mean(params["scale"] ** 2))
    np.testing.assert_allclose(found["price_sd"], spread, rtol=1e-3)
    with pytest.raises(orn.InputError, match="already has a column 'price_mean'"):
        predict_table(posterior, found)
    with pytest.raises(orn.InputError, match="between 0 and 1"):
        predict_table(posterior, rows, probability=95)


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ("sold", "bernoulli"),
        pytest.param("visits", "poisson", marks=pytest.mark.slow),
        pytest.param("kind", "categorical", marks=pytest.mark.slow),
    ],
)
def test_the_other_families_fit_and_predict(folder, target, family, capsys):
    drop = [
        word
        for name in ("price", "sold", "visits", "kind")
        if name != target
        for word in ("--drop", name)
    ]
    asked = ["--family", "poisson"] if family == "poisson" else []
    arguments = (
        "fit",
        folder / "houses.csv",
        "--target",
        target,
        *drop,
        *asked,
        *QUICK,
        "--out",
        folder / target,
    )
    assert run(*arguments) == 0
    assert f"family {family}" in capsys.readouterr().err
    posterior = orn.load(folder / target / "fit.orn")
    spec, new = from_table(posterior)[1], houses(2000, seed=3)
    found = predict_table(posterior, new)
    if family == "poisson":
        inside = (new["visits"] >= found["visits_low"]) & (new["visits"] <= found["visits_high"])
        # at least 95 %, for counts jump; less 5 binomial errors of 0.5 points
        assert inside.mean() > 0.93
    elif family == "bernoulli":
        assert spec.classes == ("no", "yes")
        difference = np.mean((new["sold"] == "yes") - found["sold_mean"])
        assert abs(difference) < 5 * 0.5 / np.sqrt(2000) + 5 * found["sold_sd"].mean()
        assert set(found["sold_label"]) <= {"yes", "no"}
    else:
        totals = sum(found[f"kind_mean[{label}]"] for label in spec.classes)
        np.testing.assert_allclose(totals, 1.0, atol=1e-5)
        assert (found["kind_label"] == new["kind"]).mean() > 0.4


def test_strict_tells_a_short_chain_from_a_good_one(folder, no_report):
    drop = ["--drop", "sold", "--drop", "visits", "--drop", "kind"]
    short = ["--draws", "2", "--chains", "1", "--out", folder / "short"]
    assert run("fit", folder / "houses.csv", "--target", "price", *drop, *short, "--strict") == 1
    assert run("fit", folder / "houses.csv", "--target", "price", *drop, *short) == 0
    assert (
        run(
            "fit",
            folder / "houses.csv",
            "--target",
            "price",
            *drop,
            "--out",
            folder / "good",
            "--strict",
        )
        == 0
    )


def bad_files(place: Path) -> None:
    table = houses(60)[["size", "age", "area", "price"]]
    table.to_csv(place / "good.csv", index=False)
    (place / "empty.csv").write_bytes(b"")
    (place / "empty.parquet").write_bytes(b"")
    (place / "header.csv").write_text("size,price\n")
    table.assign(price=1.0).to_csv(place / "one-class.csv", index=False)
    table.assign(size=["large", *table["size"].astype(str)[1:]]).to_csv(
        place / "text.csv", index=False
    )
    table.assign(size=[np.nan, *table["size"][1:]]).to_csv(place / "missing.csv", index=False)
    (place / "not.orn").write_text("nothing")
    (place / "file").write_text("")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["fit", "good.csv", "--target", "prize"],
            "the target 'prize' is not a column of the table; did you mean 'price'?",
        ),
        (["fit", "empty.csv", "--target", "price"], "empty.csv is empty (0 bytes)"),
        (["fit", "empty.parquet", "--target", "price"], "empty.parquet is empty (0 bytes)"),
        (["fit", "header.csv", "--target", "price"], "header.csv has a header but no rows"),
        (
            ["fit", "one-class.csv", "--target", "price"],
            "the target 'price' has only one value, 1.0",
        ),
        (
            ["fit", "text.csv", "--target", "price"],
            "column 'size' is numeric but holds the text 'large' in row 1",
        ),
        (
            ["fit", "missing.csv", "--target", "price", "--missing", "error"],
            "values are missing in 'size' (1) of 60 rows",
        ),
        (["fit", "absent.csv", "--target", "price"], "there is no file"),
        (["fit", "good.csv"], "give either --formula 'y ~ ...' or --target"),
        (["fit", "good.csv", "--formula", "price ~ open('f')"], "the formula calls 'open'"),
        (
            ["fit", "good.csv", "-t", "price", "--prior", "size=open(3)"],
            "--prior 'size=open(3)' must look like 'age=Normal(0, 1)'",
        ),
        (["fit", "good.csv", "--target", "price", "--sampler", "magic"], "unknown sampler 'magic'"),
        (
            ["fit", "good.csv", "--target", "price", "--family", "gama-rays"],
            "unknown family 'gama-rays'",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--family", "poisson"],
            "the poisson family needs counts",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--drop", "siz"],
            "--drop or --categorical 'siz' is not a column",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--batch-size", "61"],
            "batch_size must lie between 1 and",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--draws", "many"],
            "Invalid value for '--draws'",
        ),
        (["fit", "good.csv", "--target", "price", "--resume"], "--resume needs --checkpoint"),
        (
            ["fit", "good.csv", "--target", "price", "--resume", "--checkpoint", "."],
            "there is no checkpoint in",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--checkpoint", "run", "--every", "often"],
            "every must be a time",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--scheduler", "here"],
            "--scheduler must be an address such as tcp://",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--scheduler", "local:0"],
            "must ask for 1 to 1024 workers",
        ),
        (["fit", ".", "--target", "price"], "a folder of Parquet files needs --scheduler"),
        (
            ["fit", "good.csv", "--target", "price", "--out", "file"],
            "is a file; --out needs a folder",
        ),
        (
            ["fit", "good.csv", "--target", "price", "--out", "file/folder"],
            "cannot make the folder",
        ),
        (["predict", "absent.orn", "good.csv"], "there is no file"),
        (["predict", "not.orn", "good.csv"], "is not a file saved by ornstein"),
        (
            ["compare", "good.csv", "--target", "price", "--method", "magic"],
            "unknown method 'magic'",
        ),
        (["theory", "--rows", "10", "--batch-size", "5"], "give --dimension"),
        (
            ["theory", "--rows", "10", "--batch-size", "50", "-D", "2"],
            "batch_size must lie between 1 and",
        ),
        (["theory", "--rows", "10", "--batch-size", "5", "-C", "a,b"], "--noise must be a number"),
        (
            ["theory", "--rows", "10", "--batch-size", "5", "-C", "1,2", "-A", "1,2,3"],
            "disagree on the number of parameters",
        ),
        (["theory", "--rows", "10", "--batch-size", "5", "-C", "absent.npy"], "there is no file"),
        (
            ["theory", "--rows", "10", "--batch-size", "5", "-C", "good.csv"],
            "does not hold a matrix of numbers",
        ),
        (["magic"], "No such command 'magic'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    bad_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    complaint = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error")]
    assert len(complaint) == 1
    assert sentence in complaint[0]


def test_errors_come_without_a_traceback_in_a_process_of_their_own(tmp_path):
    bad_files(tmp_path)
    command = [
        sys.executable,
        "-m",
        "ornstein",
        "fit",
        tmp_path / "empty.parquet",
        "--target",
        "price",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert one_sentence(done.stderr)


def test_a_fit_that_knows_no_table_cannot_predict_from_one(tmp_path, capsys):
    bad_files(tmp_path)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(100, 2))
    orn.laplace(
        orn.glm(features, features @ [1.0, 2.0] + rng.normal(size=100), prior_precision=1.0)
    ).save(tmp_path / "plain.orn")
    assert run("predict", tmp_path / "plain.orn", tmp_path / "good.csv") == 2
    assert "was not made from a table" in capsys.readouterr().err


def test_parquet_and_arrow_are_read_too(tmp_path, no_report):
    table = houses(400)[["size", "area", "price"]]
    table.to_parquet(tmp_path / "t.parquet")
    table.to_feather(tmp_path / "t.arrow")
    draws = []
    for name in ("t.parquet", "t.arrow"):
        assert (
            run(
                "fit",
                tmp_path / name,
                "-t",
                "price",
                "--out",
                tmp_path / name.replace(".", "-"),
                *QUICK,
                "--seed",
                "3",
            )
            == 0
        )
        draws.append(orn.load(tmp_path / name.replace(".", "-") / "fit.orn").draws)
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize("name", FORMS)
def test_every_sampler_has_a_name(name):
    assert hasattr(sampler_by_name(name), "tune")


def test_theory_agrees_with_the_formulas(capsys):
    """A = C = c·I: the full form is 2/(c(1 + N/S)), and the paper's rate is 2SD/(N tr C)."""
    rows, batch, noise = 50_000, 256, 0.7
    assert run("theory", "-N", rows, "-S", batch, "-D", 20, "-C", noise) == 0
    shown = capsys.readouterr().out
    assert f"2SD/(N tr C) = {2 * batch / (rows * noise):.4g}" in shown
    table = theory_table(
        curvature_of(rows, 20, str(noise), None),
        batch,
        ["constant-sgd-full", "constant-sgd-scalar"],
    )
    exact = 2.0 / (noise * (1.0 + rows / batch))
    for name in table.index:
        assert table.loc[name, "step"] == console.number(exact)
        assert table.loc[name, "KL(q‖p)"] == 0.0
    assert table.loc["constant-sgd-scalar", "stable below"] == console.number(2.0 / noise)


def test_theory_takes_matrices_from_files(tmp_path):
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.save(tmp_path / "c.npy", matrix)
    np.savetxt(tmp_path / "a.csv", 2 * matrix, delimiter=",")
    curvature = curvature_of(100, None, str(tmp_path / "c.npy"), str(tmp_path / "a.csv"))
    np.testing.assert_allclose(curvature.noise, matrix)
    np.testing.assert_allclose(curvature.hessian, 2 * matrix)


def test_compare_prints_the_table(folder, capsys):
    methods = [
        "--method",
        "constant-sgd-full",
        "--method",
        "constant-sgd-scalar",
        "--method",
        "laplace",
    ]
    drop = ["--drop", "sold", "--drop", "visits", "--drop", "kind"]
    plot = folder / "overlay.png"
    assert (
        run(
            "compare",
            folder / "houses.csv",
            "--target",
            "price",
            *drop,
            *methods,
            *QUICK,
            "--plot",
            plot,
        )
        == 0
    )
    shown, remarks = capsys.readouterr()
    assert "Against laplace" in shown
    assert all(name in shown for name in methods[1::2])
    assert "once for all of them, which no row includes" in shown
    assert [line.split(" …")[0] for line in remarks.splitlines() if "…" in line] == [
        "mode and curvature",
        "constant-sgd-full, 1 of 3",
        "constant-sgd-scalar, 2 of 3",
        "laplace, 3 of 3",
    ]
    assert plot.stat().st_size > 10_000


def test_demo_shows_and_writes_everything(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the demo's data come with scikit-learn")
    assert run("demo", "--out", tmp_path / "demo") == 0
    shown = capsys.readouterr().out
    assert "Verdict: trusted" in shown
    assert "body mass index" in shown
    assert "Done in" in shown
    files = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {
        "fit.orn",
        "posterior.nc",
        "report.html",
        "marginals.png",
        "covariance.png",
        "chains.png",
    } <= files


def test_demo_without_scikit_learn_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert run("demo", "--out", tmp_path / "demo") == 2
    error = capsys.readouterr().err
    assert one_sentence(error)
    assert "ornstein[sklearn]" in error


def test_a_run_is_gone_on_with_to_the_same_draws(tmp_path, capsys, no_report):
    """100 draws with a checkpoint, then --resume for 200 in all: bit for bit those of one run of
    200.
    """
    houses(400)[["size", "age", "price"]].to_csv(tmp_path / "t.csv", index=False)
    common = (
        "fit",
        tmp_path / "t.csv",
        "-t",
        "price",
        "--sampler",
        "constant-sgd-full",
        "--chains",
        "2",
        "--checkpoint",
        tmp_path / "run",
    )
    assert run(*common, "--draws", "100", "--out", tmp_path / "first") == 0
    assert run(*common, "--draws", "100", "--out", tmp_path / "first") == 2
    assert "add --resume to continue it" in capsys.readouterr().err
    assert run(*common, "--resume", "--draws", "200", "--out", tmp_path / "second") == 0
    assert run(*common, "--resume", "--out", tmp_path / "third") == 0  # finished: the same again
    assert run(*common[:-2], "--draws", "200", "--out", tmp_path / "whole") == 0
    first, second, third, whole = (
        orn.load(tmp_path / name / "fit.orn").draws
        for name in ("first", "second", "third", "whole")
    )
    assert first.shape == (2, 100, 4)
    np.testing.assert_array_equal(second, whole)
    np.testing.assert_array_equal(third, whole)
    np.testing.assert_array_equal(first, whole[:, :100])
    assert from_table(orn.load(tmp_path / "second" / "fit.orn"))[1].target == "price"


def parquet_folder(place: Path, table: pd.DataFrame, parts: int) -> Path:
    place.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
        table.iloc[rows].to_parquet(place / f"part-{number}.parquet")
    return place


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_of_parquet_files_on_a_scheduler(tmp_path, capsys):
    """The same columns as in memory; means within 5 errors of 1/√ESS ≈ 1/√600 of an sd, 0.2, and
    the exact mode besides.
    """
    distributed = pytest.importorskip("distributed", reason="--scheduler needs Dask")
    table = houses(1200)[["size", "area", "price"]]
    folder = parquet_folder(tmp_path / "parts", table, 2)
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="inproc://",
        dashboard_address=None,
        silence_logs=50,
    ) as cluster:
        place = ("--scheduler", cluster.scheduler_address, "--out", tmp_path / "fit")
        assert run("fit", folder, "-t", "price", "--draws", "300", "--chains", "2", *place) == 0
        assert run("fit", folder, "-t", "prize", *place) == 2
    assert "did you mean 'price'" in capsys.readouterr().err
    posterior = orn.load(tmp_path / "fit" / "fit.orn")
    assert posterior.settings["shards"] == 2
    assert posterior.settings["rows"] == 1200
    assert from_table(posterior)[1].feature_names == ("size", "area=south")
    features = np.column_stack([np.ones(1200), table["size"], table["area"] == "south"])
    least_squares = np.linalg.lstsq(features, table["price"], rcond=None)[0]
    params = posterior.params
    assert (
        abs(params["coef"][..., 0].mean() - least_squares[1]) < 0.2 * params["coef"][..., 0].std()
    )
    assert (
        run(
            "predict",
            tmp_path / "fit" / "fit.orn",
            folder / "part-0.parquet",
            "--out",
            tmp_path / "p.csv",
        )
        == 0
    )


def test_a_local_scheduler_has_the_workers_asked_for():
    """Three: neither the machine's cores nor Dask's own choice."""
    pytest.importorskip("distributed", reason="--scheduler needs Dask")
    with scheduler("local:3") as client:
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 3


PLAIN = """
import sys, http.client, socket
from distributed import Client
address, ports = sys.argv[1].split("://")[1], sys.argv[2:]
for number in ports:
    connection = http.client.HTTPConnection("127.0.0.1", int(number), timeout=5)
    for page in ("/health", "/metrics", "/info/main/workers.html", "/json/counts.json"):
        try:
            connection.request("GET", page)
            print("page", connection.getresponse().status)
        except (OSError, http.client.HTTPException):
            print("page none")
        finally:
            connection.close()
for options in ({}, {"security": True}):
    scheme = "tls" if options else "tcp"
    try:
        Client(f"{scheme}://{address}", timeout="3s", **options)
        print("connected")
    except Exception as error:
        print("refused", type(error).__name__)
"""


def test_a_local_scheduler_talks_to_holders_of_its_certificate_only():
    """Not to a client without one, not to one with another, and it shows no page."""
    pytest.importorskip("distributed", reason="--scheduler needs Dask")
    import psutil

    with scheduler("local:1") as client:
        address = client.scheduler_info()["address"]
        assert address.startswith("tls://127.0.0.1:")
        assert client.submit(lambda: 3).result() == 3
        here = psutil.Process()
        ports = {
            str(connection.laddr.port)
            for process in (here, *here.children(recursive=True))
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        }
        code, out, err = finished(child(PLAIN, address, *ports))
    assert code == 0, err
    assert "connected" not in out
    assert out.count("refused") == 2, out
    assert set(out.splitlines()) - {"page none", "page 404"} == {
        line for line in out.splitlines() if line.startswith("refused")
    }


def test_a_local_scheduler_needs_cryptography(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "cryptography" else found(name)
    )
    with (
        pytest.raises(orn.InputError, match=r"cryptography.*ornstein\[cluster\]"),
        scheduler("local:1"),
    ):
        raise AssertionError("it must not start")


@pytest.mark.slow
def test_local_workers(tmp_path):
    """Chains on two processes of this machine: the draws that they have in one."""
    pytest.importorskip("distributed", reason="--scheduler needs Dask")
    houses(400)[["size", "age", "price"]].to_csv(tmp_path / "t.csv", index=False)
    code = "from ornstein.interfaces.cli.main import main; main()"
    for name, more in (("one", []), ("two", ["--scheduler", "local:2"])):
        command = [
            sys.executable,
            "-c",
            code,
            "fit",
            tmp_path / "t.csv",
            "-t",
            "price",
            "--out",
            tmp_path / name,
            *QUICK,
            *more,
        ]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    draws = [orn.load(tmp_path / name / "fit.orn").draws for name in ("one", "two")]
    np.testing.assert_array_equal(*draws)


def test_warnings_are_one_line_each(folder, capsys):
    drop = ["--drop", "sold", "--drop", "visits", "--drop", "kind"]
    budget = [
        "--sampler",
        "constant-sgd-scalar",
        "--max-steps",
        "4000",
        *QUICK,
        "--out",
        folder / "budget",
    ]
    assert run("fit", folder / "houses.csv", "--target", "price", *drop, *budget) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Warning: ")]
    assert any("thinning is cut" in line for line in warned)


def test_the_table_and_settings_travel_with_the_fit(folder):
    posterior = orn.load(folder / "fit" / "fit.orn")
    assert posterior.settings["source"] == "houses.csv"
    assert posterior.settings["rows"] == 1500
    spec = from_table(posterior)[1]
    assert spec.feature_names == ("size", "age", "area=south")
    assert spec.target == "price" and spec.design.factors[2].levels == ("north", "south")
    np.testing.assert_allclose(spec.means[0], houses()["size"].mean(), rtol=1e-9)


def test_the_whole_way_builds_one_matrix_and_one_summary(tmp_path, monkeypatch):
    """From the file to the report: counted, for each is work on all rows or all draws; figures of
    effects take some rows.
    """
    from ornstein.posterior.posterior import Posterior
    from ornstein.regression.design import Design

    counts = {"build": 0, "summary": 0}
    build, summary = Design.build, Posterior.summary

    def counted_build(self, table, rows):
        counts["build"] += rows == 1500
        assert rows in (1000, 1500)
        return build(self, table, rows)

    def counted_summary(self, *arguments):
        counts["summary"] += 1
        return summary(self, *arguments)

    monkeypatch.setattr(Design, "build", counted_build)
    monkeypatch.setattr(Posterior, "summary", counted_summary)
    houses(1500).to_csv(tmp_path / "t.csv", index=False)
    formula = ("--formula", "price ~ bs(size, df=4) * area + age")
    assert run("fit", tmp_path / "t.csv", *formula, *QUICK, "--out", tmp_path / "fit") == 0
    assert counts == {"build": 1, "summary": 1}


def test_options_are_a_formula(tmp_path, capsys, no_report):
    """--target, --use, --categorical, --exposure and --weights say what a formula says."""
    table = houses(300).assign(days=np.arange(300) % 7 + 1.0, w=1.0)
    table.to_csv(tmp_path / "t.csv", index=False)
    common = (*QUICK, "--family", "poisson", "--weights", "w", "--missing", "error")
    first = ("-t", "visits", "--use", "size", "--use", "log(age)", "--exposure", "days")
    second = ("--formula", "visits ~ size + log(age) + offset(log(days))")
    draws = []
    for name, options in (("a", first), ("b", second)):
        assert run("fit", tmp_path / "t.csv", *options, *common, "--out", tmp_path / name) == 0
        draws.append(orn.load(tmp_path / name / "fit.orn").draws)
    np.testing.assert_array_equal(*draws)
    labels = ("-t", "price", "--use", "days", "--categorical", "days", "--out", tmp_path / "c")
    assert run("fit", tmp_path / "t.csv", *labels, *QUICK) == 0
    assert orn.load(tmp_path / "c" / "fit.orn").names[:2] == ("days=2", "days=3")
    assert "300 rows, 1 columns as 6 features" in capsys.readouterr().err


def test_robust_errors_are_those_of_the_sandwich(tmp_path, no_report):
    """HC0 of statsmodels, where the noise grows with the column: sds within 5 errors of 1/√(2·400)
    and far from the posterior's.
    """
    import statsmodels.api as sm

    rng = np.random.default_rng(0)
    x = rng.normal(size=1500)
    table = pd.DataFrame({"x": x, "y": 2.0 * x + (0.1 + np.abs(x)) * rng.normal(size=1500)})
    table.to_csv(tmp_path / "t.csv", index=False)
    arguments = ("-t", "y", "--prior-precision", "0", "--draws", "400", "--robust")
    assert run("fit", tmp_path / "t.csv", *arguments, "--out", tmp_path / "r") == 0
    post = orn.load(tmp_path / "r" / "fit.orn")
    least_squares = sm.OLS(table["y"], sm.add_constant(table[["x"]]))
    robust, plain = least_squares.fit(cov_type="HC0").bse["x"], least_squares.fit().bse["x"]
    assert abs(post.sd[0] / robust - 1.0) < 5 / np.sqrt(800) < abs(plain / robust - 1.0)
    with pytest.raises(orn.InputError, match="--robust needs"):
        robust_sampler("sgld")
