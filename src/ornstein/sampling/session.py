"""A sampling run between any two blocks of steps: warm-up, then draws, with all that changes
written down on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import scipy.linalg

from ornstein.compute.precision import width
from ornstein.curvature.curvature import Curvature
from ornstein.curvature.leverage import factors
from ornstein.dynamics.dynamics import Sampler
from ornstein.engine.run import Pause, Run
from ornstein.model.mixed.model import MixedModel
from ornstein.model.model import Model
from ornstein.rows.strata import Strata
from ornstein.rows.unequal import UnequalRows
from ornstein.sampling.collect import Collection
from ornstein.sampling.framing import in_frame
from ornstein.sampling.plan import Schedule
from ornstein.sampling.warmup import Tuned, WarmUp, retuner, stride_of, warm_up
from ornstein.types import Array, PyTree


def _drawn(model: Model, curvature: Curvature) -> tuple[Model, UnequalRows | Strata | None]:
    """The model whose rows minibatches hold, and how these are drawn where not all alike."""
    if curvature.strata is not None:
        assert isinstance(model, MixedModel)
        strata = Strata(model.buckets, tuple(int(count) for count in curvature.strata))
        return model.replace(strata=strata), strata
    if curvature.probabilities is None:
        return model, None
    rows = UnequalRows.of(curvature.probabilities)
    return model.reweighted(factors(curvature.probabilities)), rows


class Session:
    """Chains on a model together with what they have delivered so far.

    `sampler` is the rule that may tune again during warm-up, None where that is not wanted.
    """

    def __init__(
        self,
        model: Model,
        tuned: Tuned,
        starts: Array,
        plan: Schedule,
        sampler: Sampler | None = None,
    ) -> None:
        self.model, self.plan, self.sampler = model, plan, sampler
        if tuned.curvature.strata is not None:
            sampler = self.sampler = None  # C along a chain is not measured by strata
        drawn, unequal = _drawn(model, tuned.curvature)
        mode, dtype = tuned.curvature.mode, plan.dtype
        loss, dynamics, frame = drawn.loss, tuned.dynamics, None
        with width(dtype):
            stepped = in_frame(drawn, tuned, dtype, sampler is not None)
            if stepped is not None:
                loss, problem, dynamics = stepped.loss, stepped.problem, stepped.dynamics
                frame = stepped.frame
                starts = scipy.linalg.solve(frame.matrix, starts.T).T
            elif drawn.streams:
                problem = drawn.problem_without_data(dtype, mode)
            else:
                problem = drawn.problem(dtype, mode, dynamics.batch_size)
        feed = drawn.feed(mode, dtype, dynamics.batch_size)
        self.run = Run(
            loss,
            problem,
            dynamics,
            model.n_data,
            starts,
            plan.seed,
            dtype,
            feed,
            plan.first_chain,
            unequal,
            frame,
        )
        self.warmup = WarmUp(
            tuned,
            plan.warmup,
            plan.automatic_warmup,
            plan.chains,
            stride_of(plan.warmup, self.run.block_steps),
            dtype,
            plan.warmup_limit,
            sampler is not None,
        )
        self._retune = (
            None if sampler is None else retuner(drawn, self.run, sampler, plan.seed, unequal)
        )
        self.collection: Collection | None = None

    @property
    def tuned(self) -> Tuned:
        return self.warmup.tuned

    @property
    def thin(self) -> int:
        """Steps between draws; where draws are window means, warm-up may have tuned the window
        anew.
        """
        dynamics = self.tuned.dynamics
        return dynamics.window + dynamics.gap if dynamics.window > 1 else self.plan.thin

    @property
    def steps(self) -> int:
        """Steps taken, over all chains."""
        return sum(chain.step for chain in self.run.chains)

    def warm_up(self, report: Callable[[int], None], pause: Pause | None = None) -> bool:
        """Go on to the end of the warm-up; False if the user interrupted it."""
        if not warm_up(self.run, self.warmup, self._retune, report, pause):
            return False
        if self.collection is None:
            self.collection = self.new_collection()
        return True

    def collect(self, report: Callable[[int], None], pause: Pause | None = None) -> bool:
        """Go on to the last draw; False if the user interrupted it."""
        collection, plan = self.collection, self.plan
        assert collection is not None
        stride = collection.stride
        return self.run.advance(
            plan.draws * self.thin // stride,
            stride,
            collection.receive,
            report,
            start=self.warmup.taken,
            pause=pause,
        )

    def state(self) -> dict[str, PyTree]:
        """All arrays that change while it runs, as a tree."""
        chains = {str(chain.number): chain.state() for chain in self.run.chains}
        state: dict[str, PyTree] = {"chains": chains, "warmup": self.warmup.state()}
        return (
            state if self.collection is None else {**state, "collection": self.collection.state()}
        )

    def restore(self, state: Mapping[str, PyTree]) -> None:
        """Go on from `state`."""
        for chain in self.run.chains:
            chain.restore(state["chains"][str(chain.number)])
        self.warmup.restore(state["warmup"])
        if "collection" in state:
            self.collection = self.new_collection()
            self.collection.restore(state["collection"])

    def new_collection(self) -> Collection:
        """Where what comes after warm-up goes."""
        plan = self.plan
        return Collection(
            self.tuned.dynamics, self.model.dim, self.thin, plan.draws, plan.chains, plan.keep
        )
