"""A timing model with a clock and a bandwidth: machines are slow by day, and bytes take time.

afedpg train quadratic --timing examples/parts/day_and_night.py:DayAndNight:bandwidth=1e4
"""

from dataclasses import dataclass

from afedpg.config import option


@dataclass(frozen=True)
class DayAndNight:
    """Agent i takes 1 + i seconds at night, three times as long by day, and what its messages take."""

    bandwidth: float = option(1e6, "bytes per second, up and down alike", above=0)
    day: float = option(43_200.0, "seconds of a day, and of a night", above=0)

    def __call__(self, agent, n, now, up, down):
        busy = 3.0 if int(now // self.day) % 2 == 0 else 1.0
        return busy * (1 + agent) + (up + down) / self.bandwidth
