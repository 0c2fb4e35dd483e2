"""`ornstein demo`: the whole way, from a real data set to a judged posterior, in a few seconds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ornstein.errors import OrnsteinError
from ornstein.interfaces.cli import console

if TYPE_CHECKING:
    import pandas

NAMES = {
    "bmi": "body mass index",
    "bp": "blood pressure",
    "s1": "total cholesterol",
    "s2": "LDL",
    "s3": "HDL",
    "s4": "cholesterol / HDL",
    "s5": "log triglycerides",
    "s6": "glucose",
}


def run_demo(folder: Path, seed: int) -> None:
    """Fit scikit-learn's diabetes data with the full form of constant SGD, and show all there is to
    see.
    """
    started = time.perf_counter()
    frame = diabetes()
    from ornstein.entrances.running import sample
    from ornstein.interfaces.cli.results import show_results, write_results
    from ornstein.interfaces.table.fitting import described
    from ornstein.regression.regress import Request, regression
    from ornstein.samplers import sampler_by_name

    console.say(
        "Diabetes: 442 patients, ten measurements each, and how far the disease had progressed a"
        " year later",
        style="bold",
    )
    console.say(
        "(Efron, Hastie, Johnstone and Tibshirani 2004; comes with scikit-learn)", style="dim"
    )
    console.say()
    request = Request("progression ~ .", labels=("sex",))
    model = regression(request, frame)
    posterior = sample(model, sampler_by_name("constant-sgd-full"), seed=seed)
    posterior = described(posterior, "scikit-learn's diabetes data", request, model.n_data)
    if not posterior.settings["complete"]:
        raise KeyboardInterrupt("interrupted")
    show_results(write_results(posterior, folder, plots=True))
    console.say()
    console.say(
        f"Done in {time.perf_counter() - started:.1f} s. Next: ornstein fit your.csv --formula"
        " 'y ~ .'",
        style="bold",
    )


def diabetes() -> pandas.DataFrame:
    """The data in their own units, with speaking names."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise OrnsteinError(
            "the demo needs scikit-learn for its data: pip install 'ornstein[sklearn]'"
        ) from error
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame.rename(columns={**NAMES, "target": "progression"})
