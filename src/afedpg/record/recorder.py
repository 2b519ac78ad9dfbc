"""A run folder while it is being written: journal, run.db, checkpoints, TensorBoard, policy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.config import Config
from afedpg.messages import Evaluation, Outcome
from afedpg.record import checkpoint, tensors
from afedpg.record.agreement import SETTINGS, settings_of
from afedpg.record.database import GIVEN_UP, Database, read_evaluations
from afedpg.record.disk import write_error
from afedpg.record.folder import RunFolder, claim
from afedpg.record.journal import Journal
from afedpg.record.lock import RunLock
from afedpg.record.tensorboard import TensorBoard
from afedpg.record.windows import window_of

Contents = tuple[dict[str, NDArray[Any]], dict[str, str]]  # of a policy file: tensors and metadata


@dataclass(frozen=True)
class Position:
    """Where a resumed run goes on."""

    gradients: int = 0
    samples: int = 0
    sequence: int = 0  # of the next event
    reached: int = 0  # gradients of the server, where the journal brings it past `gradients`
    given_up: int = 0  # rows of run.db that are missing with the user's word


class Recorder:
    """Takes the folder's lock, unless given it. Rows and events past `position` are of a lost future, and go."""

    def __init__(
        self, folder: RunFolder, config: Config, position: Position | None = None, lock: RunLock | None = None
    ) -> None:
        at = position or Position()
        self.folder = folder
        self._config = config.record
        self._lock = lock or folder.lock()
        self._checkpointed_at = time.monotonic()
        self._checkpointed_bytes = 0
        try:
            self._settings = settings_of(folder.config())  # as run.toml has them, whatever this machine makes of them
            self.journal = Journal(folder.journal, at.sequence, keep_all=config.record.keep_reports)
            self._live = config.engine != "virtual"  # needs its journal to go on; virtual time computes again
            self.database = Database(folder.database, self._journalled if self._live else None)
            self.database.rewind(at.gradients, at.sequence, at.reached)
            if at.given_up:
                self.database.note(GIVEN_UP, str(at.given_up))
            self.database.note("state", "interrupted")  # until it says otherwise
            self.tensorboard = TensorBoard(folder.path, at.samples, window_of(config))
            self._show_again(at.gradients)
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def new(
        cls, path: Path, config: Config, files: Mapping[str, str] = MappingProxyType({}), numbered: bool = False
    ) -> Recorder:
        """Of a run folder that it makes; the lock is held from before its first file on. As of `folder.claim`."""
        lock = claim(path, config, files, numbered)
        return cls(RunFolder(lock.run), config, lock=lock)

    def record(self, outcome: Outcome, iteration: int, seconds: float, sequence: int | None = None) -> None:
        """What an event of the journal did; the newest, unless its number is given."""
        sequence = self.journal.next_sequence - 1 if sequence is None else sequence
        if outcome.arrivals:
            self.database.add_arrivals(outcome.arrivals, seconds)
            self.tensorboard.add_arrivals(outcome.arrivals)
        at = (sequence, seconds, iteration)
        if outcome.waits is not None:
            self.database.add_event("waits", *at, outcome.waits)
        if outcome.unused is not None:
            self.database.add_event("unused", *at, *outcome.unused)
        if outcome.suspicion is not None:
            self.database.add_event("suspicion", *at, *outcome.suspicion)
        if outcome.rejected is not None:
            self.database.add_event("rejected", *at, outcome.rejected.agent_id, outcome.rejected.reason)

    def evaluated(
        self, evaluations: Sequence[Evaluation], iteration: int, gradients: int, samples: int, seconds: float
    ) -> None:
        for evaluation in evaluations:
            self.database.add_evaluation(evaluation, iteration, gradients, samples, seconds)
            self.tensorboard.add_evaluation(evaluation, samples)

    def _show_again(self, gradients: int) -> None:
        """TensorBoard has dropped the evaluations since the checkpoint; those that run.db kept go there again."""
        rows = read_evaluations(self.folder.database)
        for row in np.flatnonzero(rows["gradients"] > gradients):
            evaluation = Evaluation(rows["kind"][row], rows["mean"][row], environment=rows["environment"][row])
            self.tensorboard.add_evaluation(evaluation, rows["samples"][row])

    def checkpoint_due(self) -> bool:
        waited = time.monotonic() - self._checkpointed_at
        return waited > self._config.checkpoint_seconds or self.journal_full()

    def journal_full(self) -> bool:
        """Only a checkpoint lets segments be written over again."""
        written = self.journal.bytes_written - self._checkpointed_bytes
        return written > self._config.journal_mib * 2**20

    def checkpoint(self, tree: checkpoint.Tree) -> None:
        """Checkpoints are named after the first event they do not contain."""
        sequence = self._journalled() if self._live else self.journal.next_sequence
        self.database.sync()  # a checkpoint must not outlive its rows
        tree = {**tree, "sequence": sequence, SETTINGS: self._settings}
        kept = checkpoint.save(self.folder.checkpoints, sequence, tree, self._config.keep_checkpoints)
        self.journal.forget(kept[0])
        self._checkpointed_at = time.monotonic()
        self._checkpointed_bytes = self.journal.bytes_written

    def _journalled(self) -> int:
        """How many events are on the disk: all of them."""
        self.journal.sync()
        return self.journal.next_sequence

    def write_policies(self, last: Contents, best: Contents | None) -> None:
        self._write_policy(self.folder.policy, last)
        if best is not None:
            self._write_policy(self.folder.best, best)
        else:  # one of a future that was given up
            self.folder.best.unlink(missing_ok=True)

    def _write_policy(self, file: Path, contents: Contents) -> None:
        beside = Path(f"{file}.writing")
        try:
            tensors.write(beside, *contents)
            beside.rename(file)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise write_error(error, file, self.folder.path) from error

    def close(self, finished: bool) -> None:
        """Whatever of it fails, the rest is closed and the lock released."""
        with contextlib.ExitStack() as everything:  # last in, first out, whatever fails on the way
            everything.callback(self._lock.release)
            everything.callback(self.tensorboard.close)
            everything.callback(self.journal.close)
            everything.callback(self.database.close)
            if finished:
                self.database.note("state", "finished")
