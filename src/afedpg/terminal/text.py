"""Progress on stderr: two live lines on a terminal, a plain line now and then elsewhere.

The live lines are drawn by a thread of their own from what `look` answers, so they go on while a long gradient is
computed. The cursor stays visible and nothing else of the terminal is changed: however the process ends, there is
nothing to put right. rich is loaded for a terminal only.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live

from afedpg.printable import printable

REFRESHES_PER_SECOND = 4
PLAIN_SECONDS = 10.0
RATE_SECONDS = 60.0  # over which speed is measured: compiling at the start is soon forgotten
SHORTEST_BAR, LONGEST_BAR = 10, 60
SHORTEST_SPARK, LONGEST_SPARK = 8, 40
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
GAP = "  "


@dataclass(frozen=True)
class Look:
    """What there is to show at one moment; facts in the order of their weight: a narrow terminal drops the last."""

    label: str
    count: str  # "12/80 gradients"
    done: float
    total: float
    facts: tuple[str, ...] = ()
    history: Sequence[float] = ()  # drawn as a sparkline behind the first fact


class Rate:
    """Units per second over the newest RATE_SECONDS, of a total that only grows."""

    def __init__(self, now: float, start: float = 0.0) -> None:
        self._samples: deque[tuple[float, float]] = deque([(now, start)])

    def add(self, now: float, total: float) -> float:
        """Asked a few times per second at most."""
        samples = self._samples
        samples.append((now, total))
        while len(samples) > 3 and now - samples[2][0] > RATE_SECONDS and samples[2][1] == samples[1][1]:
            del samples[1]  # nothing moved there: a server may wait for days
        while len(samples) > 2 and now - samples[1][0] > RATE_SECONDS and total > samples[1][1]:
            samples.popleft()
        (then, before), (now, total) = samples[0], samples[-1]
        return (total - before) / (now - then) if now > then else 0.0


class Progress:
    """`start` when the work begins, or else the first `moved` does; `stop` at the end, whichever it is."""

    def __init__(self, look: Callable[[], Look], quiet: bool = False, plain_seconds: float | None = None) -> None:
        self._look = look
        self._quiet = quiet
        self._plain_seconds = PLAIN_SECONDS if plain_seconds is None else plain_seconds
        self._console: Console | None = None
        self._live: Live | None = None
        self._begun = False
        self._started = self._shown = time.monotonic()
        self._rate = Rate(self._shown)

    def start(self) -> None:
        self._begun = True
        self._started = self._shown = time.monotonic()
        self._rate = Rate(self._shown, self._look().done)
        if self._quiet or not is_terminal(sys.stderr):
            return
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, force_terminal=True)
        self._live = Live(console=self._console, get_renderable=self._frame, refresh_per_second=REFRESHES_PER_SECOND)
        self._live.start()
        self._console.show_cursor(True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """A line that stays, above the live ones."""
        if self._quiet:
            return
        if self._live is not None and self._console is not None:
            self._console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def moved(self, last: bool = False) -> None:
        """Something has changed: cheap enough for every gradient; `last` says it even if it is too soon."""
        if not self._begun:
            self.start()
        if self._live is not None or self._quiet:
            return
        now = time.monotonic()
        if now - self._shown >= self._plain_seconds or last:
            self._shown = now
            look = self._look()
            self.say(_join(look.count, _percent(look), *look.facts, self._time(now, look)))

    def _time(self, now: float, look: Look) -> str:
        """What is left, as far as anyone can know."""
        rate = self._rate.add(now, look.done)
        if look.done >= look.total:
            return f"in {clock(now - self._started)}"
        return f"{clock((look.total - look.done) / rate)} left" if rate > 0 else ""

    def _frame(self) -> _Frame:
        look = self._look()
        return _Frame(look, self._time(time.monotonic(), look))


@dataclass(frozen=True)
class _Frame:
    """Two lines that fit whatever width there is."""

    look: Look
    time: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width, blocks = options.max_width, ASCII_BLOCKS if options.ascii_only else BLOCKS
        yield self._first_line(width)
        if self.look.facts:
            yield Text(second_line(self.look, width, blocks), no_wrap=True, overflow="crop")

    def _first_line(self, width: int) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        label, numbers = first_line(self.look, self.time, width)
        taken = len(numbers) + len(GAP) + (len(label) + len(GAP) if label else 0)
        if width - taken < SHORTEST_BAR:
            return Text(numbers, no_wrap=True, overflow="crop")
        bar = ProgressBar(self.look.total, self.look.done, width=min(LONGEST_BAR, width - taken))
        row = Table.grid(padding=(0, len(GAP), 0, 0), pad_edge=False)
        cells: list[Any] = [Text(label, style="bold")] if label else []
        row.add_row(*cells, bar, Text(numbers))
        return row


def first_line(look: Look, time: str, width: int) -> tuple[str, str]:
    """The label, empty where there is no room for it and a bar, and the numbers behind the bar."""
    percent = _percent(look)
    numbers = next(
        (line for line in (_join(look.count, percent, time), _join(percent, time)) if len(line) <= width), percent
    )
    fits = len(look.label) + len(numbers) + 2 * len(GAP) + SHORTEST_BAR <= width
    return look.label if fits else "", numbers


def second_line(look: Look, width: int, blocks: str = BLOCKS) -> str:
    """As many facts as fit, and a sparkline in the room they leave."""
    facts: list[str] = []
    for fact in look.facts:
        if len(GAP.join([*facts, fact])) > width:
            break
        facts.append(fact)
    room = min(LONGEST_SPARK, width - len(GAP.join(facts)) - 1)
    if facts and room >= SHORTEST_SPARK and len(look.history) > 1:
        facts[0] += " " + sparkline(look.history, room, blocks)
    return GAP.join(facts)


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """At most `width` characters, each the mean of as many values; the lowest is the smallest block."""
    count = min(width, len(values))
    edges = [round(place * len(values) / count) for place in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    known = [mean for mean in means if math.isfinite(mean)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    step = (high - low) / (len(blocks) - 1) or 1.0
    return "".join(blocks[round((mean - low) / step)] if math.isfinite(mean) else " " for mean in means)


def clock(seconds: float) -> str:
    """0:42, 1:02:03, 3 d 4:00:00"""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02}"
    return (f"{days} d " if days else "") + f"{hour}:{minute:02}:{second:02}"


def _join(*parts: str) -> str:
    return GAP.join(part for part in parts if part)


def _percent(look: Look) -> str:
    return f"{math.floor(100 * look.done / look.total)}%" if look.total else ""


def is_terminal(stream: TextIO) -> bool:
    """Where lines can be drawn again; an editor's or a log's stream, and TERM=dumb, cannot."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


class StderrHandler(logging.StreamHandler[Any]):
    """Logs to whatever sys.stderr is just then: while live lines are drawn, a stand-in that prints above them."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        """A line per record, whatever is in it; only tracebacks have more."""
        text = super().format(record)
        return text if record.exc_info else printable(text)
