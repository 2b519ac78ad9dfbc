"""The agents of a run: what each has done, from its rows, and what it is doing.

How that is known depends on the engine. A live server (local, ray, grpc) writes down once a second who is connected and
when each was last heard. In virtual time everybody works except those whom the timing model says otherwise of.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.config import Config
from afedpg.dashboard.buckets import Curves, rounded
from afedpg.dashboard.tail import Rows, Status, Told
from afedpg.record.ending import ended_as

MOST_SHOWN = 500  # rows of the page's table
MOST_KNOWN = 100_000
LONGEST_DELAY = 1 << 16  # delays beyond are counted there
BINS = 48
ABSENT = ("away", "left", "not yet", "silent")  # states of agents that are not at work
STALE_SECONDS = 10.0  # a status this old says nothing about who is there


class Members:
    """From rows, one for each of an agent's gradients."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # agent -> column
        self._sums: dict[str, NDArray[np.float64]] = {}
        self.delays: NDArray[np.int64] = np.zeros(1, np.int64)  # how often each delay occurred
        self.refused: Counter[int] = Counter()  # reports, by agent
        self.unused: Counter[int] = Counter()  # contributions that the aggregator dropped, by agent
        self.suspicion: dict[int, float] = {}  # the newest of every agent, where the aggregator judges
        self._resize(16)

    def _resize(self, size: int) -> None:
        names = ("rows", "delay", "delay_high", "returns", "return", "first", "last", "iteration", "up", "down")
        for name in names:
            old = self._sums.get(name, np.zeros(0))
            self._sums[name] = np.append(old, np.zeros(size - len(old)))

    def add(self, rows: Rows) -> None:
        if not len(rows["agent"]):
            return
        delay = np.clip(rows["delay"], 0, LONGEST_DELAY)
        counts = np.bincount(delay.astype(np.int64), minlength=len(self.delays))
        counts[: len(self.delays)] += self.delays
        self.delays = counts
        place, known = self._place(rows["agent"].astype(np.int64))
        rows = {name: column[known] for name, column in rows.items()}
        sums, place = self._sums, place[known]
        fresh = place[sums["rows"][place] == 0]
        np.add.at(sums["rows"], place, 1)
        np.add.at(sums["delay"], place, rows["delay"])
        np.maximum.at(sums["delay_high"], place, rows["delay"])
        told = ~np.isnan(rows["mean_return"])
        np.add.at(sums["returns"], place[told], 1)
        np.add.at(sums["return"], place[told], rows["mean_return"][told])
        np.add.at(sums["up"], place, rows["bytes_up"])
        np.add.at(sums["down"], place, rows["bytes_down"])
        sums["first"][fresh] = np.inf
        np.minimum.at(sums["first"], place, rows["seconds"])
        np.maximum.at(sums["last"], place, rows["seconds"])
        np.maximum.at(sums["iteration"], place, rows["iteration"] + 1)

    def _place(self, agents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        names, inverse = np.unique(agents, return_inverse=True)
        for name in names.tolist():
            if name not in self._places and len(self._places) < MOST_KNOWN:
                self._places[name] = len(self._places)
        if len(self._places) > len(self._sums["rows"]):
            self._resize(2 * len(self._places))
        places = np.array([self._places.get(name, -1) for name in names.tolist()], np.int64)[inverse]
        return places, places >= 0

    def histogram(self) -> dict[str, Any]:
        """Counts of equally wide ranges of delays, one delay each where there are few; and the mean of all."""
        longest = int(np.flatnonzero(self.delays).max(initial=0))
        width = -(-(longest + 1) // BINS)
        starts = np.arange(0, longest + 1, width)
        rows = int(self.delays.sum())
        mean = float(self.delays @ np.arange(len(self.delays))) / rows if rows else None
        counts = np.add.reduceat(self.delays, starts).tolist()
        return {"delay": starts.tolist(), "count": counts, "width": [width], "rows": rows, "mean": mean}

    def table(
        self, config: Config, status: Status, waits: dict[int, float], state: str, seconds: float
    ) -> dict[str, Any]:
        """Columns, an entry per agent, by number; agents that have sent nothing yet included."""
        told = status.agents
        everyone = sorted(self._everyone(config, status))
        shown = everyone[:MOST_SHOWN]
        place = np.array([self._places.get(agent, -1) for agent in shown], np.int64)
        sums = {name: np.where(place >= 0, column[place], 0.0) for name, column in self._sums.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            speed = (sums["last"] - sums["first"]) / (sums["rows"] - 1)
            columns = {
                "gradients": rounded(sums["rows"]),
                "share": rounded(sums["rows"] / max(1, int(self.delays.sum()))),
                "delay": rounded(sums["delay"] / sums["rows"]),
                "delay_high": rounded(sums["delay_high"]), "return": rounded(sums["return"] / sums["returns"]),
                "seconds_per_gradient": rounded(np.where(sums["rows"] > 1, speed, np.nan)),
                "bytes_up": rounded(sums["up"]), "bytes_down": rounded(sums["down"]),
                "last_seen": rounded(np.where(sums["rows"] > 0, seconds - sums["last"], np.nan)),
            }  # fmt: skip
        age = max(0.0, time.time() - status.time) if state == "running" else 0.0
        states = [_state(agent, config, told.get(agent), seconds, age) for agent in shown]
        if state == "running":
            states = ["waiting" if agent in waits else s for agent, s in zip(shown, states, strict=True)]
        else:
            done = zip(states, sums["rows"], strict=True)
            states = [ended_as(state == "finished", last, rows) for last, rows in done]
        for row, agent in enumerate(shown):
            if agent in told:  # a server knows better: it measures from hand-out to arrival, and hears heartbeats
                columns["seconds_per_gradient"][row] = told[agent].seconds_per_gradient or None
                columns["last_seen"][row] = round(told[agent].last_seen + age, 1)
        names = [told[agent].name if agent in told else "" for agent in shown]
        rejected = [told[agent].rejected if agent in told else self.refused[agent] for agent in shown]
        return {
            "agent": shown, "name": names, "state": states, "rejected": rejected,
            "unused": [self.unused[agent] for agent in shown], "everyone": len(everyone),
            "suspicion": [self.suspicion.get(agent) for agent in shown], **columns,
        }  # fmt: skip

    def out(self, config: Config, status: Status, seconds: float, curves: Curves) -> dict[int, tuple[int, float]]:
        """Of every agent at work whose gradient has not come: the step and the time it was sent out at."""
        steps, last = self._sums["iteration"], self._sums["last"]
        found = {}
        for agent in self._everyone(config, status):
            if _state(agent, config, status.agents.get(agent), seconds, 0.0) in ABSENT:
                continue
            if agent in self._places:
                place = self._places[agent]
                found[agent] = (int(steps[place]), float(last[place]))
            elif agent < config.agents:  # since when one works who came to a live federation later, nobody wrote down
                joined = config.timing.late.get(str(agent), 0.0)
                found[agent] = (curves.steps_before(joined), joined)
        return found

    def _everyone(self, config: Config, status: Status) -> set[int]:
        expected = range(config.agents) if config.engine == "virtual" else ()
        return {*self._places, *status.agents, *expected}


def _state(agent: int, config: Config, told: Told | None, seconds: float, age: float) -> str:
    if config.engine != "virtual":
        return told.state if told is not None and age < STALE_SECONDS else "unknown"
    timing = config.timing
    if timing.late.get(str(agent), 0.0) > seconds:
        return "not yet"
    if timing.drop.get(str(agent), float("inf")) <= seconds:
        return "left"
    return "silent" if agent in timing.silent else "working"
