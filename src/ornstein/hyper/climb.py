"""The loop of variational EM: a block of the chain at the current λ, a step of λ by what the block
says, re-tuning as λ moves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ornstein.compute.precision import width
from ornstein.engine.chain import Kept
from ornstein.engine.run import Pause, Run
from ornstein.errors import BudgetWarning, HyperparameterWarning
from ornstein.hyper.ascent import FEWEST_TURNS, Ascent, Block
from ornstein.hyper.coordinates import Coordinates
from ornstein.hyper.evidence import prior_pull
from ornstein.hyper.joint import JointGradient
from ornstein.hyper.tuning import FullTuning, Stage, Tuning
from ornstein.model.model import Model
from ornstein.posterior.archive import flattened, nested
from ornstein.posterior.portable import describe, rebuild
from ornstein.sampling.expected import require_chains
from ornstein.streams import Purpose, sequence
from ornstein.types import Array, PyTree

if TYPE_CHECKING:
    import pandas

DTYPE = "float32"

DRAWS, FIRST = 25, 5  # kept per chain and block, and thrown away first where the chain was re-tuned
# How far φ may move before the chain is re-tuned. A precision enters A only, and the law of a chain
# tuned for another A is right to the order of S/N; a scale of the likelihood enters C to the fourth
# power.
RETUNE_PRIOR, RETUNE_LIKELIHOOD = 0.1, 0.01
NOTHING_LEFT, MUCH_LARGER = 0.9, float(np.log(100.0))
# for a diagonal curvature, which cannot be measured again elsewhere for little
NOTHING_AT_ALL = 0.999
FARTHEST = float(np.log(1e10))


@dataclass
class Climb:
    """φ on its way to the evidence's maximum, with everything that moves along."""

    model: Model
    coordinates: Coordinates
    tuning: Tuning
    ascent: Ascent
    seed: int
    _joint: JointGradient
    stage: Stage | None = None
    stages: int = 0
    run: Run | None = None
    positions: Array | None = None  # θ of every chain at the end of the last block
    runaway: dict[int, str] = field(default_factory=dict)
    _tuned_at: Array | None = None

    @classmethod
    def begin(
        cls, model: Model, coordinates: Coordinates, tuning: Tuning, seed: int, *, newton: bool
    ) -> Climb:
        ascent = Ascent(coordinates.start.copy(), coordinates.positive, newton)
        return cls(model, coordinates, tuning, ascent, seed, JointGradient(model, coordinates))

    def to_the_top(
        self,
        tolerance: float,
        max_blocks: int,
        report: Callable[[Climb], None],
        pause: Pause | None = None,
    ) -> None:
        """Blocks until every coordinate is known to `tolerance`, or `max_blocks` of them; `pause`
        is taken between blocks.
        """
        while not self.ascent.settled(tolerance):
            if len(self.ascent.blocks) >= max_blocks:
                self._warn_unsettled(tolerance, max_blocks)
                break
            if pause is not None and pause.due():
                pause.take()
            moved = self._moved()
            if moved:
                self._retune()
            self._block(FIRST if moved else 0)
            self._watch_bounds()
            report(self)
        if pause is not None:
            pause.take()
        self._warn_runaway()

    def _moved(self) -> bool:
        if self._tuned_at is None:
            return True
        allowed = np.where(self._joint.moves_likelihood, RETUNE_LIKELIHOOD, RETUNE_PRIOR)
        return bool(np.any(np.abs(self.ascent.phi - self._tuned_at) > allowed))

    def _retune(self) -> None:
        self.stage = self.tuning.stage(self._here(), self.positions, self._stream(self.stages))
        if self._look_for_runaway(self.stage):
            self.stage = self.tuning.stage(self._here(), self.positions, self._stream(self.stages))
        self.stages += 1
        self._tuned_at = self.ascent.phi.copy()
        self.run = self._chains_of(self.stage)

    def _chains_of(self, stage: Stage) -> Run:
        with width(DTYPE):
            problem = self.model.problem(DTYPE, stage.centre, stage.dynamics.batch_size)
        seed = int(self._stream(self.stages, 1).generate_state(1)[0])
        return Run(
            self.model.loss, problem, stage.dynamics, self.model.n_data, stage.starts, seed, DTYPE
        )

    def _block(self, thrown_away: int) -> None:
        stage, run, phi = self.stage, self.run, self.ascent.phi
        assert stage is not None and run is not None
        here = self._here()
        with width(DTYPE):
            hyper = {
                name: jnp.asarray(value, DTYPE) for name, value in here.hyperparameters.items()
            }
        run.problem = run.problem._replace(hyperparameters=hyper)
        kept: list[list[Array]] = [[] for _ in run.chains]

        def receive(chain: int, values: Kept) -> None:
            kept[chain].append(values.positions)

        if not run.advance(thrown_away + DRAWS, stage.stride, receive):
            raise KeyboardInterrupt
        displacements = np.stack([np.concatenate(parts) for parts in kept])
        self.positions = stage.centre + displacements[:, -1]
        gradients, complete = self._joint.at(phi, stage.centre + displacements[:, thrown_away:])
        steps = (thrown_away + DRAWS) * stage.stride * len(run.chains)
        self.ascent.take(Block.of(phi, gradients, complete, steps))
        followed = self.tuning.follow(here, run, displacements[:, -1])
        if followed is not None:
            self.stage = replace(stage, dynamics=followed)

    def _look_for_runaway(self, stage: Stage) -> bool:
        """Hold what runs to infinity: the posterior is all prior there, and the evidence still
        rises a hundredfold further on.
        """
        if stage.curvature is None:
            return False
        ascent = self.ascent
        share, slope = prior_pull(self._here(), stage.curvature, self.coordinates, ascent.phi)
        rising = self.coordinates.positive & ~ascent.held & (slope > 0)
        full = isinstance(self.tuning, FullTuning)
        suspects = rising & (share > (NOTHING_LEFT if full else NOTHING_AT_ALL))
        others = ~ascent.held & ~suspects
        if not np.any(suspects) or np.any(ascent.turns[others] < FEWEST_TURNS):
            return False  # a noise scale still far off would make anything look like prior
        beyond = ascent.phi + MUCH_LARGER * suspects
        if isinstance(self.tuning, FullTuning):
            there = self.coordinates.model_at(self.model, beyond)
            suspects &= (
                prior_pull(there, self.tuning.curvature(there), self.coordinates, beyond)[1] > 0
            )
        self._hold(suspects, beyond, "infinity")
        return bool(np.any(suspects))

    def _watch_bounds(self) -> None:
        moved = self.ascent.phi - self.coordinates.start
        free = self.coordinates.positive & ~self.ascent.held
        self._hold(free & (moved > FARTHEST), self.ascent.phi, "infinity")
        self._hold(free & (moved < -FARTHEST), self.ascent.phi, "zero")

    def _hold(self, which: Array, at: Array, where: str) -> None:
        self.ascent.hold(which, at)
        self.runaway.update(dict.fromkeys(map(int, np.flatnonzero(which)), where))

    def _warn_runaway(self) -> None:
        for where in ("infinity", "zero"):
            names = [
                self.coordinates.names[index]
                for index, towards in self.runaway.items()
                if towards == where
            ]
            if names:
                reason = (
                    "the evidence grows without bound, so the data are best explained by no"
                    " effect at"
                    " all of the coefficients it governs (θ = 0). Drop those columns, group them"
                    " with others, or keep the precision fixed"
                    if where == "infinity"
                    else (
                        "the evidence grows without bound: a noise scale falls to zero where the"
                        " model fits every row exactly, a precision where its prior is in the way."
                        " Keep it fixed, or start nearer the value you expect"
                    )
                )
                shown = ", ".join(names[:6]) + (
                    f" and {len(names) - 6} more" if len(names) > 6 else ""
                )
                warnings.warn(
                    f"{shown} runs to {where}: {reason}. It is held at the value reported",
                    HyperparameterWarning,
                    stacklevel=4,
                )

    def _warn_unsettled(self, tolerance: float, max_blocks: int) -> None:
        worst = int(np.argmax(self.ascent.error()))
        warnings.warn(
            f"after max_blocks={max_blocks} blocks {self.coordinates.names[worst]} is known to"
            f" {self.ascent.error()[worst]:.2g} on its log scale, not to tolerance={tolerance:g},"
            " or is still moving: raise max_blocks or the tolerance, or start nearer",
            BudgetWarning,
            stacklevel=4,
        )

    def state(self) -> tuple[dict[str, object], dict[str, PyTree]]:
        """Between two blocks, all that is needed to go on: plain values, and a tree of arrays."""
        words: dict[str, object] = {
            "stages": self.stages,
            "runaway": {str(index): where for index, where in self.runaway.items()},
            "notes": self.tuning.notes,
        }
        tree: dict[str, PyTree] = {"ascent": self.ascent.state(), "tuning": self.tuning.state()}
        if self.stage is not None and self.run is not None and self.positions is not None:
            stage = self.stage
            arrays: dict[str, Array] = {}
            words["stage"] = {
                "dynamics": describe(stage.dynamics, arrays, "dynamics"),
                "stride": stage.stride,
            }
            tree["stage"] = {
                "centre": stage.centre,
                "starts": stage.starts,
                "positions": self.positions,
                "phi": self._tuned_at,
            }
            tree["stage"]["arrays"] = nested(arrays)
            tree["chains"] = {str(chain.number): chain.state() for chain in self.run.chains}
        return words, tree

    def restore(self, words: Mapping[str, Any], tree: Mapping[str, PyTree]) -> None:
        """Go on from `state`."""
        self.stages = words["stages"]
        self.runaway = {int(index): where for index, where in words["runaway"].items()}
        self.tuning.notes = dict(words["notes"])
        self.ascent.restore(tree["ascent"])
        self.tuning.restore(tree.get("tuning", {}))
        if "stage" in words:
            saved = tree["stage"]
            dynamics = rebuild(words["stage"]["dynamics"], flattened(saved["arrays"]))
            self.stage = Stage(
                dynamics, saved["centre"], saved["starts"], int(words["stage"]["stride"])
            )
            self.positions, self._tuned_at = saved["positions"], saved["phi"]
            self.run = self._chains_of(self.stage)
            require_chains(self.run, tree["chains"])
            for chain in self.run.chains:
                chain.restore(tree["chains"][str(chain.number)])

    def _here(self) -> Model:
        return self.coordinates.model_at(self.model, self.ascent.phi)

    def _stream(self, *purpose: int) -> np.random.SeedSequence:
        return sequence(self.seed, Purpose.CLIMB, *purpose)

    def trajectory(self) -> pandas.DataFrame:
        """One row per block: the steps of all chains so far and every hyperparameter on its own
        scale.
        """
        import pandas

        steps = np.cumsum([0, *(block.steps for block in self.ascent.blocks)])
        path = np.stack([*(block.phi for block in self.ascent.blocks), self.ascent.phi])
        table = pandas.DataFrame(
            self.coordinates.natural(path), columns=list(self.coordinates.names)
        )
        table.insert(0, "steps", steps)
        table.index.name = "block"
        return table
