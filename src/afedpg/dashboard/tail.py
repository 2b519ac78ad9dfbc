"""The rows of a run.db that are new since the last look, read in short transactions that no writer waits for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from afedpg.errors import AfedpgError
from afedpg.printable import of_peer
from afedpg.record.database import reading
from afedpg.record.returns import finite

CHUNK = 10_000  # rows read at once: a long run arrives in pieces, and the page draws the first while it waits
MEASURED = ("mean_return", "gradient_norm", "step_length", "lookahead_length")  # may be unknown, or infinite
COLUMNS = (
    "gradient", "iteration", "agent", "version", "delay", "seconds", "steps", "mean_return", "gradient_norm",
    "step_length", "lookahead_length", "bytes_up", "bytes_down",
)  # fmt: skip
ALWAYS = [place for place, name in enumerate(COLUMNS) if name not in MEASURED]
LARGEST = 2.0**62
MOST_SITES, LONGEST_NAME = 1000, 100  # shown one by one; characters of a site's name
_ARRIVALS = f"SELECT {', '.join(COLUMNS)} FROM arrivals WHERE gradient > ? ORDER BY gradient LIMIT {CHUNK}"
_LAST = f"SELECT {', '.join(COLUMNS)} FROM arrivals WHERE gradient = ?"
_REJECTED = f"""SELECT sequence, seconds, iteration, agent, reason FROM rejected
                WHERE sequence > ? ORDER BY sequence LIMIT {CHUNK}"""
_EVALUATIONS = f"""SELECT rowid, iteration, gradients, samples, seconds, kind, environment, mean, low, high
                   FROM evaluations WHERE rowid > ? ORDER BY rowid LIMIT {CHUNK}"""
_UNUSED = "SELECT agent, count(*), max(sequence) FROM unused WHERE sequence > ? GROUP BY agent"
_SUSPICION = "SELECT agent, value, max(sequence) FROM suspicion WHERE sequence > ? GROUP BY agent"  # each one's newest
_WAITS = "SELECT iteration, agent, seconds FROM waits WHERE iteration BETWEEN ? AND ?"

Rows = dict[str, NDArray[np.float64]]
Waits = dict[tuple[int, int], float]  # (iteration, agent) -> when that report came in


class Rejection(NamedTuple):
    """Validated by `_checked`, as everything is that is read."""

    sequence: int
    seconds: float
    iteration: int
    agent: int
    reason: str


class Evaluated(NamedTuple):
    row: int
    iteration: int
    gradients: int
    samples: int
    seconds: float
    kind: str
    environment: str
    mean: float | None
    low: float | None
    high: float | None


def theta_returns(evaluations: Iterable[Evaluated]) -> list[tuple[Any, ...]]:
    """(iteration, gradients, samples, seconds, kind, mean, low, high) of theta each time and in each kind.

    Where agents have environments of their own, their mean, which has no interval: low and high are None. So is what is
    infinite, for which JSON has no word.
    """
    together: dict[tuple[int, str], list[Evaluated]] = {}
    for evaluation in evaluations:
        together.setdefault((evaluation.gradients, evaluation.kind), []).append(evaluation)
    found: list[tuple[Any, ...]] = []
    for same in together.values():
        means = [evaluation.mean for evaluation in same if evaluation.mean is not None]
        mean = sum(means) / len(means) if means else None
        interval = (same[0].low, same[0].high) if len(same) == 1 else (None, None)
        found.append((*same[-1][1:6], *map(finite, (mean, *interval))))
    return found


def site_returns(evaluations: Iterable[Evaluated]) -> list[tuple[Any, ...]]:
    """(site, kind, mean, low, high) of the newest evaluation, where agents have environments of their own."""
    known = [evaluation for evaluation in evaluations if evaluation.environment]
    newest = max((evaluation.gradients for evaluation in known), default=0)
    return [(e.environment[:LONGEST_NAME], e.kind, *map(finite, e[7:])) for e in known if e.gradients == newest][
        :MOST_SITES
    ]


class _Dropped(NamedTuple):
    agent: int
    times: int
    sequence: int


class _Judged(NamedTuple):
    agent: int
    value: float
    sequence: int


class _Wait(NamedTuple):
    iteration: int
    agent: int
    seconds: float


@dataclass(frozen=True)
class News:
    arrivals: Rows
    rejected: list[Rejection]
    evaluations: list[Evaluated]
    waits: dict[int, float]  # agent -> when its report came in, of the round that is open
    unused: dict[int, int]  # agent -> contributions that the aggregator dropped
    suspicion: dict[int, float]  # agent -> how far it is from the others, where the aggregator judges
    finished: bool
    status: Status
    more: bool  # there are further rows: look again
    afresh: bool  # everything read before is void


@dataclass
class Tail:
    """Where reading goes on. A run that went back to a checkpoint, or another one in its place, is read afresh."""

    path: Path
    _inode: tuple[int, int] | None = None
    _last: tuple[Any, ...] | None = None  # the newest arrival, as read
    _sequence: int = -1
    _evaluation: int = 0
    _dropped: int = -1  # the newest sequence among the unused
    _judged: int = -1  # and among the suspicions
    _fresh: bool = field(default=True, init=False)

    def read(self) -> News:
        """Raises AfedpgError where there is no run.db to read yet."""
        with reading(self.path) as connection:
            connection.execute("BEGIN")  # one state of the run, for all tables
            afresh = self._fresh = self._changed(connection) or self._fresh
            if afresh:
                self._last, self._sequence, self._evaluation, self._dropped, self._judged = None, -1, 0, -1, -1
            # All before anything is noted: what cannot be read is not skipped, but said, and read again.
            rows = connection.execute(_ARRIVALS, (self._last[0] if self._last else 0,)).fetchall()
            arrivals = columns(rows)
            rejected = [_checked(Rejection, row) for row in connection.execute(_REJECTED, (self._sequence,))]
            evaluations = [_checked(Evaluated, row) for row in connection.execute(_EVALUATIONS, (self._evaluation,))]
            unused = _newer(connection, "unused", _UNUSED, _Dropped, self._dropped)
            judged = _newer(connection, "suspicion", _SUSPICION, _Judged, self._judged)
            last = rows[-1] if rows else self._last
            opened = last[1] + 1 if last else 0  # the step that is made next
            waits = {agent: at for (_, agent), at in _waits(connection, opened, opened).items()}
            notes = dict(connection.execute("SELECT key, value FROM notes"))
            status = status_of(notes)
        self._fresh, self._last = False, last
        self._sequence = rejected[-1].sequence if rejected else self._sequence
        self._evaluation = evaluations[-1].row if evaluations else self._evaluation
        self._dropped = max((dropped.sequence for dropped in unused), default=self._dropped)
        self._judged = max((entry.sequence for entry in judged), default=self._judged)
        more = CHUNK in (len(rows), len(rejected), len(evaluations))
        finished = notes.get("state") == "finished"
        dropped = {entry.agent: entry.times for entry in unused}
        suspicion = {entry.agent: entry.value for entry in judged}
        return News(arrivals, rejected, evaluations, waits, dropped, suspicion, finished, status, more, afresh)

    def _changed(self, connection: sqlite3.Connection) -> bool:
        stat = self.path.stat()
        before, self._inode = self._inode, (stat.st_dev, stat.st_ino)
        if before is not None and before != self._inode:
            return True
        return self._last is not None and connection.execute(_LAST, (self._last[0],)).fetchone() != self._last


def columns(rows: list[tuple[Any, ...]]) -> Rows:
    """Column by column; NaN where there is no value."""
    table = np.array(rows, np.float64).reshape(-1, len(COLUMNS))
    if not (np.abs(table[:, ALWAYS]) < LARGEST).all():
        raise ValueError(f"run.db: `arrivals` lacks a number that every row has, or one is beyond {LARGEST:g}")
    return {name: np.ascontiguousarray(table[:, place]) for place, name in enumerate(COLUMNS)}


def read_window(path: Path, first: int, last: int) -> tuple[Rows, Waits]:
    """The arrivals of those gradients, both included, and when those came in that had to wait."""
    query = f"SELECT {', '.join(COLUMNS)} FROM arrivals WHERE gradient BETWEEN ? AND ? ORDER BY gradient"
    with reading(path) as connection:
        connection.execute("BEGIN")
        rows = columns(connection.execute(query, (first, last)).fetchall())
        steps = rows["iteration"] if len(rows["iteration"]) else np.zeros(1)
        return rows, _waits(connection, int(steps[0]), int(steps[-1]) + 1)


def _has(connection: sqlite3.Connection, table: str) -> bool:
    """Whether the table is there: earlier versions had fewer."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _waits(connection: sqlite3.Connection, first: int, last: int) -> Waits:
    if not _has(connection, "waits"):
        return {}
    rows = (_checked(_Wait, row) for row in connection.execute(_WAITS, (first, last)))
    return {(iteration, agent): seconds for iteration, agent, seconds in rows}


_Row = TypeVar("_Row", bound=NamedTuple)


def _newer(connection: sqlite3.Connection, table: str, query: str, kind: type[_Row], after: int) -> list[_Row]:
    return [_checked(kind, row) for row in connection.execute(query, (after,))] if _has(connection, table) else []


def _checked(kind: type[_Row], row: tuple[Any, ...]) -> _Row:
    """SQLite stores anything anywhere: a run.db that somebody else made may hold text for a number, or infinity."""
    for value, (name, wanted) in zip(row, _fields(kind), strict=True):
        if not isinstance(value, wanted) or (wanted is float and not isfinite(value)):
            raise ValueError(f"run.db: {value!r} is no `{name}`")
    return kind._make(row)


@cache
def _fields(kind: type[NamedTuple]) -> list[tuple[str, Any]]:
    return list(get_type_hints(kind).items())


@dataclass(frozen=True)
class Told:
    """What a live server said of an agent."""

    name: str
    state: str
    seconds_per_gradient: float
    rejected: int
    last_seen: float  # seconds before the server said so


@dataclass(frozen=True)
class Status:
    """What a live server last said of itself; nothing in virtual time."""

    time: float = 0.0
    seconds: float = 0.0
    rate: float = 0.0  # gradients per second
    agents: dict[int, Told] = field(default_factory=dict)


def status_of(notes: dict[str, str]) -> Status:
    if "status" not in notes:
        return Status()
    try:
        told = json.loads(notes["status"], parse_constant=_finite, parse_float=_finite)
        agents = {
            int(entry["agent"]): Told(
                of_peer(str(entry["name"]), 80), of_peer(str(entry["state"]), 80), float(entry["seconds_per_gradient"]),
                int(entry["rejected"]), float(entry["last_seen"]),
            )
            for entry in told["agents"]
        }  # fmt: skip
        return Status(float(told["time"]), float(told["seconds"]), float(told["gradients_per_second"]), agents)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AfedpgError(f"the status in run.db is none that a server writes: {error!r}") from error


def _finite(text: str) -> float:
    if not isfinite(float(text)):
        raise ValueError(f"{text} is no number")
    return float(text)
