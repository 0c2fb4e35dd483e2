"""What a random-intercept model takes at scale, beside statsmodels, gpboost and R's lme4 where they
are installed: seconds, memory, estimates, and how the seconds grow with the rows.

    python -m benchmarks.mixed --groups 1000 10000 100000 --family bernoulli

Groups have 1 to 100 rows, so that 100,000 of them are a million rows. Each fit runs in a process of
its own, which is ended after `--limit` seconds. The seconds are those of the fit, with compilation
and without reading the data; beside them stand the processor's for the whole process, which do not
depend on what else the machine does. For ornstein they hold the search for the mode, 4,000 draws
and the verdict; the others give a point estimate.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOUND = ("x0", "x1", "intercept", "sd")
BY_LME4 = """
suppressMessages(library(lme4))
given <- commandArgs(TRUE)
d <- read.csv(given[1])
start <- proc.time()[["elapsed"]]
if (given[2] == "gaussian") {
  m <- lmer(y ~ x0 + x1 + (1 | g), d, REML = FALSE)
} else {
  m <- glmer(y ~ x0 + x1 + (1 | g), d, family = binomial, nAGQ = 9)
}
seconds <- proc.time()[["elapsed"]] - start
b <- fixef(m)
cat(sprintf('{"seconds": %f, "estimates": [%f, %f, %f, %f]}', seconds, b[["x0"]], b[["x1"]],
            b[["(Intercept)"]], attr(VarCorr(m)$g, "stddev")[[1]]))
"""


def data(groups: int, family: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two columns, a response, and labels: geometric sizes from 1 to 100, ten rows on average."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.geometric(0.0985, groups), 100)
    labels = np.repeat(np.arange(groups), counts)
    X = rng.normal(size=(len(labels), 2))
    u = X @ [0.5, -0.3] - 0.4 + 0.8 * rng.normal(size=groups)[labels]
    if family == "gaussian":
        return X, u + rng.normal(size=len(u)), labels
    return X, (rng.random(len(u)) < 1.0 / (1.0 + np.exp(-u))).astype(float), labels


def by_ornstein(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> dict[str, Any]:
    import ornstein as orn

    start = time.perf_counter()
    model = orn.glmm(X, y, labels, family=family)
    mode = time.perf_counter() - start
    post = orn.sample(model, progress=False)
    level = post.check().level
    means = post.summary()["mean"]
    tried = ", ".join(attempt.way for attempt in post.history)
    return {
        "estimates": [float(means[name]) for name in (*FOUND[:3], "sd(intercept)")],
        "note": f"{tried}: {level}; the mode took {mode:.1f} s",
    }


def by_statsmodels(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> dict[str, Any]:
    fixed = np.column_stack([X, np.ones(len(X))])
    if family == "gaussian":
        from statsmodels.regression.mixed_linear_model import MixedLM

        found = MixedLM(y, fixed, labels).fit(reml=False)
        return {"estimates": [*found.fe_params, float(np.sqrt(found.cov_re[0, 0]))]}
    import scipy.sparse
    from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

    rows = np.arange(len(y))
    own = scipy.sparse.csr_matrix((np.ones(len(y)), (rows, labels)))
    model = BinomialBayesMixedGLM(y, fixed, own, np.zeros(own.shape[1], dtype=int))
    found = model.fit_vb()
    return {"estimates": [*found.fe_mean, float(np.exp(found.vcp_mean[0]))]}


def by_gpboost(X: np.ndarray, y: np.ndarray, labels: np.ndarray, family: str) -> dict[str, Any]:
    import gpboost

    likelihood = "gaussian" if family == "gaussian" else "bernoulli_logit"
    model = gpboost.GPModel(group_data=labels, likelihood=likelihood)
    model.fit(y=y, X=np.column_stack([X, np.ones(len(X))]))
    coef = np.asarray(model.get_coef()).ravel()[:3]
    variance = np.asarray(model.get_cov_pars()).ravel()[1 if family == "gaussian" else 0]
    return {"estimates": [*map(float, coef), float(np.sqrt(variance))]}


LIBRARIES: dict[str, Callable[..., dict[str, Any]]] = {
    "ornstein": by_ornstein,
    "statsmodels": by_statsmodels,
    "gpboost": by_gpboost,
}


@dataclass(frozen=True)
class Fit:
    """One fit: seconds, those of the processor, most GB of memory, and what it found; `failed` says
    why there is none.
    """

    seconds: float = float("nan")
    processor: float = float("nan")
    memory: float = float("nan")
    estimates: tuple[float, ...] = ()
    note: str = ""
    failed: str = ""

    def row(self, library: str, rows: int, groups: int) -> str:
        start = f"| {rows:,} | {groups:,} | {library} "
        if self.failed:
            return f"{start}| {self.failed} | | | | |"
        found = ", ".join(f"{value:.3f}" for value in self.estimates)
        times = f"{self.seconds:.1f} | {self.processor:.1f}"
        return f"{start}| {times} | {self.memory:.2f} | {found} | {self.note} |"


def installed(library: str) -> bool:
    if library != "lme4":
        return importlib.util.find_spec(library) is not None
    asked = ["Rscript", "-e", "library(lme4)"]
    known = shutil.which("Rscript") is not None
    return known and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def fitted(library: str, groups: int, family: str, limit: float) -> Fit:
    """The fit in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if library == "lme4":
            import pandas as pd

            X, y, labels = data(groups, family)
            table, script = Path(folder) / "data.csv", Path(folder) / "fit.R"
            pd.DataFrame({"x0": X[:, 0], "x1": X[:, 1], "y": y, "g": labels}).to_csv(table)
            script.write_text(BY_LME4)
            command = ["Rscript", str(script), str(table), family]
        else:
            own = [library, str(groups), family]
            command = [sys.executable, "-m", "benchmarks.mixed", "--child", *own]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout is not None
        ended = threading.Timer(limit, process.kill)
        ended.start()
        out = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        late = not ended.is_alive()
        ended.cancel()
    if status != 0:
        return Fit(failed=f"more than {limit:.0f}" if late else f"failed ({status})")
    found = json.loads(out.splitlines()[-1])
    note = found.get("note", "")
    spent = usage.ru_utime + usage.ru_stime
    return Fit(found["seconds"], spent, usage.ru_maxrss / 1e6, tuple(found["estimates"]), note)


def child(library: str, groups: int, family: str) -> None:
    given = data(groups, family)
    start = time.perf_counter()
    found = LIBRARIES[library](*given, family)
    print(json.dumps({"seconds": time.perf_counter() - start, **found}))


def growth(rows: list[int], fits: list[Fit]) -> str:
    """The power of the rows that the processor's seconds grow with, from each size to the next."""
    known = [(n, fit.processor) for n, fit in zip(rows, fits, strict=True) if not fit.failed]
    powers = np.diff(np.log([s for _, s in known])) / np.diff(np.log([n for n, _ in known]))
    return ", ".join(f"{power:.2f}" for power in powers)


def main() -> None:
    """Run the sizes that were asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--family", choices=("gaussian", "bernoulli"), default="bernoulli")
    parser.add_argument("--only", nargs="+", default=[*LIBRARIES, "lme4"])
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        library, groups, family = arguments.child
        return child(library, int(groups), family)
    libraries = [name for name in arguments.only if installed(name)]
    sizes = [len(data(groups, "gaussian")[1]) for groups in arguments.groups]
    print(f"{arguments.family}\n")
    print(f"| rows | groups | | seconds | processor | GB | {', '.join(FOUND)} | |")
    print("|---|---|---|---|---|---|---|---|")
    fits: dict[str, list[Fit]] = {library: [] for library in libraries}
    for groups, rows in zip(arguments.groups, sizes, strict=True):
        for library in libraries:
            if fits[library] and fits[library][-1].failed:
                fit = Fit(failed="not run")  # a larger one would take longer still
            else:
                fit = fitted(library, groups, arguments.family, arguments.limit)
            fits[library].append(fit)
            print(fit.row(library, rows, groups), flush=True)
    print()
    for library in libraries:
        power = growth(sizes, fits[library])
        print(f"{library}: the processor's seconds grow with the power {power} of the rows")


if __name__ == "__main__":
    main()
