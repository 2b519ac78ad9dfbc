"""run.db: what happened, one row each, in SQLite. Others read it while the run goes on.

Rows gather in memory and are committed together, at most a second or 2,000 rows late; what a crash takes is written
again when the run is resumed, because `rewind` goes back to the checkpoint that the run resumes from.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import AfedpgError
from afedpg.messages import Arrival, Evaluation
from afedpg.record.disk import disk_full, sync_folder, write_error

EVENTS = "events"  # note: how many the journal held, on the disk, when run.db was last committed
GIVEN_UP = "given_up"  # note: rows of arrivals that are missing with the user's word
COMMIT_ROWS = 2000
COMMIT_SECONDS = 1.0
_NO_ROOM = 1 << 16  # bytes; below, an error of SQLite's shared memory file is a full disk too
_EVENT = {"sequence": "INTEGER PRIMARY KEY", "seconds": "REAL", "iteration": "INTEGER", "agent": "INTEGER"}
_TABLES: dict[str, dict[str, str]] = {
    "arrivals": {
        "gradient": "INTEGER PRIMARY KEY", "iteration": "INTEGER", "agent": "INTEGER", "task_id": "TEXT",
        "version": "INTEGER", "delay": "INTEGER", "alpha": "REAL", "eta": "REAL", "seconds": "REAL",
        "steps": "INTEGER", "episodes": "INTEGER", "mean_return": "REAL", "gradient_norm": "REAL",
        "step_length": "REAL", "lookahead_length": "REAL", "bytes_up": "INTEGER", "bytes_down": "INTEGER",
        "samples": "INTEGER",
    },
    "episodes": {
        "gradient": "INTEGER", "iteration": "INTEGER", "agent": "INTEGER", "seconds": "REAL",
        "return": "REAL", "length": "INTEGER",
    },
    "evaluations": {
        "iteration": "INTEGER", "gradients": "INTEGER", "samples": "INTEGER", "seconds": "REAL", "kind": "TEXT",
        "environment": "TEXT", "mean": "REAL", "std": "REAL", "low": "REAL", "high": "REAL", "episodes": "INTEGER",
    },
    "rejected": _EVENT | {"reason": "TEXT"},
    "unused": _EVENT | {"reason": "TEXT"},  # reports that were believed, and that the aggregator did not use
    "suspicion": _EVENT | {"value": "REAL"},  # how far the agent was from the others after that report
    "waits": _EVENT,  # fedpg: reports that came in and wait until their round, the server step `iteration`, is closed
    "notes": {"key": "TEXT PRIMARY KEY", "value": "TEXT"},
}  # fmt: skip
_EXTRA = {"evaluations": ", UNIQUE (gradients, kind, environment)"}
_DTYPES = {"INTEGER": np.int64, "REAL": np.float64, "TEXT": object}


def _plain(value: Any) -> Any:
    return value.item()


for _scalar in (np.int64, np.int32, np.float64, np.float32):  # SQLite would store these as their bytes, or not at all
    sqlite3.register_adapter(_scalar, _plain)


class Database:
    """Writes run.db. Rows with a key that is already there replace it: a resumed run says the same again.

    `journalled`, asked before every commit, says how many events are on the disk: run.db never tells of any other.
    """

    def __init__(self, path: Path, journalled: Callable[[], int] | None = None) -> None:
        self._path = path
        self._journalled = journalled
        self._rows: dict[str, list[Sequence[Any]]] = {table: [] for table in _TABLES}
        self._waiting = 0
        self._committed_at = time.monotonic()
        with self._errors():
            self._connection = sqlite3.connect(path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            for table, columns in _TABLES.items():
                body = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({body}{_EXTRA.get(table, '')})")
            self._connection.execute("CREATE INDEX IF NOT EXISTS episodes_gradient ON episodes (gradient)")
            self._connection.execute("CREATE INDEX IF NOT EXISTS waits_iteration ON waits (iteration)")
            if not _counts_samples(self._connection):
                self._add_samples()

    def add_arrivals(self, arrivals: Iterable[Arrival], seconds: float) -> None:
        """The gradients that one event applied, and the episodes that ended in their rollouts."""
        rows, episodes = self._rows["arrivals"], self._rows["episodes"]
        for a in arrivals:
            stats, (epoch, counter) = a.stats, a.task_id
            returns = stats.returns
            rows.append((
                a.gradient, a.iteration, a.agent, f"{epoch}-{counter}", a.version, a.delay, a.alpha, a.eta, seconds,
                stats.steps, len(returns), stats.mean_return, a.gradient_norm, a.step_length, a.lookahead_length,
                a.bytes_up, a.bytes_down, a.samples,
            ))  # fmt: skip
            for value, length in zip_longest(returns, stats.lengths[: len(returns)], fillvalue=0):  # 0: not told
                episodes.append((a.gradient, a.iteration, a.agent, seconds, value, length))
            self._waiting += 1 + len(returns)
        self._commit_when_due()

    def add_evaluation(
        self, evaluation: Evaluation, iteration: int, gradients: int, samples: int, seconds: float
    ) -> None:
        """theta as it was after so many server steps, applied gradients and environment steps."""
        e = evaluation
        measured = (e.kind, e.environment, e.mean, e.std, e.low, e.high, e.episodes)
        self._add("evaluations", (iteration, gradients, samples, seconds, *measured))

    def add_event(self, table: str, sequence: int, seconds: float, iteration: int, agent: int, *more: Any) -> None:
        """To rejected, unused, suspicion or waits; `sequence` is the event's number in the journal."""
        self._add(table, (sequence, seconds, iteration, agent, *more))

    def note(self, key: str, value: str) -> None:
        """One fact about the run as a whole, such as ("state", "finished"); the last value stands."""
        self._add("notes", (key, value))

    def commit(self) -> None:
        """Readers see everything added so far. After an error the rows are still here, and can be committed later."""
        self._committed_at = time.monotonic()
        if not self._waiting:
            return
        if self._journalled is not None:
            self._rows["notes"].append((EVENTS, str(self._journalled())))
        with self._errors(), self._transaction():
            for table, rows in self._rows.items():
                if rows:
                    places = ", ".join("?" * len(_TABLES[table]))
                    self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", rows)
        for rows in self._rows.values():
            rows.clear()
        self._waiting = 0

    def sync(self) -> None:
        """Commits, and returns when all of it is on the disk."""
        self.commit()
        log = Path(f"{self._path}-wal")  # SQLite itself waits for the disk only when it empties this file
        try:
            with (log if log.exists() else self._path).open("rb") as stream:
                os.fsync(stream.fileno())
            sync_folder(self._path.parent)
        except OSError as error:
            raise write_error(error, self._path, self._path.parent) from error

    def rewind(self, gradients: int, sequence: int, reached: int = 0) -> None:
        """Removes what came after the checkpoint with so many applied gradients and that next sequence number.

        A journal that brings the server further, to `reached` gradients, tells again what arrived on the way, but not
        how good theta was: those evaluations stay.
        """
        self.commit()
        with self._errors(), self._transaction():
            for table in ("arrivals", "episodes"):
                self._connection.execute(f"DELETE FROM {table} WHERE gradient > ?", (gradients,))
            self._connection.execute("DELETE FROM evaluations WHERE gradients > ?", (max(gradients, reached),))
            for table in ("rejected", "unused", "suspicion", "waits"):
                self._connection.execute(f"DELETE FROM {table} WHERE sequence >= ?", (sequence,))
            self._connection.execute("UPDATE notes SET value = ? WHERE key = ?", (str(sequence), EVENTS))

    def close(self) -> None:
        try:
            self.commit()
        finally:
            self._connection.close()

    def _add_samples(self) -> None:
        """To a run.db that is older than this column: what was dropped in it is not known any more."""
        with self._transaction():
            self._connection.execute("ALTER TABLE arrivals ADD COLUMN samples INTEGER")
            rows = self._connection.execute("SELECT steps, gradient FROM arrivals ORDER BY gradient").fetchall()
            totals = accumulate(steps for steps, _ in rows)
            pairs = [(total, gradient) for total, (_, gradient) in zip(totals, rows, strict=True)]
            self._connection.executemany("UPDATE arrivals SET samples = ? WHERE gradient = ?", pairs)

    def _add(self, table: str, row: Sequence[Any]) -> None:
        self._rows[table].append(row)
        self._waiting += 1
        self._commit_when_due()

    def _commit_when_due(self) -> None:
        if self._waiting >= COMMIT_ROWS or time.monotonic() - self._committed_at > COMMIT_SECONDS:
            self.commit()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extension, which says where it happened
            no_room = code == sqlite3.SQLITE_IOERR and shutil.disk_usage(self._path.parent).free < _NO_ROOM
            if code == sqlite3.SQLITE_FULL or no_room:
                raise disk_full(self._path, self._path.parent) from error
            raise AfedpgError(f"{self._path}: {error}") from error


def read_arrivals(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of `arrivals`; NaN where there is no value, as mean_return of a rollout without an episode's end."""
    with reading(path) as connection:
        known = _counts_samples(connection)
    rows = read_table(path, "arrivals", "gradient", () if known else ("samples",))
    return rows if known else {**rows, "samples": rows["steps"].cumsum()}


def read_evaluations(path: Path) -> dict[str, NDArray[Any]]:
    return read_table(path, "evaluations", "gradients, rowid")


def evaluation_of(rows: Mapping[str, NDArray[Any]], row: int) -> Evaluation:
    """From a row of run.db, where what there is no saying of is NaN."""
    low, high = (None if np.isnan(rows[end][row]) else float(rows[end][row]) for end in ("low", "high"))
    return Evaluation(
        rows["kind"][row], float(rows["mean"][row]), float(rows["std"][row]), low, high,
        int(rows["episodes"][row]), rows["environment"][row],
    )  # fmt: skip


def _counts_samples(connection: sqlite3.Connection) -> bool:
    """Whether this run.db has the column; it came in 0.2.0."""
    return "samples" in {column[1] for column in connection.execute("PRAGMA table_info(arrivals)")}


def read_table(path: Path, table: str, order: str = "rowid", without: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """All of a table, column by column; safe while the run goes on."""
    columns = {name: kind for name, kind in _TABLES[table].items() if name not in without}
    names = ", ".join(f'"{name}"' for name in columns)
    fields = np.dtype([(name, _DTYPES[kind.split()[0]]) for name, kind in columns.items()])
    with reading(path) as connection:
        rows = np.fromiter(connection.execute(f"SELECT {names} FROM {table} ORDER BY {order}"), fields)
    return {name: np.ascontiguousarray(rows[name]) for name in columns}


def read_notes(path: Path) -> dict[str, str]:
    with reading(path) as connection:
        return dict(connection.execute("SELECT key, value FROM notes"))


def read_last(path: Path) -> tuple[int, float]:
    """Applied gradients so far, and the seconds of the newest."""
    with reading(path) as connection:
        row = connection.execute("SELECT gradient, seconds FROM arrivals ORDER BY gradient DESC LIMIT 1").fetchone()
    try:
        return (int(row[0]), float(row[1])) if row else (0, 0.0)
    except (TypeError, ValueError) as error:  # SQLite stores anything anywhere
        raise AfedpgError(f"cannot read {path}: no number where `arrivals` has one: {error}") from error


def is_damage(error: AfedpgError) -> bool:
    """Whether a file could not be read because it is no database, or no longer one."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def read_counts(path: Path) -> dict[int, tuple[int, int, int]]:
    """Of every agent: its applied gradients, its reports that were refused, and those that were not used."""
    count = "SELECT agent, COUNT(*) FROM {} GROUP BY agent"
    with reading(path) as connection:
        tables = [dict(connection.execute(count.format(table))) for table in ("arrivals", "rejected", "unused")]
    applied, refused, unused = tables
    agents = applied.keys() | refused.keys() | unused.keys()
    return {agent: (applied.get(agent, 0), refused.get(agent, 0), unused.get(agent, 0)) for agent in agents}


def read_unused(path: Path) -> int:
    """How many reports were believed and not used."""
    with reading(path) as connection:
        known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'unused'").fetchone()  # not in 0.1.0
        return int(connection.execute("SELECT COUNT(*) FROM unused").fetchone()[0]) if known else 0


@dataclass(frozen=True)
class Totals:
    """A run's arrivals in a few numbers."""

    samples: int
    seconds: float  # of the newest arrival
    mean_delay: float
    max_delay: int
    bytes_up: int
    bytes_down: int


def read_totals(path: Path) -> Totals | None:
    """None before the first arrival. Summed by SQLite: a run of days is not loaded to be added up."""
    sums = "SELECT {}, MAX(seconds), AVG(delay), MAX(delay), SUM(bytes_up), SUM(bytes_down) FROM arrivals"
    with reading(path) as connection:
        samples = "MAX(samples)" if _counts_samples(connection) else "SUM(steps)"
        row = connection.execute(sums.format(samples)).fetchone()
    return None if row[0] is None else Totals(*row)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Read-only: looking at a run never changes it, and nobody who writes it waits."""
    # Without a write-ahead log nobody writes; SQLite would leave an empty one behind in looking for it.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise AfedpgError(f"cannot read {path}: {error}") from error
