"""An engine at work, with what happens between its events: checkpoints, evaluations, the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.engine.process import DeadEnd, Interrupted, Interruption
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Evaluation, Statistics, Vector, Workload
from afedpg.record import checkpoint
from afedpg.runs.goals import Goals
from afedpg.server.state import to_tree


@dataclass(frozen=True)
class Result:
    theta: Vector  # what is delivered
    statistics: Statistics  # by which observations are scaled, and the like
    iteration: int
    gradients: int
    samples: int
    seconds: float  # virtual, in the virtual engine
    virtual: bool
    sha256: str  # of theta
    evaluations: tuple[Evaluation, ...]  # of the final theta
    out: Path | None


class Engine(Protocol):
    """What decides when agents and server meet."""

    @property
    def seconds(self) -> float: ...

    @property
    def consistent(self) -> bool:
        """Between events: only then may the run be stored."""

    def start(self) -> None: ...

    def run(self, finished: Callable[[], bool]) -> None: ...

    def to_tree(self) -> dict[str, Any]: ...

    def from_tree(self, tree: dict[str, Any]) -> None: ...


@dataclass
class Session:
    """The engine at work, with what happens between its events: checkpoints, evaluations, the end."""

    config: Config
    workload: Workload
    federation: Federation
    engine: Engine
    interruption: Interruption
    gradients: int  # where it ends
    evaluations: tuple[Evaluation, ...] = ()
    evaluated: int = 0  # gradients at the last evaluation

    def __post_init__(self) -> None:
        self.goals = Goals(self.config)

    def run(self, tree: dict[str, Any] | None) -> Result:
        """Whoever made the federation closes it."""
        if tree is None:
            self.engine.start()
            self._checkpoint()
        else:
            self.engine.from_tree(tree["engine"])
            self.evaluated = tree["evaluated"]
            self.goals.from_tree(tree, self.federation.server.gradients)
        try:
            self.engine.run(self._finished)
            self._settle()
            if self.federation.server.gradients > self.evaluated or not self.evaluations:
                self._evaluate()
            self._checkpoint()
            self.federation.finished = True
        except AfedpgError as error:
            if self.engine.consistent and not self.federation.open_round:  # else the last checkpoint stands
                self._checkpoint()
            raise self._with_hint(error) from error
        return self._result()

    def _finished(self) -> bool:
        """Asked between events."""
        server, recorder = self.federation.server, self.federation.recorder
        self.goals.note(self.federation.outcome.arrivals)  # first: what an interruption stores must know of them
        self.interruption.check()
        period = self.config.record.evaluate_every * self.config.agents * self.config.reports
        if period and server.gradients // period > self.evaluated // period:
            self._evaluate()
        # An open round's gradients make a checkpoint large: it waits for the end of the round while the journal allows.
        if (
            recorder is not None
            and recorder.checkpoint_due()
            and (not self.federation.open_round or recorder.journal_full())
        ):
            self._checkpoint()
        spent = self.federation.rule.spent(server.gradients, server.unused)
        return spent >= self.gradients or self.goals.met(self.engine.seconds)

    def _settle(self) -> None:
        """Takes in an evaluation that was begun beside the engine; here none is."""

    def _evaluate(self) -> None:
        server = self.federation.server
        evaluations = self.workload.evaluate(server.theta.astype(np.float32), server.statistics, server.iteration)
        self._note(evaluations, (server.iteration, server.gradients, server.samples, self.engine.seconds))

    def _note(self, evaluations: Sequence[Evaluation], where: tuple[int, int, int, float]) -> None:
        """What theta was worth at (iteration, gradients, samples, seconds)."""
        _, self.evaluated, _, _ = where
        self.evaluations = tuple(evaluations)
        self.goals.judge(self.evaluations)
        if self.federation.recorder is not None:
            self.federation.recorder.evaluated(self.evaluations, *where)

    def _checkpoint(self) -> None:
        server, recorder = self.federation.server, self.federation.recorder
        if recorder is None:
            return
        recorder.checkpoint({
            "server": to_tree(server),
            "engine": self.engine.to_tree(),
            "evaluated": self.evaluated,
            **self.goals.to_tree(),
        })  # fmt: skip
        recorder.write_policy(*self.workload.export(server.theta.astype(np.float32), server.statistics))

    def _with_hint(self, error: AfedpgError) -> AfedpgError:
        recorder, server = self.federation.recorder, self.federation.server
        if recorder is None or isinstance(error, ConfigError) or f"afedpg resume {recorder.folder.path}" in str(error):
            return error
        where = f"{error} after gradient {server.gradients} of {self.config.gradients}"
        if isinstance(error, DeadEnd):
            return DeadEnd(f"{where}; resuming would bring the same, start again with other settings")
        text = f"{where}; go on with: afedpg resume {recorder.folder.path}"
        return Interrupted(text) if isinstance(error, Interrupted) else AfedpgError(text)

    def _result(self) -> Result:
        server, recorder = self.federation.server, self.federation.recorder
        return Result(
            theta=server.theta,
            statistics=server.statistics,
            iteration=server.iteration,
            gradients=server.gradients,
            samples=server.samples,
            seconds=self.engine.seconds,
            virtual=self.config.engine == "virtual",
            sha256=checkpoint.theta_sha256(server.theta),
            evaluations=self.evaluations,
            out=None if recorder is None else recorder.folder.path,
        )
