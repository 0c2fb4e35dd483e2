"""`orn.plan`: every way to the posterior with what it will deliver and cost, and the one to take.

The choice is a function of model, data, seed, budget and the cost table, and never of a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ornstein import markup
from ornstein.checks import is_number
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.wide import from_rows
from ornstein.errors import CurvatureError, InputError
from ornstein.model.model import Model
from ornstein.model.network import whole_network
from ornstein.model.required import require_model
from ornstein.sampling.request import SampleRequest
from ornstein.ways import REGISTRY, way_by_name
from ornstein.ways.costs import default_budget, machine_factor
from ornstein.ways.forecasts import Forecasts
from ornstein.ways.probe import GOOD
from ornstein.ways.rows import Wide
from ornstein.ways.situation import Situation, survey
from ornstein.ways.way import Forecast, restriction

if TYPE_CHECKING:
    import pandas

COLUMNS = ("way", "KL", "relaxation", "passes/draw", "passes", "seconds", "memory", "why")


@dataclass(frozen=True, eq=False)
class Plan:
    """What `orn.sample` chooses among; prints as a table, the chosen way marked.

    Attributes:
        forecasts: of the ways; those that the choice did not need are made when they are shown.
        chosen: the name of the way to take first.
        budget: passes over the data that are allowed, for everything.
    """

    forecasts: Forecasts
    chosen: str
    budget: float

    @property
    def rows(self) -> tuple[Forecast, ...]:
        """One Forecast per way."""
        return self.forecasts.all()

    @property
    def situation(self) -> Situation:
        """Curvature and probes, which a run uses again."""
        return self.forecasts.situation

    def __iter__(self) -> Iterator[Forecast]:
        return iter(self.rows)

    def __getitem__(self, way: str) -> Forecast:
        """The row of this way."""
        found = way_by_name(way)
        if found is None:
            raise InputError(f"there is no way {way!r}; there are {[one.name for one in REGISTRY]}")
        return self.forecasts.of(found)

    def sentence(self) -> str:
        """What was chosen and why, in one line."""
        return sentence(self[self.chosen])

    def frame(self) -> pandas.DataFrame:
        """The table as a data frame, seconds as on this machine."""
        import pandas

        return pandas.DataFrame(
            [
                (
                    row.way,
                    row.kl,
                    row.relaxation_time,
                    row.passes_per_draw,
                    row.work,
                    row.seconds * machine_factor(),
                    row.memory,
                    row.words,
                )
                for row in self.rows
            ],
            columns=list(COLUMNS),
        ).set_index("way")

    def __str__(self) -> str:
        situation = self.situation
        rows = "all data at once" if situation.model.undivided else f"{situation.n_data:,} rows"
        head = (
            f"Plan for {rows} and {situation.dim:,} parameters, budget"
            f" {self.budget:,.0f} passes ({situation.passes:,.0f} spent on planning)"
        )
        texts = [("", *COLUMNS), *(self._texts(row) for row in self.rows)]
        widths = [max(len(text[place]) for text in texts) for place in range(len(COLUMNS))]
        lines = [head]
        for text in texts:
            cells = [
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(text, widths, strict=False))
            ]
            lines.append("  ".join([*cells, _short(text[-1])]).rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Plan({self.sentence()})"

    def _repr_html_(self) -> str:
        rows = [self._texts(row) for row in self.rows]
        return markup.sentence(str(self).splitlines()[0]) + markup.table(
            ["way", "", *COLUMNS[1:]], [(text[1], text[0], *text[2:]) for text in rows]
        )

    def _texts(self, row: Forecast) -> tuple[str, ...]:
        mark = "→" if row.way == self.chosen else ""
        if math.isnan(row.work):
            return (mark, row.way, *["–"] * 6, row.words)
        return (
            mark,
            row.way,
            _kl(row.kl),
            f"{row.relaxation_time:.3g}",
            f"{row.passes_per_draw:.3g}",
            f"{row.work:,.0f}",
            _seconds(row.seconds),
            f"{row.memory / 1e6:,.0f} MB",
            row.words,
        )

    def plot(self, path: str | Path | None = None) -> Any:
        """Predicted KL against seconds, one point per way; the chosen one in full colour."""
        from matplotlib.figure import Figure

        from ornstein.posterior.plots import write_figure

        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for row in self.rows:
            if math.isnan(row.work) or not math.isfinite(row.kl):
                continue
            place = max(row.seconds * machine_factor(), 1e-3), max(row.kl, 1e-4)
            colour = "#3b5bdb" if row.way == self.chosen else "#9ca3af"
            axes.plot(*place, "o", color=colour, fillstyle="full" if row.possible else "none")
            axes.annotate(row.way, place, (5, 3), textcoords="offset points", color=colour)
        axes.axhline(GOOD, color="#6b7280", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="predicted KL (nats)")
        if path is not None:
            write_figure(figure, path)
        return figure


def plan(
    model: Model,
    budget: float | None = None,
    *,
    draws: int = 1000,
    chains: int = 4,
    curvature: Curvature | None = None,
    seed: int = 0,
    **options: Any,
) -> Plan:
    """What `orn.sample` would choose among: every way to the posterior, with its predicted distance
    from it and its cost. Curvature is measured and the density probed; nothing else runs.

    Args:
        model: what is inferred.
        budget: passes over the data (row gradients / N) that everything together may take; None
            is a function of the number of rows and parameters, and is printed.
        draws, chains, curvature, seed: as for `orn.sample`.
        options: further arguments of `orn.sample`, such as batch_size; those that only stochastic
            gradients have restrict the plan to them.

    >>> import numpy as np
    >>> from ornstein.model.regression import glm
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> plan(glm(X, X @ [1.0, -1.0], noise_scale=1.0)).chosen
    'laplace'
    """
    require_model(model)
    request = SampleRequest(
        None, draws=draws, chains=chains, curvature=curvature, seed=seed, **options
    )
    worked = model.worked
    if worked is not None:
        model = worked.model
        curvature = None if curvature is None else curvature.in_working(worked.coordinates)
    allowed = checked_budget(budget, model)
    situation = surveyed(model, curvature, seed, request.scheme, allowed)
    return planned(situation, request, allowed)


def surveyed(
    model: Model, curvature: Curvature | None, seed: int, scheme: str, allowed: float
) -> Situation:
    """What is found about a model before a way is chosen: nothing about a network as a whole, which
    has no one mode.
    """
    if model.network_by_nuts and (network := whole_network(model)):
        return Situation(model, None, network, None, 0.0)
    return survey(model, curvature, seed, scheme, allowed)


def planned(situation: Situation, request: SampleRequest, budget: float | None = None) -> Plan:
    """The plan for what was found about a model."""
    allowed = checked_budget(budget, situation.model)
    if situation.wide is not None:
        situation = replace(situation, passes=found_passes(situation.wide))
    forecasts, reason = Forecasts(situation, request), restriction(request)
    if reason and not any(row.possible for row in forecasts.all()):
        # what stochastic gradients say of it; the other ways were not asked
        raise InputError(next(row.words for row in forecasts.all() if row.words != reason))
    return Plan(forecasts, forecasts.chosen(allowed - situation.passes), allowed)


def found_passes(wide: Wide) -> float:
    """Passes that it took to find the Gaussian nearest to the posterior of a wide regression."""
    try:
        _ = wide.sentence
    except CurvatureError as error:
        raise CurvatureError(f"no way to the posterior was found: {error}") from error
    return wide.passes


def checked_budget(budget: float | None, model: Model) -> float:
    """The budget in passes; the printed function of N and D where none is given."""
    if budget is None and from_rows(model):
        return Wide(model).budget
    if budget is None:
        return default_budget(model.work, model.dim)
    if not is_number(budget) or budget <= 0:
        raise InputError(
            f"budget must be a positive number of passes over the data; got {budget!r}"
        )
    return float(budget)


def sentence(row: Forecast) -> str:
    """A way, why it is taken, and what it should take, in one line."""
    said = f"{row.words}; predicted KL {_kl(row.kl)}, about {_seconds(row.seconds)}"
    return f"{row.way}: {said}"


def _kl(value: float) -> str:
    if math.isnan(value):
        return "?"
    return f"{value:.2g}" if value >= 1e-4 else "0"


def _seconds(seconds: float) -> str:
    shown = seconds * machine_factor()
    return f"{shown:.1f} s" if shown < 10 else f"{shown:,.0f} s"


def _short(words: str, most: int = 88) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
