"""How often somebody may do something."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field


@dataclass
class Bucket:
    """`burst` at once, `rate` per second in the long run."""

    rate: float
    burst: float
    level: float = -1.0  # full at the start
    at: float = 0.0

    def take(self, now: float) -> float:
        """0 if there was one to take; otherwise the seconds until there is."""
        self.level = self.burst if self.level < 0 else min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate


@dataclass
class Repeats:
    """How often each has done something, until it was not done for `forget` seconds; of the newest `most` who did."""

    forget: float = 60.0
    most: int = 1024
    _known: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)

    def count(self, who: str, now: float) -> int:
        """This time included."""
        before, at = self._known.pop(who, (0, now))
        times = before + 1 if now - at < self.forget else 1
        self._known[who] = times, now
        if len(self._known) > self.most:
            self._known.popitem(last=False)
        return times
