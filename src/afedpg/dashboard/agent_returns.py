"""The return of each agent over the run, in a bounded number of points; for federations small enough to tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.dashboard.buckets import rounded
from afedpg.dashboard.tail import Rows

MOST_AGENTS = 24  # curves that can be told apart: eight colours, each in three dashes
CAPACITY = 24  # there are this many to twice as many points per agent
Array = NDArray[np.float64]


class AgentReturns:
    """Means over `width` neighbouring steps of the server. With more agents than MOST_AGENTS nothing is kept."""

    def __init__(self) -> None:
        self.width = 1
        self._agents: list[int] | None = []  # by column
        self._steps = 0
        self._sums: Array = np.zeros((0, MOST_AGENTS))  # [bucket, agent]
        self._counts: Array = np.zeros((0, MOST_AGENTS))

    def add(self, rows: Rows) -> None:
        if self._agents is None or not len(rows["agent"]):
            return
        agents = rows["agent"].astype(np.int64)
        self._agents += [agent for agent in np.unique(agents).tolist() if agent not in self._agents]
        if len(self._agents) > MOST_AGENTS:
            self._agents = None
            return
        step = rows["iteration"].astype(np.int64)
        self._steps = max(self._steps, int(step.max()) + 1)
        while self._steps > 2 * CAPACITY * self.width:
            self._merge()
        more = np.zeros((-(-self._steps // self.width) - len(self._sums), MOST_AGENTS))
        self._sums, self._counts = np.concatenate([self._sums, more]), np.concatenate([self._counts, more])
        told = np.isfinite(rows["mean_return"])
        order = np.argsort(self._agents)
        column = order[np.searchsorted(self._agents, agents, sorter=order)]
        place = (step[told] // self.width, column[told])
        np.add.at(self._sums, place, rows["mean_return"][told])
        np.add.at(self._counts, place, 1)

    def _merge(self) -> None:
        starts = np.arange(0, len(self._sums), 2)
        if len(starts):
            self._sums, self._counts = np.add.reduceat(self._sums, starts), np.add.reduceat(self._counts, starts)
        self.width *= 2

    def points(self) -> dict[str, Any]:
        """The last step of each bucket, the agents, and a row of returns per agent; None where an agent sent none."""
        agents = sorted(self._agents or ())
        ends = np.minimum((np.arange(len(self._sums)) + 1) * self.width, self._steps)
        with np.errstate(invalid="ignore"):
            means = self._sums / self._counts
        columns = [(self._agents or []).index(agent) for agent in agents]
        returns = [rounded(means[:, column]) for column in columns]
        return {"iteration": ends.tolist() if agents else [], "agent": agents, "returns": returns}
