"""What `train`, `resume` and `server` show of a run while it goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from afedpg.config import Config
from afedpg.engine.cost import Cost
from afedpg.messages import Arrival, Rejected, Vector
from afedpg.record.returns import LateReturns
from afedpg.terminal.text import Look, Progress, Rate

WINDOW = 100  # gradients over which the delay is averaged
HISTORY = 256  # points of the sparkline, at most


class Display:
    """Given to a run as its `on_arrival`: it is called with every gradient, and hears of refused reports."""

    def __init__(self, config: Config, quiet: bool = False) -> None:
        self._config = config
        self._progress = Progress(self._look, quiet)
        self._returns = LateReturns(config.agents)
        self._delays: deque[int] = deque(maxlen=WINDOW)
        self._history = _History()
        self._gradients = self._steps = self._rejected = 0
        self._rate = Rate(time.monotonic())

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def announce(self, cost: Cost) -> None:
        """One line of what the run will take; from here on it is shown."""
        config, going_on = self._config, f"{cost.done} of " if cost.done else ""
        self._progress.say(
            f"{config.task}, {config.method}, {config.agents} agents, {cost.parameters} parameters, "
            f"{going_on}{cost.gradients} gradients{' done' if cost.done else ''}; "
            f"about {_size(cost.memory)} of memory, up to {_size(cost.disk)} of disk"
        )
        if cost.objective:
            self._progress.say(f"agents differ; optimizes {cost.objective}")
        self._gradients = cost.done
        self._rate = Rate(time.monotonic())
        self._progress.start()

    def warn(self, text: str) -> None:
        self._progress.say(f"warning: {text}")

    def __call__(self, arrival: Arrival, seconds: float, theta: Vector) -> None:
        self._gradients = arrival.gradient
        self._delays.append(arrival.delay)
        self._steps += arrival.stats.steps
        if (value := arrival.stats.mean_return) is not None:
            self._history.add(value)
        self._returns.add(arrival)
        self._progress.moved()

    def rejected(self, rejected: Rejected) -> None:
        self._rejected += 1
        self._progress.moved()

    def _look(self) -> Look:
        """Asked by the thread that draws: it copies what the run may change meanwhile."""
        config, mean, delay = self._config, self._returns.mean(), _mean(list(self._delays))
        facts: tuple[str, ...] = (
            f"return {mean:.4g}" if mean is not None else "no episode has ended yet",
            f"{self._rejected:,} rejected" if self._rejected else "",
            f"delay {delay:.1f}" if delay is not None else "",
            f"{self._rate.add(time.monotonic(), self._steps):,.0f} steps/s",
        )
        if delay is None and not self._rejected:
            facts = ("waiting for the first gradient",)
        return Look(
            label=f"{config.task} {config.method} x{config.agents} seed {config.seed}",
            count=f"{self._gradients}/{config.gradients}",
            done=self._gradients,
            total=config.gradients,
            facts=tuple(fact for fact in facts if fact),
            history=tuple(self._history.values),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


class _History:
    """A whole run in at most HISTORY points of equally many values; whenever they are full, each two become one."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self._each, self._sum, self._count = 1, 0.0, 0

    def add(self, value: float) -> None:
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._each:
            return
        self.values.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self.values) == HISTORY:
            self.values = [(a + b) / 2 for a, b in zip(self.values[::2], self.values[1::2], strict=True)]
            self._each *= 2


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
