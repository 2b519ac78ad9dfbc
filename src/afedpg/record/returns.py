"""What the return of a run is, wherever one number is shown: the list of runs, the page, a comparison, the last line.

In training, with theta~: the mean over the episodes that ended in the last 5% of the gradients so far. A short run has
few there, so at least the newest gradients count in which an episode ended, two per agent.
Of theta: its last evaluation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum, isfinite
from pathlib import Path

from afedpg.messages import Arrival
from afedpg.record.database import reading

LATE = 0.95  # of the gradients so far come before those that count
PER_AGENT = 2  # gradients with an episode's end that count at least
TRAINING = "training, last 5%"  # what it is called
HISTORY = 256  # points of a whole run, at most
_ENDED = "FROM arrivals WHERE episodes > 0 AND mean_return IS NOT NULL"
_NEWEST = "FROM evaluations WHERE gradients = (SELECT MAX(gradients) FROM evaluations)"
_KINDS = f"SELECT kind, AVG(mean) {_NEWEST}"


@dataclass(frozen=True)
class Returns:
    """None where there is no number, as before the first episode's end or of a run that diverged."""

    training: float | None = None
    theta: dict[str, float | None] = field(default_factory=dict)  # by kind, sampled before deterministic


def read_returns(path: Path, agents: int) -> Returns:
    """Summed by SQLite, over the newest rows alone."""
    with reading(path) as connection:
        newest = connection.execute("SELECT MAX(gradient) FROM arrivals").fetchone()[0] or 0
        fewest = f"SELECT gradient {_ENDED} ORDER BY gradient DESC LIMIT 1 OFFSET {PER_AGENT * agents - 1}"
        first = connection.execute(fewest).fetchone() or (0,)
        mean = f"SELECT SUM(mean_return * episodes) / SUM(episodes) {_ENDED} AND gradient > ?"
        (training,) = connection.execute(mean, (min(LATE * newest, first[0] - 1),)).fetchone()
        theta = dict(connection.execute(f"{_KINDS} GROUP BY kind ORDER BY kind DESC"))  # a mean over environments
    return Returns(training, theta)


def read_sites(path: Path) -> list[tuple[str, str, float]]:
    """Of theta's last evaluation: site, kind and mean, where agents have environments of their own."""
    rows = f"{_NEWEST} AND environment != '' AND mean IS NOT NULL ORDER BY kind DESC, rowid"
    with reading(path) as connection:
        return list(connection.execute(f"SELECT environment, kind, mean {rows}"))


def mean_and_worst(sites: Mapping[str, float]) -> tuple[float, str]:
    """The mean over sites, and the name of the one with the lowest return."""
    return fsum(sites.values()) / len(sites), min(sites, key=sites.__getitem__)


def finite(value: float | None) -> float | None:
    """JSON has no word for infinity."""
    return None if value is None or not isfinite(value) else value


class LateReturns:
    """The same of a run that goes on, gradient by gradient."""

    def __init__(self, agents: int) -> None:
        self._fewest = PER_AGENT * agents
        self._rows: deque[tuple[int, float, int]] = deque()  # gradient, mean return, episodes

    def add(self, arrival: Arrival) -> None:
        mean, rows = arrival.stats.mean_return, self._rows
        if mean is not None and mean == mean:  # NaN is no number
            rows.append((arrival.gradient, mean, len(arrival.stats.returns)))
        while len(rows) > self._fewest and rows[0][0] <= LATE * arrival.gradient:
            rows.popleft()

    def mean(self) -> float | None:
        rows = list(self._rows)
        episodes = sum(count for _, _, count in rows)
        return sum(mean * count for _, mean, count in rows) / episodes if episodes else None


class History:
    """A whole run in at most HISTORY points (samples, return), each the mean of equally many; whenever they are full,
    each two become one."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._each, self._waiting = 1, 0
        self._samples = self._values = 0.0  # sums over what waits

    def add(self, samples: float, value: float) -> None:
        self._waiting += 1
        self._samples += samples
        self._values += value
        if self._waiting < self._each:
            return
        self.points.append((self._samples / self._each, self._values / self._each))
        self._waiting, self._samples, self._values = 0, 0.0, 0.0
        if len(self.points) == HISTORY:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [((x0 + x1) / 2, (y0 + y1) / 2) for (x0, y0), (x1, y1) in pairs]
            self._each *= 2
