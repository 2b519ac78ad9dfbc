"""A run in real time from its start, or from its checkpoint and its journal, to its result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from afedpg.config import Config
from afedpg.engine.federation import Federation, OnArrival
from afedpg.engine.live import ROUND_SECONDS, ROUND_TIMES, Drive, Keeper, LiveEngine, Transport, in_loop
from afedpg.engine.members import recall
from afedpg.engine.process import Interruption
from afedpg.engine.stall import Stall
from afedpg.engine.trace import TraceWriter
from afedpg.messages import Evaluation, Outcome, Restart, Workload
from afedpg.record import checkpoint
from afedpg.record import journal as journals
from afedpg.record.database import read_counts, read_notes
from afedpg.record.folder import RunFolder
from afedpg.record.loss import check_events, check_rows, never_written
from afedpg.record.recorder import Position, Recorder
from afedpg.runs.beginning import note_beginning
from afedpg.runs.best import Evaluated, best_in, better, later_evaluations, scaled_by
from afedpg.runs.parts import Own, parts_of, prepare, start_state
from afedpg.runs.requests import StoredRun
from afedpg.runs.result import Result
from afedpg.runs.session import Session
from afedpg.runs.stored import newest
from afedpg.server.admission import Limits
from afedpg.server.fold import step
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState

TRACE = "trace.csv"
_PATIENCE = (
    f"a round closes without agents that take {ROUND_TIMES:g} times as long as its slowest answer, and "
    f"{ROUND_SECONDS:g} s at least; --deadline SECONDS sets another time, 0 waits for ever"
)
_FOR_EVER = "a round waits for its slowest agent, however slow; --deadline SECONDS closes it without it"
_log = logging.getLogger("afedpg")


@dataclass
class LiveSession(Session):
    """Evaluations run beside the federation: agents do not wait for them."""

    _evaluator: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _pending: tuple[Evaluated, Future[list[Evaluation]]] | None = None

    def _finished(self) -> bool:
        if self._pending is not None and self._pending[1].done():
            self._settle()
        return super()._finished()

    def _evaluate(self) -> None:
        if not in_loop():  # the federation is over: nobody waits
            super()._evaluate()
        elif self._pending is None:
            here = self._here()
            future = self._evaluator.submit(self.workload.evaluate, here.theta, here.statistics, here.iteration)
            self._pending = (here, future)

    def _note(self, at: Evaluated, evaluations: Sequence[Evaluation]) -> None:
        super()._note(at, evaluations)
        if isinstance(self.engine, LiveEngine):
            self.engine.sites = [(each.environment, each.kind, each.mean) for each in evaluations if each.environment]

    def _settle(self) -> None:
        if self._pending is None:
            return
        (at, future), self._pending = self._pending, None
        self._note(at, future.result())  # only now is it made: what a checkpoint does not know of is made again


class Parts(NamedTuple):
    """A federation that is ready to be served."""

    config: Config
    own: Own
    workload: Workload
    federation: Federation
    tree: dict[str, Any] | None  # the checkpoint it goes on from
    seconds: float  # that earlier sessions took


def new_parts(config: Config, own: Own, on_arrival: OnArrival | None) -> Parts:
    workload, rule, server = prepare(config, own)
    federation = Federation(rule, server, None, on_arrival, Limits.of(config))
    return Parts(config, own, workload, federation, None, 0.0)


def keep_record(
    parts: Parts, out: Path | None, files: Mapping[str, str] = MappingProxyType({}), numbered: bool = False
) -> None:
    """Last before it starts: a run that cannot start leaves no folder behind. As of `Recorder.new`."""
    if out is not None:
        recorder = parts.federation.recorder = Recorder.new(out, parts.config, files, numbered)
        note_beginning(parts.config, recorder, parts.federation.server.theta)


def restored_parts(stored: StoredRun, config: Config) -> Parts:
    """The newest checkpoint and every later event of the journal: the bits the server had when it ended.

    Where the folder holds less than it tells of, nothing is changed, unless `accept_loss` says so.

    A new epoch begins: what was handed out before is void. It is on the disk before anything else happens, because an
    epoch that came twice could let an old report pass for a new one.
    """
    folder, warn, accept_loss = stored.folder, stored.warn, stored.accept_loss
    workload, rule = parts_of(config, stored.own)
    with ExitStack() as on_failure:
        lock = on_failure.enter_context(folder.lock())  # first: an old server may still be writing what is read here
        tree: dict[str, Any] | None = None
        start, gradients, samples = 0, 0, 0
        if checkpoint.names(folder.checkpoints):
            start, tree, server = newest(folder, rule, workload, warn)
            gradients, samples = server.gradients, server.samples
        else:
            server = start_state(config, rule, workload, folder)
        never = 0 if tree is None else never_written(tree, gradients, config.reports)
        given_up = check_rows(folder, gradients, never, accept_loss, warn)
        known = tree is not None and folder.database.exists()
        later = later_evaluations(folder.database, gradients) if known else []
        best = reduce(better, later, None if tree is None else best_in(tree))
        wanted = best if best in later else None  # its theta is in no checkpoint: the journal passes by it
        refolded = _fold_again(folder, config, rule, server, start, warn if accept_loss else None, wanted)
        end, reached = start + len(refolded.rows), refolded.server.gradients
        check_events(folder, end, reached, accept_loss, warn)
        if end == start > journals.end(folder.journal):
            warn(f"{folder.journal} ends before the checkpoint: theta is whole, its past cannot be replayed")
        position = Position(gradients, samples, end, reached, given_up)
        recorder = Recorder(folder, config, position, lock)
        federation = Federation(rule, refolded.server, recorder, stored.on_arrival, Limits.of(config))
        on_failure.callback(federation.close)
        for sequence, row in enumerate(refolded.rows, start):
            recorder.record(*row, sequence=sequence)
        seconds = max(refolded.seconds, tree["engine"]["seconds"] if tree else 0.0)  # no later event: the checkpoint's
        federation.apply(Restart(), seconds)
        recorder.journal.sync()
        on_failure.pop_all()
    if tree is not None:
        tree["looks"] = tree.get("looks", 0) + len(later)
        tree["best"] = tree.get("best") if refolded.best is None else refolded.best.to_tree()
    return Parts(config, stored.own, workload, federation, tree, seconds)


class _Refolded(NamedTuple):
    server: ServerState
    rows: list[tuple[Outcome, int, float]]  # what each event did, at which iteration and second, for run.db
    seconds: float  # of the last event
    best: Evaluated | None  # the one that was looked for, with its theta


def _fold_again(
    folder: RunFolder,
    config: Config,
    rule: ServerRule,
    server: ServerState,
    start: int,
    damaged: Callable[[str], None] | None,
    wanted: Evaluated | None,
) -> _Refolded:
    rows, seconds, found, limits = [], 0.0, None, Limits.of(config)
    for _, seconds, event in journals.read(folder.journal, start, damaged):
        server, outcome = step(rule, server, event, limits)
        rows.append((outcome._replace(tasks=[]), server.iteration, seconds))
        if wanted is not None and found is None and server.gradients == wanted.gradients:
            found = replace(wanted, theta=server.theta.astype(np.float32), statistics=scaled_by(config, server))
    return _Refolded(server, rows, seconds, found)


def run_live(
    parts: Parts,
    transport: Transport,
    interruption: Interruption,
    watchers: list[Callable[[], None]],
    keeper: Keeper | None = None,
    drive: Drive = asyncio.run,
) -> Result:
    """Serves the federation until it is done, and stores it whichever way it ends."""
    config, recorder = parts.config, parts.federation.recorder
    if parts.federation.rule.synchronous and not config.network.deadline:
        _log.warning(_PATIENCE if config.network.deadline is None else _FOR_EVER)
    trace = None if recorder is None else TraceWriter(recorder.folder.path / TRACE, parts.workload.cost)
    engine = LiveEngine(parts.federation, config.network, transport, trace, watchers, parts.seconds, keeper, drive)
    engine.stall = Stall(config.agents)
    if recorder is not None and parts.tree is not None:
        recorder.database.commit()
        path = recorder.folder.database
        engine.members = recall(read_notes(path).get("status", ""), read_counts(path))
    session = LiveSession(config, parts.workload, parts.federation, engine, interruption, config.gradients)
    try:
        return session.run(parts.tree)
    finally:
        session._evaluator.shutdown(wait=False, cancel_futures=True)
