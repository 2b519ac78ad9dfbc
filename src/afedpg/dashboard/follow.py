"""One run as the page shows it: its aggregates, brought up to date when asked, and what changed since a cursor."""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from threading import Lock
from typing import Any

from afedpg.dashboard.agent_returns import AgentReturns
from afedpg.dashboard.buckets import Concurrency, Curves
from afedpg.dashboard.catalog import Entry, videos_of
from afedpg.dashboard.members import Members
from afedpg.dashboard.tail import (
    Evaluated,
    Rejection,
    Rows,
    Status,
    Tail,
    Waits,
    columns,
    read_window,
    site_returns,
    theta_returns,
)
from afedpg.dashboard.timeline import Open, timeline
from afedpg.errors import AfedpgError

READ_SECONDS = 0.25  # run.db is read at most this often, whoever asks
PATIENCE_SECONDS = 0.15  # of one request; what is not read by then comes with the next
MOST_REASONS = 50
NEWEST = 100  # refused reports shown one by one
MOST_EVALUATIONS = 2000
MOST_BEFORE = 20_000  # rows before a window in which the beginnings of its work are looked for
NOTHING: tuple[Rows, Waits] = (columns([]), {})
Evaluations = dict[tuple[int, str, str], Evaluated]  # by gradients, kind and environment


class Follower:
    """Thread-safe. A cursor is `reading.revision.merged.complete`, which only this class takes apart."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._lock = Lock()
        self._tail = Tail(entry.folder.database)
        self._readings = int(time.time() * 1000)  # another server's cursors are void
        self._read_at = 0.0
        self._videos: list[str] = []
        self._clear()

    def _clear(self) -> None:
        """Nothing is known of the run."""
        self._readings += 1
        self._revision = 0
        self._curves = Curves()
        self._concurrency = Concurrency()
        self._members = Members()
        self._agent_returns = AgentReturns()
        self._evaluations: Evaluations = {}
        self._rejected: deque[Rejection] = deque(maxlen=NEWEST)
        self._reasons: Counter[str] = Counter()
        self._refused = 0
        self._status = Status()
        self._waits: dict[int, float] = {}
        self._state = ""
        self._seconds = 0.0
        self._more = False
        self._error = ""

    def changes(self, cursor: str) -> dict[str, Any]:
        """Everything, or what is new since `cursor`; with `more` where it is worth asking again at once."""
        with self._lock:
            self._catch_up()
            reading, revision, merged, complete = _parse(cursor)
            now = f"{self._readings}.{self._revision}.{self._curves.merged}.{self._curves.complete}"
            if (reading, revision) == (self._readings, self._revision):
                return {"cursor": now}
            known = reading == self._readings and merged == self._curves.merged
            start = min(complete, self._curves.complete) if known else 0
            return {"cursor": now, "more": self._more, "from": start, **self._picture(start)}

    def timeline(self, last: int | None, count: int) -> dict[str, Any]:
        """Who worked when, over `count` gradients up to the `last` of them, or up to now."""
        with self._lock:
            self._catch_up()
            config, newest = self.entry.config, self._curves.gradient
            last = newest if last is None else max(1, min(last, newest))
            first = max(1, last - count + 1)
            before = min(MOST_BEFORE, len(self._members.delays) + 2 * config.agents)
            rows, waits = read_window(self.entry.folder.database, first - before, last) if newest else NOTHING
            still = Open(self._now(), {agent: at for agent, (_, at) in self._out().items()}, self._waits)
            found = timeline(rows, waits, first, still if last == newest else None)
            marks = [(r.agent, r.seconds) for r in self._rejected if found["begin"] <= r.seconds <= found["until"]]
            return {**found, "first": first, "last": last, "newest": newest, "rejected": marks}

    def _catch_up(self) -> None:
        if time.monotonic() - self._read_at < READ_SECONDS and not self._more:
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        try:
            while self._read() and time.monotonic() < deadline:
                pass
            error = ""
        except (AfedpgError, OSError, ValueError, OverflowError) as trouble:  # not a run.db of ours, or not yet
            error = str(trouble)
            self._more = False
        videos = [path.name for path in videos_of(self.entry.folder)]
        if (error, videos) != (self._error, self._videos):
            self._error, self._videos = error, videos
            self._revision += 1
        self._read_at = time.monotonic()

    def _read(self) -> bool:
        written = self.entry.folder.is_written()  # before what it says of itself
        news = self._tail.read()
        if news.afresh:
            self._clear()
        state = "finished" if news.finished else "running" if written else "interrupted"
        rows = len(news.arrivals["gradient"]) or news.rejected or news.evaluations or news.unused or news.suspicion
        said = (state, news.status, news.waits, news.more)
        if rows or news.afresh or said != (self._state, self._status, self._waits, self._more):
            self._revision += 1
        self._state, self._status, self._waits, self._more = said
        self._add(news.arrivals)
        for evaluation in news.evaluations:
            self._evaluations[evaluation.gradients, evaluation.kind, evaluation.environment] = evaluation
            if len(self._evaluations) > MOST_EVALUATIONS:
                self._evaluations = _thinned(self._evaluations)
        self._members.unused.update(news.unused)
        self._members.suspicion.update(news.suspicion)
        for rejection in news.rejected:
            self._refused += 1
            self._members.refused[rejection.agent] += 1
            reason = _reason(rejection.reason)
            if reason in self._reasons or len(self._reasons) < MOST_REASONS:
                self._reasons[reason] += 1
            self._rejected.appendleft(rejection)
        return news.more

    def _add(self, rows: Rows) -> None:
        self._curves.add(rows)
        self._concurrency.add(rows)
        self._members.add(rows)
        self._agent_returns.add(rows)
        if len(rows["seconds"]):
            self._seconds = float(rows["seconds"][-1])

    def _now(self) -> float:
        """On the run's clock."""
        return max(self._seconds, self._status.seconds, *self._waits.values())

    def _out(self) -> dict[int, tuple[int, float]]:
        return self._members.out(self.entry.config, self._status, self._now(), self._curves)

    def _picture(self, start: int) -> dict[str, Any]:
        config = self.entry.config
        newest = [(r.seconds, r.iteration, r.agent, r.reason[:300]) for r in self._rejected]
        return {
            "state": self._state, "error": self._error, "gradients": self._curves.gradient,
            "total": config.gradients, "seconds": self._now(), "rate": self._status.rate or None,
            "totals": self._curves.totals, "curve": self._curves.points(start),
            "concurrency": self._concurrency.points([step for step, _ in self._out().values()]),
            "delays": self._members.histogram(), "agent_returns": self._agent_returns.points(),
            "agents": self._members.table(config, self._status, self._waits, self._state, self._now()),
            "evaluations": theta_returns(self._evaluations.values()),
            "sites": site_returns(self._evaluations.values()),
            "rejected": {"count": self._refused, "reasons": self._reasons.most_common(), "newest": newest},
            "unused": self._members.unused.total(), "videos": self._videos,
        }  # fmt: skip


def _parse(cursor: str) -> tuple[int, int, int, int]:
    """A cursor that is none asks for everything."""
    match = re.fullmatch(r"(\d{1,16})\.(\d{1,16})\.(\d{1,9})\.(\d{1,9})", cursor, re.ASCII)
    if match is None:
        return (-1, -1, -1, 0)
    reading, revision, merged, complete = (int(part) for part in match.groups())
    return reading, revision, merged, complete


def _thinned(evaluations: Evaluations) -> Evaluations:
    """Those of every second time that theta was evaluated, the newest among them."""
    kept = set(sorted({gradients for gradients, _, _ in evaluations}, reverse=True)[::2])
    return {key: evaluation for key, evaluation in evaluations.items() if key[0] in kept}


def _reason(text: str) -> str:
    """Without its numbers: 'norm 1.3e+12 is above the bound 1e+09' is one reason, however often."""
    return re.sub(r"[-+]?\d[\d.]*(e[-+]?\d+)?", "#", text[:300])
