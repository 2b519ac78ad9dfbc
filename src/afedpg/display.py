"""What `train` shows while it runs: a live line on a terminal, a plain line now and then elsewhere, on stderr."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from afedpg.config import Config
from afedpg.engine.training import Cost
from afedpg.messages import Arrival, Vector

REFRESH_SECONDS = 0.1
PLAIN_SECONDS = 10.0
WINDOW = 100  # gradients over which return and delay are averaged


class Display:
    def __init__(self, config: Config, quiet: bool = False) -> None:
        self._config = config
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._live: Progress | None = None
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._delays: deque[int] = deque(maxlen=WINDOW)
        self._steps = 0
        self._started = self._shown = time.monotonic()
        self._first: int | None = None  # gradient, of this process

    def __enter__(self) -> Display:
        if self._console.is_terminal and not self._quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._live = Progress(*columns, console=self._console, auto_refresh=False)
            self._bar = self._live.add_task(self._config.task, total=self._config.gradients)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.refresh()
            self._live.stop()

    def announce(self, cost: Cost) -> None:
        """One line of what the run will take."""
        config = self._config
        self._say(
            f"{config.task}, {config.method}, {config.agents} agents, {cost.parameters} parameters, {cost.gradients} "
            f"gradients; up to {_size(cost.memory)} of memory and {_size(cost.disk)} of disk"
        )

    def warn(self, text: str) -> None:
        self._say(f"warning: {text}")

    def arrived(self, arrival: Arrival, seconds: float, theta: Vector) -> None:
        if self._first is None:
            self._first = arrival.gradient - 1
        self._delays.append(arrival.delay)
        self._steps += arrival.stats.steps
        if (value := arrival.stats.mean_return) is not None:
            self._returns.append(value)
        now = time.monotonic()
        if now - self._shown < (PLAIN_SECONDS if self._live is None else REFRESH_SECONDS):
            return
        self._shown = now
        text = self._describe(arrival, now)
        if self._live is not None:
            self._live.update(self._bar, completed=arrival.gradient, description=text, refresh=True)
        else:
            rate = (arrival.gradient - self._first) / (now - self._started)
            left = (self._config.gradients - arrival.gradient) / rate
            self._say(f"{arrival.gradient}/{self._config.gradients}  {text}  about {left:.0f} s left")

    def _describe(self, arrival: Arrival, now: float) -> str:
        mean = f"return {sum(self._returns) / len(self._returns):.4g}  " if self._returns else ""
        delay = sum(self._delays) / len(self._delays)
        rate = self._steps / (now - self._started)
        return f"{mean}iteration {arrival.iteration + 1}  delay {delay:.1f}  {rate:,.0f} steps/s"

    def _say(self, text: str) -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._live.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
