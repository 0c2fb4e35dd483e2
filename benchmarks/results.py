"""The page of the documentation, put together from the results kept; sections that were not run say
so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.growth import QUANTITIES
from benchmarks.methods import METHODS
from benchmarks.stored import SECTIONS, load
from benchmarks.time_to_posterior import in_words, seconds_to

DOCS = Path(__file__).parents[1] / "docs"
AHEAD = {
    "T1": 5.0,
    "T2 linear N=10000 D=10 S=10": 15.0,
    "T2 linear N=10000 D=10 S=1": 40.0,
    "T3": 2.0,
    "T4": 2.0,
    "T5": 2.0,
}


def write_page() -> Path:
    """docs/benchmarks.md and its plots."""
    lines = [
        "# Benchmarks",
        "",
        (
            "Written by `make bench` from the numbers in `benchmarks/results`. Read the ratios, not"
            " the times: those are of one machine."
        ),
    ]
    for section in SECTIONS:
        title, write = _WRITERS[section]
        stored = load(section)
        lines += ["", f"## {title}", ""]
        if stored is None:
            lines.append(
                f"Not measured yet: `make bench`, or `python -m benchmarks --only {section}`."
            )
        else:
            lines += [
                f"{stored['date']}, {stored['cores']} cores ({stored['machine']}).",
                "",
                *write(stored["result"]),
            ]
    path = DOCS / "benchmarks.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table."""
    headings = list(headings)
    return [
        "| " + " | ".join(headings) + " |",
        "|---" * len(headings) + "|",
        *("| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows),
    ]


def _steps(result: dict[str, Any]) -> list[str]:
    steps = result["steps"]
    figures.steps(steps, DOCS / "benchmarks.svg")
    names = list(dict.fromkeys(name for found in steps.values() for name in found))
    absent = f" Not at hand: {', '.join(result['absent'])}." if result["absent"] else ""
    return [
        "µs per step of one chain in float32. All libraries run in one process, in another"
        " order each time, best of 30 rounds of a tenth of a second; compile time is left out."
        ' “Slices” are steps on slices of shuffled rows (`scheme="slices"`), which have the same'
        " stationary law, where data are large; shuffling is part of their time." + absent,
        "",
        "![µs per step](benchmarks.svg)",
        "",
        *table(
            ["task", *names],
            (
                [task, *(_number(found.get(name)) for name in names)]
                for task, found in steps.items()
            ),
        ),
        "",
        "Ratios, with what was aimed at in brackets:",
        "",
        *table(
            [
                "task",
                "scalar, × the C++ loop",
                "scalar, times faster than blackjax SGLD",
                "the same on slices",
                "SGLD, times faster than blackjax SGLD",
                "the same on slices",
            ],
            ([task, *_ratios(task, found)] for task, found in steps.items()),
        ),
        *(line for remark in result.get("remarks", []) for line in ("", remark)),
    ]


def _ratios(task: str, found: dict[str, float]) -> list[str]:
    limit, reference = found.get("C++ loop, scalar", float("nan")), found["blackjax SGLD"]
    aim = next(value for start, value in AHEAD.items() if task.startswith(start))
    return [
        f"{found['ornstein scalar'] / limit:.2f} (2 or less)",
        f"{reference / found['ornstein scalar']:.1f} ({aim:g} or more)",
        _times(reference, found.get("ornstein scalar, slices")),
        f"{reference / found['ornstein SGLD']:.1f} (1.5 or more)",
        _times(reference, found.get("ornstein SGLD, slices")),
    ]


def _times(reference: float, value: float | None) -> str:
    return "" if value is None else f"{reference / value:.1f}"


def _chains(result: dict[str, dict[str, float]]) -> list[str]:
    names = list(next(iter(result.values())))
    rows = ([task, *(f"{gain:.2f}" for gain in gains.values())] for task, gains in result.items())
    return [
        (
            "Steps per second of all chains together, relative to one chain; 1.6 or more was aimed"
            " at for 4 chains on 2 cores. C++ loops, relative to one, show what the cores give at"
            " best."
        ),
        "",
        *table(["task", *(name.replace("1 chains", "1 chain") for name in names)], rows),
    ]


def _startup(result: dict[str, float]) -> list[str]:
    aims = {"import ornstein": " (aim: below 1 s)", "first fit of T1": " (aim: below 3 s)"}
    return [
        "Each in a fresh interpreter, best of 3, the interpreter's own start included.",
        "",
        *(f"- {what}: {seconds:.2f} s{aims.get(what, '')}" for what, seconds in result.items()),
    ]


def _posterior(result: dict[str, Any]) -> list[str]:
    problems = result["problems"]
    absent = [f"{name.capitalize()} is left out: {why}." for name, why in result["absent"].items()]
    if not problems:
        return absent
    figures.time_to_posterior(result, DOCS / "time_to_posterior.svg")
    rows = [
        [
            method,
            *(
                in_words(part["methods"][method]) if method in part["methods"] else ""
                for part in problems.values()
            ),
        ]
        for method in METHODS
        if any(method in part["methods"] for part in problems.values())
    ]
    headings = [
        f"{name} (N={part['rows']}, D={part['parameters']}, {part['limit']:g} s)"
        for name, part in problems.items()
    ]
    return [
        "Seconds from the start of a fresh process, imports and compilation included, until"
        f" KL(found ‖ reference) ≤ {result['enough']}; each method has the time named above its"
        " column. The reference of a linear regression is its exact posterior; elsewhere it is"
        " Hamiltonian Monte Carlo on all data, not Laplace's approximation. SGLD runs with 5"
        " rates, and only the best one's time counts; NUTS, ADVI and SGLD run as their"
        " documentation shows, and ornstein as its own does: with its defaults, and on slices"
        " (`scheme=\"slices\"`) where data are beyond the processor's caches, as covertype's are."
        " “ornstein SGLD-CV” is `SGLD(exact=True, control_variates=True,"
        ' preconditioner="full")`. With more than 100 parameters the distance is that between'
        " the products of the marginals."
        + "".join(
            f" The Monte-Carlo error of {name}'s reference is a KL of about"
            f" {part['reference error']:.2g}."
            for name, part in problems.items()
            if part.get("reference error", 0.0) > 1e-3
        ),
        "",
        "![KL against seconds](time_to_posterior.svg)",
        "",
        *table(["", *headings], rows),
        "",
        (
            "ornstein starts from the mode and the curvature at which Laplace stops: where Laplace"
            " is close enough it is there first."
        ),
        "",
        *(f"- {who_won(name, part)}" for name, part in problems.items()),
        *absent,
    ]


def who_won(name: str, part: dict[str, Any]) -> str:
    """One sentence per data set: who was there first, and plainly so where that was Laplace."""
    times = {method: seconds_to(found["points"]) for method, found in part["methods"].items()}
    reached = {method: seconds for method, seconds in times.items() if seconds is not None}
    if not reached:
        return f"On {name} nobody got there within {part['limit']:g} s. {_nearest(part)}".rstrip()
    first = min(reached, key=lambda method: reached[method])
    own = min(
        (seconds for method, seconds in reached.items() if method.startswith("ornstein")),
        default=None,
    )
    if first == "Newton + Laplace":
        behind = (
            "ornstein did not get there"
            if own is None
            else f"ornstein took {own / reached[first]:.1f} times as long"
        )
        return (
            f"On {name} Laplace wins ({reached[first]:.1f} s; {behind}): the posterior is close to"
            " normal and its mode a few Newton steps away. `orn.laplace` is the tool for that;"
            " what sampling adds is a check of that very assumption."
        )
    if first.startswith("ornstein"):
        others = {
            method: seconds
            for method, seconds in reached.items()
            if not method.startswith("ornstein")
        }
        if not others:
            return (
                f"On {name} {first} is there after {reached[first]:.1f} s, and nobody else within"
                f" {part['limit']:g} s."
            )
        second = min(others, key=lambda method: others[method])
        return (
            f"On {name} {first} is first, {others[second] / reached[first]:.1f} times ahead of"
            f" {second}."
        )
    behind = (
        "ornstein did not get there"
        if own is None
        else f"{own / reached[first]:.1f} times ahead of ornstein"
    )
    return f"On {name} {first} is first ({reached[first]:.1f} s), {behind}."


def _nearest(part: dict[str, Any]) -> str:
    """Who came nearest, and whether Laplace could have got there at all."""
    least = {
        method: min(distance for _, distance in found["points"])
        for method, found in part["methods"].items()
        if found["points"]
    }
    if not least:
        return ""
    method = min(least, key=lambda name: least[name])
    said = f"{method} came nearest, to a KL of {least[method]:.2g}."
    laplace = least.get("Newton + Laplace")
    if laplace is None:
        return said
    return (
        f"{said} Laplace's approximation is {laplace:.2g} away and has no better answer later: the"
        " posterior is not normal."
    )


def _growth(result: dict[str, Any]) -> list[str]:
    figures.growth(result, DOCS / "growth.svg")
    lines = [
        (
            "Each size in a process of its own, three times over, the least of each number; memory"
            " is the peak less what the libraries take. `measure`: the mode and the exact passes;"
            " `tune`: the rates and the predicted law; `step`: one step of one chain. A slope of 1"
            " is proportional growth; it is taken through the last three sizes."
        ),
        "",
        "![time and memory against size](growth.svg)",
        "",
        *table(
            ["slope against", *QUANTITIES, "where"],
            (
                [
                    axis,
                    *(
                        "" if value is None else f"{value:.2f}"
                        for value in found["slopes"].values()
                    ),
                    found["said"],
                ]
                for axis, found in result["axes"].items()
            ),
        ),
    ]
    for axis, found in result["axes"].items():
        rows = (
            [
                f"{point['size']:,}",
                *(_number(point.get(name)) or point["ended"] for name in QUANTITIES),
            ]
            for point in found["points"]
        )
        lines += [
            "",
            *table([axis, *(f"{name}, {unit}" for name, unit in QUANTITIES.items())], rows),
        ]
    rows = (
        [
            f"{row['rows']:,}",
            f"{row['columns']:,}",
            *(f"{row[name]:.3g}" for name in ("hessian", "gemm", "syrk")),
            f"{row['share']:.0%}",
        ]
        for row in result["blas"]
    )
    return [
        *lines,
        "",
        (
            "The exact Hessian pass beside a float64 matrix product of the same shape, in GFLOP/s"
            " (2ND² counted; half of BLAS speed was aimed at):"
        ),
        "",
        *table(["N", "D", "Hessian pass", "XᵀY (gemm)", "XᵀX (syrk)", "share of gemm"], rows),
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


_WRITERS: dict[str, tuple[str, Callable[[Any], list[str]]]] = {
    "steps": ("Steps", _steps),
    "chains": ("Chains", _chains),
    "startup": ("Start-up", _startup),
    "posterior": ("Time to a posterior", _posterior),
    "growth": ("Growth", _growth),
}
