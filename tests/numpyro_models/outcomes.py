"""What the default call makes of a model of the list, beside NumPyro's own NUTS.

`python -m benchmarks.numpyro_models` runs them all, and writes the table of docs/numpyro.md.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import jax
import numpy as np
from numpyro.infer import MCMC, NUTS

import ornstein as orn
from numpyro_models.catalogue import Case
from ornstein.compute.precision import double
from ornstein.interfaces.numpyro.arguments import as_given, bound, call_of
from ornstein.interfaces.numpyro.handled import EveryRow, alone
from ornstein.posterior.statistics import effective_sample_size, split_r_hat

SLACK, ERRORS = 0.15, 3.5  # a mean may be off by sds and standard errors


@dataclass(frozen=True)
class Outcome:
    """The level of the verdict, or the sentence of a refusal; `worst` is the largest distance of a
    mean from NUTS's, in units of what is allowed, and `where` its name.
    """

    name: str
    level: str
    way: str = ""
    said: str = ""
    seconds: float = 0.0
    worst: float = float("nan")
    where: str = ""

    def __str__(self) -> str:
        row = (
            f"{self.level:12s} {self.worst:6.2f} {self.seconds:6.1f} s  {self.way:14s} {self.name}"
        )
        return f"{row}: {self.where} {self.said}"


def outcome(case: Case, compared: bool = True) -> Outcome:
    """Run the default call and, where it is `compared`, NUTS."""
    call, began = case.build(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orn.OrnsteinWarning)
        try:
            model = orn.from_numpyro(call.model, *call.args, **call.kwargs)
            post = orn.sample(model, progress=False)
        except orn.OrnsteinError as error:
            return Outcome(case.name, "refused", said=str(error))
        verdict = post.check()
    seconds = time.perf_counter() - began
    raised = [finding for finding in verdict if finding.level not in ("trusted", "note", "skipped")]
    said = "; ".join(f"{finding.name}: {finding.sentence}" for finding in raised)
    worst, where = _distance(case, post) if compared else (float("nan"), "")
    return Outcome(case.name, verdict.level, post.settings["way"], said, seconds, worst, where)


def reference(case: Case) -> dict[str, np.ndarray]:
    """Draws of NumPyro's NUTS in double precision, two chains of 1000, and their energy."""
    call = case.build()
    arguments = bound(call.model, call.args, call.kwargs)
    with double(), alone():
        given = call_of(call.model, as_given(arguments))
        run = MCMC(
            NUTS(EveryRow(call.model), target_accept_prob=0.9),
            num_warmup=1000,
            num_samples=1000,
            num_chains=2,
            chain_method="sequential",
            progress_bar=False,
        )
        run.run(jax.random.key(7), *given.args, extra_fields=("potential_energy",), **given.kwargs)
        found = dict(run.get_samples(group_by_chain=True))
        found["energy"] = run.get_extra_fields(group_by_chain=True)["potential_energy"]
        return {name: np.asarray(values) for name, values in found.items()}


def _distance(case: Case, post: orn.Posterior) -> tuple[float, str]:
    """The largest distance of a mean from NUTS's, in units of what is allowed."""
    exact, ours = reference(case), dict(post.params)
    names = [name for name in exact if name in ours]
    if case.symmetric:  # signs and orders have no meaning: the energy has
        ours["energy"], names = _energy(post), ["energy"]
    worst, where = 0.0, ""
    for name in names:
        mine, theirs = (
            values.reshape(*values.shape[:2], -1) for values in (ours[name], exact[name])
        )
        for place in range(mine.shape[2]):
            one, other = mine[..., place], theirs[..., place]
            sd = other.std(ddof=1)
            if not sd > 1e-12 * (1.0 + abs(other.mean())):
                continue
            error = np.hypot(
                *(
                    each.std(ddof=1) / np.sqrt(effective_sample_size(each, "bulk"))
                    for each in (one, other)
                )
            )
            off = abs(one.mean() - other.mean()) / (SLACK * sd + ERRORS * error)
            if off > worst:
                worst, where = float(off), f"{name}[{place}] r_hat {split_r_hat(other):.2f}"
    return worst, where


def _energy(post: orn.Posterior) -> np.ndarray:
    from ornstein.verdict.density import Density

    flat = post.draws.reshape(-1, post.draws.shape[-1])
    return Density(post.model).values(flat).reshape(post.draws.shape[:2])
