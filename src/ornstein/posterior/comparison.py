"""Several posteriors of one model side by side: how far each is from a reference, and what it
cost.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ornstein.checks import FULL_LIMIT, printable
from ornstein.errors import InputError
from ornstein.posterior.posterior import Posterior
from ornstein.theory import Gaussian, kl, monte_carlo_floor
from ornstein.theory.modes import as_matrix
from ornstein.types import Array

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

MOST_SIZES = 500  # parameters whose effective sample size is computed
FLOOR_LIMIT = 200  # parameters up to which the floor of a correlated chain is computed exactly


@dataclass(frozen=True)
class Row:
    """One posterior against the reference.

    Attributes:
        kl_qp: KL(this ‖ reference) in nats, both as Gaussians; kl_pq the other way round.
        kl_floor: what either would be on average if this had the reference's law, from Monte-Carlo
            error on both sides.
        sd_ratio: the ratio of standard deviations, this over reference, that is furthest from one,
            at parameter sd_ratio_at.
        mean_shift: the largest difference of means, in standard deviations of the reference, at
            parameter mean_shift_at.
        mcse: the largest Monte-Carlo standard error of a mean of draws, in the same unit.
        ess: the smallest effective sample size of a parameter; ess_per_second: divided by all
            seconds spent.
        passes: how often each row of the data was looked at. For `orn.sample` that is what its
            steps took, warm-up included; the sweeps before, in which the mode and the curvature are
            measured, are not counted there.
        seconds: everything included.
    """

    name: str
    kl_qp: float
    kl_pq: float
    kl_floor: float
    sd_ratio: float
    sd_ratio_at: str
    mean_shift: float
    mean_shift_at: str
    mcse: float
    ess: float
    ess_per_second: float
    passes: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """The table and what it was made from; prints itself, `to_frame()` is a pandas DataFrame,
    `plot()` the overlay.
    """

    rows: tuple[Row, ...]
    laws: Mapping[str, Gaussian]
    reference: Gaussian
    reference_name: str
    names: tuple[str, ...]
    notes: tuple[str, ...]

    def to_frame(self) -> pandas.DataFrame:
        """One line per posterior, indexed by its name; columns are the fields of `Row`."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows]).set_index("name")

    def plot(self, path: str | Path | None = None) -> Figure:
        """95 % ellipses on the reference's largest and smallest principal component, and intervals
        of the parameters.
        """
        from ornstein.posterior.plots import overlay

        shown = {name: law for name, law in self.laws.items() if name != self.reference_name}
        return overlay(shown or self.laws, self.reference, self.reference_name, self.names, path)

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(
            title=f"Against {printable(self.reference_name)}",
            title_justify="left",
            box=None,
            pad_edge=False,
        )
        table.add_column("", overflow="fold")
        for heading in _HEADINGS:
            table.add_column(heading, justify="right", overflow="fold")
        for row in self.rows:
            table.add_row(printable(row.name), *_cells(row))
        # Names are no markup and no emoji.
        console = Console(
            file=io.StringIO(), width=160, color_system=None, markup=False, emoji=False
        )
        console.print(table, *self.notes, sep="\n", highlight=False)
        assert isinstance(console.file, io.StringIO)
        return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.to_frame().to_html(float_format=lambda number: f"{number:.3g}")


_HEADINGS = (
    "KL(it ‖ ref)",
    "KL(ref ‖ it)",
    "MC floor",
    "worst sd ratio",
    "worst mean shift",
    "MCSE",
    "min ESS",
    "ESS/s",
    "passes",
    "seconds",
)


def compare(
    posteriors: Mapping[str, Posterior | Gaussian],
    reference: str | Posterior | Gaussian | None = None,
) -> Comparison:
    """Put posteriors of the same model side by side.

    Distances are between Gaussians with the posteriors' means and covariances; above 2000
    parameters only variances enter, and the table says so. Samplers that are given the same seed,
    batch size and scheme see the same minibatches in the same order (each chain has its own stream
    of rows, whatever the sampler), so that their differences are less noisy than the entries. NUTS,
    BBVI and Laplace draw no such minibatches and share no random numbers.

    Args:
        posteriors: by name; a Gaussian may stand for a law known exactly.
        reference: a name among them, or a Posterior or Gaussian; None takes the entry made by
            `orn.nuts`, else the one by `orn.laplace`, else Laplace's approximation at the mode that
            one of the samplers was tuned for.

    >>> comparison = compare({"wide": Gaussian([0.0], [[4.0]])}, reference=Gaussian([0.0], [[1.0]]))
    >>> comparison.to_frame()[["kl_qp", "sd_ratio"]].round(3).values.tolist()
    [[0.807, 2.0]]
    """
    if not posteriors or not isinstance(posteriors, Mapping):
        raise InputError("there is nothing to compare: give a dictionary of posteriors by name")
    name, chosen = _reference(posteriors, reference)
    names = _common_names(posteriors, chosen)
    diagonal = len(names) > FULL_LIMIT
    law = _law(chosen, diagonal)
    laws = {label: _law(posterior, diagonal) for label, posterior in posteriors.items()}
    costs = {label: _Cost.of(posterior) for label, posterior in posteriors.items()}
    floor = _Cost.of(chosen).floor
    floors = {
        label: 0.0 if one is chosen else costs[label].floor + floor
        for label, one in posteriors.items()
    }
    rows = tuple(
        _row(label, laws[label], law, names, costs[label], floors[label]) for label in laws
    )
    return Comparison(rows, laws, law, name, names, _notes(posteriors, names))


def _reference(
    posteriors: Mapping[str, Posterior | Gaussian], reference: str | Posterior | Gaussian | None
) -> tuple[str, Posterior | Gaussian]:
    if isinstance(reference, str):
        if reference not in posteriors:
            raise InputError(
                f"the reference {reference!r} is not among {', '.join(map(repr, posteriors))}"
            )
        return reference, posteriors[reference]
    if reference is not None:
        if not isinstance(reference, Posterior | Gaussian):
            raise InputError(
                "reference must be a name, a Posterior or a Gaussian, not a"
                f" {type(reference).__name__}"
            )
        return (
            next((label for label, one in posteriors.items() if one is reference), "the reference"),
            reference,
        )
    for method in ("nuts", "laplace"):
        for label, posterior in posteriors.items():
            if label == method or (
                isinstance(posterior, Posterior) and posterior.settings.get("sampler") == method
            ):
                return label, posterior
    for posterior in posteriors.values():
        if isinstance(posterior, Posterior) and posterior.curvature is not None:
            return "Laplace at the mode", posterior.curvature.laplace
    raise InputError(
        "no reference: give reference= a name, a Posterior or a Gaussian, or put orn.nuts or"
        " orn.laplace among them"
    )


def _common_names(
    posteriors: Mapping[str, Posterior | Gaussian], reference: Posterior | Gaussian
) -> tuple[str, ...]:
    names: tuple[str, ...] | None = None
    size = reference.mean.size
    for label, posterior in (*posteriors.items(), ("the reference", reference)):
        if not isinstance(posterior, Posterior | Gaussian):
            raise InputError(
                f"{label} must be a Posterior or a Gaussian, not a {type(posterior).__name__}"
            )
        if posterior.mean.size != size:
            raise InputError(
                f"{label} has {posterior.mean.size} parameters where the reference has {size}"
            )
        if isinstance(posterior, Posterior):
            if names is not None and posterior.names != names:
                raise InputError(
                    f"{label} does not have the parameters of the posteriors before it:"
                    " they are from different models"
                )
            names = posterior.names
    return names or tuple(f"theta[{position}]" for position in range(size))


def _law(posterior: Posterior | Gaussian, diagonal: bool) -> Gaussian:
    covariance = posterior.covariance
    if diagonal:
        return Gaussian(
            posterior.mean, covariance if covariance.ndim == 1 else np.diagonal(covariance)
        )
    return Gaussian(posterior.mean, as_matrix(covariance, posterior.mean.size))


@dataclass(frozen=True, eq=False)
class _Cost:
    """What a posterior is worth and what it took: effective sizes, their positions, floor, passes
    and seconds.
    """

    sizes: Array
    positions: Array
    floor: float
    passes: float
    seconds: float

    @classmethod
    def of(cls, posterior: Posterior | Gaussian) -> _Cost:
        if isinstance(posterior, Gaussian):
            return cls(np.full(1, np.inf), np.zeros(1, dtype=int), 0.0, math.nan, math.nan)
        sizes, positions = _effective_sizes(posterior)
        settings = posterior.settings
        passes = settings.get("passes", math.nan)
        if "passes" not in settings and posterior.curvature is not None and "steps" in settings:
            passes = settings["steps"] * settings["batch_size"] / posterior.curvature.n_data
        return cls(
            sizes,
            positions,
            _floor(posterior, sizes),
            float(passes),
            float(settings.get("seconds", math.nan)),
        )


def _effective_sizes(posterior: Posterior) -> tuple[Array, Array]:
    """Effective sample sizes, and of which parameters: all of them, or 500 spread evenly over
    more.
    """
    from ornstein.posterior.statistics import effective_sample_size

    count = posterior.mean.size
    positions = np.unique(np.linspace(0, count - 1, min(count, MOST_SIZES)).astype(int))
    if not posterior.draws.shape[1] or str(posterior.settings.get("keep", "")).startswith(
        "low-rank"
    ):
        # The moments are what was kept; they are worth what the states of the chain were.
        if posterior.prediction is None or posterior.prediction.process is None:
            return np.full(positions.size, math.nan), positions
        correlation = math.exp(
            -posterior.settings["moment_spacing"] / max(posterior.prediction.relaxation_time, 1e-12)
        )
        size = posterior.settings["states"] * (1.0 - correlation) / (1.0 + correlation)
        return np.full(positions.size, size), positions
    return (
        np.array(
            [
                effective_sample_size(posterior.draws[:, :, position], "bulk")
                for position in positions
            ]
        ),
        positions,
    )


def _floor(posterior: Posterior, sizes: Array) -> float:
    """Expected KL between the posterior's law and the moments at hand."""
    if posterior.settings.get("exact_moments"):
        return 0.0
    count = posterior.mean.size
    known = (
        posterior.prediction is not None
        and posterior.prediction.process is not None
        and posterior.dynamics is not None
    )
    if known and count <= FLOOR_LIMIT:
        return monte_carlo_floor(posterior.moment_process(), posterior.settings["states"])
    draws = posterior.draws.shape[0] * posterior.draws.shape[1] or np.inf
    worth = 1.0 / float(np.mean(1.0 / np.minimum(sizes, draws)))
    return count / worth if count > FULL_LIMIT else count * (count + 3) / (4.0 * worth)


def _row(
    name: str, law: Gaussian, reference: Gaussian, names: tuple[str, ...], cost: _Cost, floor: float
) -> Row:
    unit = reference.standard_deviation
    ratio, shift = law.standard_deviation / unit, (law.mean - reference.mean) / unit
    widest = int(np.argmax(np.abs(np.log(np.maximum(ratio, np.finfo(float).tiny)))))
    furthest = int(np.argmax(np.abs(shift)))
    smallest = float(np.min(cost.sizes))
    return Row(
        name,
        kl(law, reference),
        kl(reference, law),
        floor,
        float(ratio[widest]),
        names[widest],
        float(shift[furthest]),
        names[furthest],
        float(np.max(ratio[cost.positions] / np.sqrt(cost.sizes))),
        smallest,
        smallest / cost.seconds,
        cost.passes,
        cost.seconds,
    )


def _notes(
    posteriors: Mapping[str, Posterior | Gaussian], names: tuple[str, ...]
) -> tuple[str, ...]:
    notes = []
    if len(names) > FULL_LIMIT:
        notes.append(
            f"{len(names)} parameters: both KL are between the diagonals of the covariances,"
            " correlations are not compared."
        )
    if len(names) > MOST_SIZES:
        notes.append(f"ESS and MCSE are over {MOST_SIZES} of the {len(names)} parameters.")
    for label, posterior in posteriors.items():
        settings = posterior.settings if isinstance(posterior, Posterior) else {}
        if settings.get("converged") is False:
            notes.append(f"{label}: {settings['convergence']}.")
        if settings.get("divergences"):
            notes.append(f"{label}: {settings['divergences']} divergent transitions.")
    return tuple(notes)


def _cells(row: Row) -> tuple[str, ...]:
    numbers = (row.kl_qp, row.kl_pq, row.kl_floor)
    at = (
        f"{row.sd_ratio:.3g} ({printable(row.sd_ratio_at)})",
        f"{row.mean_shift:+.2g} ({printable(row.mean_shift_at)})",
    )
    rest = (row.mcse, row.ess, row.ess_per_second, row.passes, row.seconds)
    return (*map(_number, numbers), *at, *map(_number, rest))


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:,.0f}" if 1000.0 <= abs(value) < 1e9 else f"{value:.3g}"
