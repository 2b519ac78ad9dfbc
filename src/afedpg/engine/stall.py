"""A live run in which everything is refused: said in the log, and ended once most agents cannot get through."""

from __future__ import annotations

import logging
import time
from collections import Counter

from afedpg.engine.process import DeadEnd
from afedpg.messages import Rejected

MOST_REFUSALS = 10  # of an agent, with no report accepted from anybody: what is refused stays refused
SAY_SECONDS = 30.0  # without a gradient until the log says so; every time doubled
_log = logging.getLogger("afedpg")


class Stall:
    """Counts refusals since a report was last accepted.

    One agent alone never ends a run, or any of them could: it takes more than half of the agents that it was made for.
    """

    def __init__(self, agents: int) -> None:
        self._agents = agents
        self._refused: Counter[int] = Counter()
        self._since = time.monotonic()
        self._patience = SAY_SECONDS
        self._last = ""

    def accepted(self) -> None:
        self._refused.clear()
        self._since, self._patience = time.monotonic(), SAY_SECONDS

    def refused(self, rejected: Rejected) -> None:
        """Raises DeadEnd once there is no way on."""
        self._refused[rejected.agent_id] += 1
        self._last = f"the last of agent {rejected.agent_id}: {rejected.reason}"
        stuck = sum(count >= MOST_REFUSALS for count in self._refused.values())
        if 2 * stuck > self._agents:
            raise DeadEnd(f"{self._refused.total()} reports in a row of {stuck} agents refused, {self._last}")

    def say(self, now: float) -> None:
        if self._refused and now - self._since > self._patience:
            self._patience *= 2
            seconds, count = now - self._since, self._refused.total()
            _log.warning("nothing was accepted for %.0f s, %d reports refused, %s", seconds, count, self._last)
