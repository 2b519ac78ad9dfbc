"""An engine at work, with what happens between its events: checkpoints, evaluations, the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.engine.process import DeadEnd, Interrupted, Interruption
from afedpg.errors import AfedpgError, BrokenPart, ConfigError, FailedPart
from afedpg.messages import Evaluation, Workload
from afedpg.record import checkpoint
from afedpg.record.disk import to_copy
from afedpg.runs.best import Evaluated, best_in, better, scaled_by
from afedpg.runs.callbacks import Started, Watchers
from afedpg.runs.curve import Curve
from afedpg.runs.goals import Goals
from afedpg.runs.result import Result
from afedpg.server.state import to_tree


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
    best: Evaluated | None = None
    looks: int = 0  # evaluations so far
    stopped: str = ""  # what ended it early; an evaluation after the end does not

    def __post_init__(self) -> None:
        self.goals, self.curve = Goals(self.config), Curve()
        watching = self.federation.on_arrival
        self.watchers = watching if isinstance(watching, Watchers) else Watchers()

    def run(self, tree: dict[str, Any] | None) -> Result:
        """Whoever made the federation closes it."""
        if tree is not None:
            self._take_up(tree)
        result, memory = None, None
        try:
            self._begin(new=tree is None)
            self.engine.run(self._finished)
            self._settle()
            if self.federation.recorder is not None:
                memory = deepcopy(self._memory())  # of before the end: a longer run would make no evaluation here
            if self.federation.server.gradients > self.evaluated or not self.evaluations:
                self._evaluate()
            self._look_again()
            self._checkpoint(memory)
            self.federation.finished = True
            result = self._result()
        except AfedpgError as error:
            told = self._with_hint(self._store(error, memory))
            if told is error:
                raise
            raise told from error
        finally:
            self.watchers.ended(result)
        return result

    def _store(self, error: AfedpgError, memory: dict[str, Any] | None) -> AfedpgError:
        """The run as this error leaves it; returns what is to be told."""
        try:
            if self.engine.consistent and not self.federation.open_round:  # else the last checkpoint stands
                self._checkpoint(memory)
        except BrokenPart as broken:  # no checkpoint can hold it; a part that broke before is the cause
            return error if isinstance(error, BrokenPart) else broken
        return error

    def _take_up(self, tree: dict[str, Any]) -> None:
        self.engine.from_tree(tree["engine"])
        self.evaluated = tree["evaluated"]
        self.goals.from_tree(tree, self.federation.server.gradients)
        self.watchers.from_tree(tree.get("callbacks", {}))
        self.looks = tree.get("looks", 0)
        self.best = best_in(tree)

    def _begin(self, new: bool) -> None:
        server, recorder = self.federation.server, self.federation.recorder
        if new:
            self.engine.start()
        out = None if recorder is None else recorder.folder.path
        self.watchers.started(Started(self.config, out, server.gradients, server.samples))
        if new:
            self._checkpoint()

    def _finished(self) -> bool:
        """Asked between events."""
        federation = self.federation
        server, recorder, arrivals = federation.server, federation.recorder, federation.outcome.arrivals
        self.goals.note(arrivals)  # first: what an interruption stores must know of them
        if recorder is None:
            self.curve.note(arrivals)
        self.interruption.check()
        period = self.evaluation_period
        if period and server.gradients // period > self.evaluated // period:
            self._evaluate()
        # An open round's gradients make a checkpoint large: it waits for the end of the round while the journal allows.
        if (
            recorder is not None
            and recorder.checkpoint_due()
            and (not federation.open_round or recorder.journal_full())
        ):
            self._checkpoint()
        if federation.rule.spent(server.gradients, server.unused) >= self.gradients:
            return True
        self.stopped = self.watchers.stopped or self.goals.met(self.engine.seconds)
        return bool(self.stopped)

    @cached_property
    def evaluation_period(self) -> int:
        """In gradients; 0: only at the end."""
        return self.config.record.evaluate_every * self.config.agents * self.config.reports

    def _settle(self) -> None:
        """Takes in an evaluation that was begun beside the engine; here none is."""

    def _here(self) -> Evaluated:
        """theta as it is now, to be evaluated."""
        server = self.federation.server
        where = (server.iteration, server.gradients, server.samples, self.engine.seconds)
        return Evaluated(server.theta.astype(np.float32), scaled_by(self.config, server), *where)

    def _evaluate(self) -> None:
        here = self._here()
        self._note(here, self.workload.evaluate(here.theta, here.statistics, here.iteration))

    def _note(self, at: Evaluated, evaluations: Sequence[Evaluation]) -> None:
        """What theta was worth at that moment."""
        new, self.evaluated = at.gradients > self.evaluated, at.gradients  # a finished run may be looked at once more
        self.evaluations = tuple(evaluations)
        if self.federation.recorder is not None:
            where = (at.iteration, at.gradients, at.samples, at.seconds)
            self.federation.recorder.evaluated(self.evaluations, *where)
        if new:
            self.goals.judge(self.evaluations)
            at = replace(at, evaluations=self.evaluations)
            self.best, self.looks = better(self.best, at), self.looks + 1
            self.curve.judge(at)
            self.watchers.evaluated(at)

    def _look_again(self) -> None:
        """The best of several evaluations says more of its theta than is true: that theta plays other episodes."""
        best = self.best
        if best is not None and self.looks > 1 and not best.again and any(told.episodes for told in best.evaluations):
            again = self.workload.evaluate(best.theta, best.statistics, best.iteration, "second look")
            self.best = replace(best, again=tuple(again))

    def _memory(self) -> dict[str, Any]:
        """What goals and callbacks remember."""
        return {"callbacks": self.watchers.to_tree(), **self.goals.to_tree()}

    def _checkpoint(self, memory: dict[str, Any] | None = None) -> None:
        server, recorder = self.federation.server, self.federation.recorder
        if recorder is None:
            return
        recorder.checkpoint({
            "server": to_tree(server),
            "engine": self.engine.to_tree(),
            "evaluated": self.evaluated,
            "looks": self.looks,
            "best": None if self.best is None else self.best.to_tree(),
            **(self._memory() if memory is None else memory),
        })  # fmt: skip
        told = self.evaluations if self.evaluated == server.gradients else ()
        last = replace(self._here(), evaluations=told).export(self.workload, "last", self.looks)
        best = None if self.best is None else self.best.export(self.workload, "best", self.looks)
        recorder.write_policies(last, best)

    def _with_hint(self, error: AfedpgError) -> AfedpgError:
        recorder, server = self.federation.recorder, self.federation.server
        if recorder is None or isinstance(error, ConfigError) or to_copy("resume", recorder.folder.path) in str(error):
            return error
        after = f"after gradient {server.gradients} of {self.config.gradients}"
        where = f"{error} {after}" if isinstance(error, Interrupted) else f"{error} ({after})"
        if isinstance(error, DeadEnd):
            return DeadEnd(
                f"{where}; resuming would bring the same until its cause is mended, or start again with other settings"
            )
        if isinstance(error, BrokenPart):
            mend = "" if isinstance(error, FailedPart) else "correct its code, then "
            return type(error)(f"{where}; {mend}go on with: {to_copy('resume', recorder.folder.path)}")
        text = f"{where}; go on with: {to_copy('resume', recorder.folder.path)}"
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
            config=self.config,
            workload=self.workload,
            curve=self.curve,
            best=self.best,
            looks=self.looks,
            stopped=self.stopped,
        )
