"""The results as a page and a plot of the documentation."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def write_results(steps: dict[str, dict[str, float]], chains: dict[str, dict[int, float]], start: dict[str, float]) -> None:
    """docs/benchmarks.md and docs/benchmarks.svg."""
    names = list(dict.fromkeys(name for result in steps.values() for name in result))
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` on {datetime.date.today():%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}), float32. "
        "Everyone runs in one process, in turn, best of 5; compile time is left out. Read the ratios, not the times.",
        "",
        "![µs per step](benchmarks.svg)",
        "",
        "## µs per step, one chain",
        "",
        "| task | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for task, result in steps.items():
        lines.append(f"| {task} | " + " | ".join(f"{result[name]:.3g}" if name in result else "" for name in names) + " |")
    lines += [
        "",
        "## Ratios",
        "",
        "| task | scalar × C++ loop | scalar over blackjax SGLD | SGLD over blackjax SGLD |",
        "|---|---|---|---|",
    ]
    for task, result in steps.items():
        limit, reference = result.get("C++ loop, scalar", float("nan")), result["blackjax SGLD"]
        lines.append(
            f"| {task} | {result['ornstein scalar'] / limit:.2f} | {reference / result['ornstein scalar']:.1f} | "
            f"{reference / result['ornstein SGLD']:.1f} |"
        )
    lines += [
        "",
        "## Chains: throughput relative to one",
        "",
        "| task | " + " | ".join(f"{n} chains" for n in (1, 4, 32)) + " |",
        "|---|---|---|---|",
    ]
    lines += [f"| {task} | " + " | ".join(f"{gain:.2f}" for gain in gains.values()) + " |" for task, gains in chains.items()]
    lines += ["", "## Start-up", "", *(f"- {what}: {seconds:.2f} s" for what, seconds in start.items()), ""]
    (DOCS / "benchmarks.md").write_text("\n".join(lines), encoding="utf-8")
    _plot(steps, names)


def _plot(steps: dict[str, dict[str, float]], names: list[str]) -> None:
    from matplotlib.figure import Figure

    colours = [
        "#0072b2",
        "#56b4e9",
        "#009e73",
        "#e69f00",
        "#cc79a7",
        "#000000",
        "#d55e00",
        "#999999",
        "#f0e442",
        "#8c564b",
        "#7f3c8d",
    ]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for position, name in enumerate(names):
        points = [(number, result[name]) for number, result in enumerate(steps.values()) if name in result]
        axes.plot(*zip(*points, strict=True), "o" if name.startswith("ornstein") else "s", color=colours[position], label=name)
    axes.set_yscale("log")
    axes.set_ylabel("µs per step (lower is faster)")
    axes.set_xticks(range(len(steps)), [task.replace(" N=", "\nN=") for task in steps], fontsize=7)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, ncols=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(DOCS / "benchmarks.svg", metadata={"Date": None})
