"""A run's curves as TensorBoard and other trackers show them: means over windows of arrivals, against samples.

A curve of 100,000 points costs more to write than a small run, and shows no more.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from afedpg.config import Config
from afedpg.messages import Arrival, Evaluation

POINTS = 2000  # per curve, over the whole run


def window_of(config: Config) -> int:
    """Applied gradients per point."""
    return max(1, config.gradients // POINTS)


def evaluation_tag(evaluation: Evaluation) -> str:
    where = f"/{evaluation.environment}" if evaluation.environment else ""
    return f"return/evaluation/{evaluation.kind}{where}"


class Windows:
    """One point per `every` applied gradients; with `agents`, also one per `every` gradients of each agent."""

    def __init__(self, samples: int = 0, every: int = 1, agents: bool = False) -> None:
        self.samples, self.every, self._agents = samples, every, agents
        self._open: dict[str, list[Any]] = {}  # by agent, "" for all: arrivals, and by tag the sum and how many

    def add(self, arrival: Arrival) -> dict[str, float]:
        """The means of the windows that are now full, by tag."""
        stats = arrival.stats
        self.samples = arrival.samples
        here = self._window("")
        self._note(here[1], "delay", arrival.delay)
        self._note(here[1], "gradient_norm", arrival.gradient_norm)
        self._note(here[1], "step_length", arrival.step_length)
        if stats.returns:
            self._note(here[1], "return/training", stats.mean_return)
        full = self._close("") if here[0] >= self.every else {}
        if self._agents:
            agent = str(arrival.agent)
            here = self._window(agent)
            self._note(here[1], f"agent_delay/{agent}", arrival.delay)
            if stats.returns:
                self._note(here[1], f"agent_return/{agent}", stats.mean_return)
            if here[0] >= self.every:
                full |= self._close(agent)
        return full

    def rest(self) -> dict[str, float]:
        """The means of the windows that are not full, which end here."""
        return {tag: mean for window in list(self._open) for tag, mean in self._close(window).items()}

    def _window(self, name: str) -> list[Any]:
        """With one more arrival."""
        here = self._open.get(name)
        if here is None:
            here = self._open[name] = [0, {}]
        here[0] += 1
        return here

    def _note(self, sums: dict[str, list[float]], tag: str, value: Any) -> None:
        entry = sums.get(tag)
        if entry is None:
            sums[tag] = [value, 1]
        else:
            entry[0] += value
            entry[1] += 1

    def _close(self, window: str) -> dict[str, float]:
        return {tag: total / count for tag, (total, count) in self._open.pop(window)[1].items()}

    def to_tree(self) -> dict[str, Any]:
        return deepcopy(self._open)

    def from_tree(self, tree: dict[str, Any]) -> None:
        self._open = tree
