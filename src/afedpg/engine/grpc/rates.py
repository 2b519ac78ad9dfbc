"""How often somebody may do something."""

from __future__ import annotations

from dataclasses import dataclass


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
