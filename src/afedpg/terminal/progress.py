"""What `train`, `resume` and `server` show of a run while it goes on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from afedpg.config import Config
from afedpg.engine.cost import Cost
from afedpg.messages import Arrival, Rejected, Vector
from afedpg.record.returns import History, LateReturns
from afedpg.terminal.text import Look, Progress, Rate

WINDOW = 100  # gradients over which the delay is averaged


class Display:
    """Given to a run as its `on_arrival`: it is called with every gradient, and hears of refused reports."""

    def __init__(
        self, config: Config, quiet: bool = False, plain_seconds: float | None = None, to_the_end: bool = False
    ) -> None:
        self._config = config
        self._progress = Progress(self._look, quiet, plain_seconds)
        self._to_the_end = to_the_end  # a last line even where one was just shown
        self._returns = LateReturns(config.agents)
        self._delays: deque[int] = deque(maxlen=WINDOW)
        self._history = History()
        self._gradients = self._steps = self._rejected = 0
        self._rate = Rate(time.monotonic())

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._to_the_end and raised[0] is None and self._gradients:
            self._progress.moved(last=True)
        self._progress.stop()

    def announce(self, cost: Cost) -> None:
        """One line of what the run will take; from here on it is shown."""
        config, going_on = self._config, f"{cost.done} of " if cost.done else ""
        self._progress.say(
            f"{config.task}, {config.method}, {config.agents} agents, {cost.parameters} parameters, "
            f"{going_on}{cost.gradients} gradients{' done' if cost.done else ''}; "
            f"about {_size(cost.memory)} of memory, up to {_size(cost.disk)} of disk"
        )
        if (open_at_end := cost.gradients % cost.batch) and not cost.done:
            batch, whole = cost.batch, cost.gradients + cost.batch - open_at_end
            self._progress.say(
                f"a server step takes {batch} gradients; the one that is open at the end is filled: {whole} or more"
            )
        if cost.objective:
            self._progress.say(f"agents differ; optimizes {cost.objective}")
        self._gradients = cost.done
        self._rate = Rate(time.monotonic())
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.say(text)

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")

    def __call__(self, arrival: Arrival, seconds: float, theta: Vector) -> None:
        self._gradients = arrival.gradient
        self._delays.append(arrival.delay)
        self._steps += arrival.stats.steps
        if (value := arrival.stats.mean_return) is not None:
            self._history.add(self._steps, value)
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
            history=tuple(value for _, value in list(self._history.points)),
        )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1000 and unit < 4:  # three digits: 1,010 MiB are 0.986 GiB, not 1.01e+03 MiB
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
