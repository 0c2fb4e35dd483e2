"""`python -m benchmarks.numpyro_models`: the table of docs/numpyro.md. The 53 models of
tests/numpyro_models run by the default call, and by NumPyro's NUTS beside it.

Each model runs in a process of its own, which is ended after `--limit` seconds. What is done is
kept at once; a run that was interrupted goes on where it stopped.

python -m benchmarks.numpyro_models                  those that are not kept, and the page
python -m benchmarks.numpyro_models horseshoe radon  those with these words in their names, again
python -m benchmarks.numpyro_models --page           the page from the results kept
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from numpyro_models import MODELS  # noqa: E402
from numpyro_models.outcomes import outcome  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "numpyro_models.json"
PAGE = ROOT / "docs" / "numpyro.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
LATE, REFUSED = "too slow", "refused"

Kept = dict[str, dict[str, Any]]


def kept() -> Kept:
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(results: Kept) -> None:
    """In the order of the list."""
    ordered = {name: results[name] for name in MODELS if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def in_a_process(name: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.numpyro_models", "--one", name]
    try:
        found = subprocess.run(
            command, cwd=ROOT, timeout=limit, stdout=subprocess.PIPE, check=True, env=os.environ
        )
    except subprocess.TimeoutExpired:
        return {"level": LATE, "said": f"not done in {limit:.0f} s"}
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def run(names: list[str], limit: float) -> None:
    for name in names:
        found = in_a_process(name, limit)
        keep({**kept(), name: found})
        worst = found.get("worst") or 0.0
        print(
            f"{found['level']:12s} {worst:6.2f} {found.get('seconds', limit):6.1f} s  {name}:"
            f" {found['said']}",
            flush=True,
        )


def one(name: str) -> None:
    """The outcome as a line of JSON, which has no NaN."""
    found = vars(outcome(MODELS[name]))
    print(json.dumps({key: value for key, value in found.items() if value == value}))


def page(results: Kept) -> str:
    done = {name: found for name, found in results.items() if found["level"] not in (REFUSED, LATE)}
    trusted = [found for found in done.values() if found["level"] == "trusted"]
    near = [found for found in done.values() if found["worst"] <= 1.0]
    lines = [
        f"Of {len(results)} models {len(done)} end in a posterior, {len(trusted)} of them trusted;"
        f" {len(near)} agree with NUTS.",
        "",
        "| model | way | verdict | distance from NUTS |",
        "|---|---|---|---|",
    ]
    for name, found in results.items():
        distance = f"{found['worst']:.2f}" if name in done else ""
        lines.append(f"| {name} | {found.get('way', '')} | {found['level']} | {distance} |")
    return "\n".join(lines) + "\n"


def write_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:before] + page(kept()) + text[after:], encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="parts of names")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a model")
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.one:
        one(given.one)
        return
    if not given.page:
        known = kept()
        chosen = [name for name in MODELS if any(word in name for word in given.words)]
        run(chosen or [name for name in MODELS if name not in known], given.limit)
    write_page()


if __name__ == "__main__":
    main()
