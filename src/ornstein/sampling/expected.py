"""What a checkpoint must hold for a run to go on from it: shapes and types as the model makes them,
finite numbers, and counters that agree with each other.

A file may come from anywhere. Its announced sizes were compared with its bytes when it was read;
here they are compared with the model, before anything is allocated by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ornstein.curvature.curvature import Curvature
from ornstein.dynamics.dynamics import Dynamics
from ornstein.engine.chain import Chain
from ornstein.engine.run import Run
from ornstein.model.model import Model
from ornstein.posterior.archive import flattened
from ornstein.rows.sources import IndexSource
from ornstein.sampling.collect import Collection
from ornstein.sampling.plan import Schedule, fitting
from ornstein.sampling.request import SampleRequest
from ornstein.sampling.session import Session
from ornstein.sampling.warmup import ROUNDS, Round
from ornstein.types import Array, Meta, PyTree

LONGEST = 10**12  # steps between draws: at a million a second, more than a week
RETUNED = 100  # a window may be tuned again during warm-up, which changes it by far less than that


def checked_plan(plan: Meta, chains: Mapping[str, PyTree], options: Meta) -> Schedule:
    """The plan in a checkpoint, refused where it is none, the file holds other chains, or the
    options of the run lead to another.
    """
    made = Schedule(**plan)
    for name in ("draws", "chains", "thin", "warmup", "seed", "first_chain"):
        require_whole(name, getattr(made, name), 10**18)
    if made.warmup_limit is not None:
        require_whole("warmup_limit", made.warmup_limit, 10**18)
    if not 1 <= made.thin <= LONGEST or not isinstance(made.automatic_warmup, bool):
        raise ValueError(f"thin={made.thin!r}, automatic_warmup={made.automatic_warmup!r}")
    if made.dtype not in ("float32", "float64"):
        raise ValueError(f"dtype={made.dtype!r}")
    # refuses what `sample` refuses
    SampleRequest(
        draws=made.draws, chains=made.chains, max_steps=10**19, seed=made.seed, keep=made.keep
    )
    if set(chains) != {str(number) for number in range(made.chains)}:
        raise ValueError(f"{len(chains)} chains in place of {made.chains}")
    _require_asked_for(made, options)
    return made


def _require_asked_for(plan: Schedule, options: Meta) -> None:
    """Refuse a plan that does not follow from the options."""
    most, draws = options["max_steps"], options["draws"]
    for name in ("thin", "warmup"):
        if options[name] != "auto" and options[name] != getattr(plan, name):
            raise ValueError(f"{name}={getattr(plan, name)}, where {options[name]} was asked for")
    for name in ("chains", "seed", "keep", "first_chain"):
        if options[name] != getattr(plan, name):
            raise ValueError(f"{name}={getattr(plan, name)}, where {options[name]} was asked for")
    if plan.draws != draws or draws * plan.chains * plan.thin > most:
        raise ValueError(f"{plan.draws} draws of {plan.thin} steps, where {draws} were asked for")
    if options["warmup"] == "auto" and max(plan.warmup, plan.warmup_limit or 0) > most:
        raise ValueError(f"{plan.warmup} steps of warm-up, where all steps are {most}")


def require_dynamics(dynamics: object, curvature: Curvature, model: Model, plan: Schedule) -> None:
    """Refuse what is no Dynamics for this model."""
    if not isinstance(dynamics, Dynamics):
        raise ValueError(f"a {type(dynamics).__name__} in place of a Dynamics")
    fitting(dynamics, curvature)
    require_whole("batch_size", dynamics.batch_size, model.n_data)
    require_whole("window", dynamics.window, LONGEST)
    require_whole("gap", dynamics.gap, LONGEST)
    if dynamics.window > 1 and dynamics.window + dynamics.gap > RETUNED * plan.thin:
        raise ValueError(f"a window of {dynamics.window} steps where {plan.thin} were planned")
    if dynamics.schedule is not None:
        require_finite("the schedule", np.asarray(dynamics.schedule(np.arange(10.0))))
    for name, array in dynamics.arrays().items():
        require_finite(name, array)
    if dynamics.output_map is not None:
        require_finite("output_map", dynamics.output_map)


def require_state(session: Session, saved: Mapping[str, PyTree]) -> None:
    """Refuse a state that a run with this plan cannot have been in."""
    collection = session.new_collection() if "collection" in saved else None
    expected = session.state() | ({} if collection is None else {"collection": collection.state()})
    del expected["warmup"]  # its shapes depend on the round
    _require_like(flattened(expected), flattened({name: saved[name] for name in expected}))
    for chain in session.run.chains:
        _require_chain(chain, saved["chains"][str(chain.number)])
    steps = [
        int(saved["chains"][str(chain.number)]["counters"]["step"]) for chain in session.run.chains
    ]
    _require_warmup(session, saved["warmup"], steps, collection is not None)
    if collection is not None:
        taken = int(saved["warmup"]["taken"])
        last = session.plan.draws * session.thin
        for number, step in enumerate(steps):
            if not 0 <= step - taken <= last or (step - taken) % collection.stride:
                raise ValueError(f"chain {number} at step {step}, warm-up to {taken}")
            received = (step - taken) // collection.stride
            _require_collected(collection, saved["collection"], number, received)


def require_chains(run: Run, saved: Mapping[str, PyTree]) -> None:
    """Refuse states that the chains of a run cannot have been in."""
    expected = {str(chain.number): chain.state() for chain in run.chains}
    _require_like(flattened(expected), flattened(saved))
    for chain in run.chains:
        _require_chain(chain, saved[str(chain.number)])


def require_source(source: IndexSource, saved: Mapping[str, Array]) -> None:
    """Refuse a state that a source of minibatches cannot have been in."""
    _require_like(source.state(), saved)
    _require_generator(saved)
    source.require(saved)


def _require_like(expected: Mapping[str, Array], saved: Mapping[str, Array]) -> None:
    """The same names with arrays of the same shapes and types, but for what grows; all finite."""
    for path, array in saved.items():
        require_finite(path, array)
        if path not in expected:
            raise ValueError(f"an array {path} that the run has no use for")
        if array.dtype != expected[path].dtype or not _fits(path, expected[path], array):
            raise ValueError(f"{path} of shape {array.shape} and type {array.dtype}")
    missing = set(expected) - set(saved)
    if missing:
        raise ValueError(f"no array {min(missing)}")


def _fits(path: str, like: Array, array: Array) -> bool:
    """Whether the shape is the one that is expected, or one that this array may have."""
    if path == "collection/draws/values":
        return array.ndim == 3 and array.shape[::2] == like.shape[::2]
    if path.endswith(("permutation", "/total")):
        return array.ndim <= 1  # looked at with what it belongs to
    return array.shape == like.shape


def _require_chain(chain: Chain, saved: Mapping[str, PyTree]) -> None:
    step, used = (int(saved["counters"][name]) for name in ("step", "used"))
    if not 0 <= used <= min(step, chain.block_steps) or step > 10**18:
        raise ValueError(f"chain {chain.number} at step {step}, {used} steps into its block")
    for generator in (saved["randomness"]["source"], saved["randomness"]["normals"]):
        _require_generator(generator)
    chain.source.require(saved["randomness"]["source"])


def _require_generator(saved: Mapping[str, Array]) -> None:
    has_half, half = (int(word) for word in saved["half"])
    if has_half > 1 or half >= 2**32:
        raise ValueError("a random generator in an invalid state")


def _require_warmup(
    session: Session, saved: Mapping[str, PyTree], steps: list[int], collecting: bool
) -> None:
    counters = {name: np.asarray(saved[name]) for name in ("attempt", "taken", "done")}
    if any(array.ndim or array.dtype.kind not in "bi" for array in counters.values()):
        raise ValueError("counters of warm-up that are not whole numbers")
    attempt, taken, done = (int(array) for array in counters.values())
    if not 0 <= attempt <= ROUNDS or not 0 <= taken <= min(steps) or (collecting and not done):
        raise ValueError(f"{taken} steps of warm-up in round {attempt}")
    if done and not collecting and max(steps) > taken:
        raise ValueError("steps after the warm-up that delivered nothing")
    reached = replace(session.warmup, attempt=attempt, taken=taken, done=bool(done))
    _require_like(flattened({"warmup": reached.state()}), flattened({"warmup": saved}))
    if done:
        return
    for number, step in enumerate(steps):
        rows, rest = divmod(step - taken, reached.stride)
        if rest or rows > reached.keeps:
            raise ValueError(f"chain {number} at step {step}, earlier rounds to {taken}")
        if reached.round is not None:
            _require_kept(reached.round, saved["round"], number, rows)


def _require_kept(looked_at: Round, saved: Mapping[str, PyTree], chain: int, rows: int) -> None:
    """All positions of a chain were counted, those that fill no batch yet as waiting."""
    waiting, count = int(saved["waiting"][chain]), int(saved["count"][chain])
    if waiting + count != rows or waiting != rows % looked_at.batch.shape[1]:
        raise ValueError(f"chain {chain} has {rows} positions, of which {waiting + count} counted")


def _require_collected(
    collection: Collection, saved: Mapping[str, PyTree], chain: int, received: int
) -> None:
    """Everything that was counted follows from how many values the chain has handed over."""
    delivery = collection.deliveries[chain]
    whole, rest = divmod(received, delivery.per_draw)
    draws = whole + int(0 < delivery.summed_of <= rest)
    states = draws if delivery.summed_of else received
    moments = saved["moments"]
    waiting, count = int(moments["waiting"][chain]), int(moments["count"][chain])
    found = saved["deliveries"][str(chain)]
    size = collection.moments.mean.shape[1]
    if (
        int(found["seen"]) != rest
        or found["total"].shape not in ((), (size,))
        or waiting + count != states
        or not 0 <= waiting < collection.moments.batch.shape[1]
    ):
        raise ValueError(f"chain {chain} has {received} values, of which {waiting + count} counted")
    if collection.draws is not None:
        filled = saved["draws"]["filled"]
        if filled[chain] != draws or saved["draws"]["values"].shape[1] != filled.max():
            raise ValueError(f"chain {chain} has {draws} draws, of which {filled[chain]} kept")


def require_whole(name: str, value: object, most: int) -> None:
    """Refuse what is no whole number from 0 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a whole number up to {most}; got {value!r}")


def require_finite(name: str, array: Array) -> None:
    """Refuse what is not a finite number."""
    if array.dtype.kind not in "biuf" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} holds something that is not a finite number")
