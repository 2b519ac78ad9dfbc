"""What liars could send that know every honest contribution: attacks of the literature.

`send` turns a `Sight` and a random generator into the vector that is sent. An agent of a real federation sees theta~
alone and could send none of these, so they belong to virtual time, where `Adversary` stands between an agent's work and
the server and sees every report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.attacks.reports import with_vector
from afedpg.config import option
from afedpg.messages import Floats, Report, Vector
from afedpg.seeding import freeze, thaw

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Sight:
    """All that can be known when a liar's contribution is due."""

    honest: Rows  # [n, parameters], the latest contribution of every honest agent
    own: Vector  # what the liar found itself
    share: float  # of all contributions, the liars' together
    centre: Vector | None = None  # of the defence, where there is one
    radius: float = np.inf

    @property
    def mean(self) -> Vector:
        return np.asarray(self.honest.mean(axis=0))


class Omniscient(ABC):
    """What every attack of this kind is."""

    @abstractmethod
    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        """The vector that is sent."""


@dataclass(frozen=True)
class Alie(Omniscient):
    """A little is enough (Baruch et al. 2019): mean - z deviation, per coordinate, within what honest ones scatter."""

    z: float = option(1.5, "deviations below the mean", above=0)

    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        return sight.mean - self.z * np.asarray(sight.honest.std(axis=0))


@dataclass(frozen=True)
class InnerProduct(Omniscient):
    """IPM (Xie et al. 2020): -epsilon mean, so that the sum's product with the honest mean becomes negative."""

    epsilon: float = option(5.0, "how many times as long as the mean", above=0)

    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        return -self.epsilon * sight.mean


@dataclass(frozen=True)
class FedPGAttack(Omniscient):
    """Fan et al. 2021: three deviations from the mean in a random direction, the deviation taken as half of the largest
    distance between two honest contributions.
    """

    deviations: float = option(3.0, "distance from the mean", above=0)

    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        squares = (sight.honest * sight.honest).sum(axis=1)
        gaps = squares[:, None] + squares - 2 * sight.honest @ sight.honest.T
        widest = float(np.sqrt(max(0.0, gaps.max())))
        direction = generator.uniform(-1, 1, sight.own.size)
        return sight.mean + self.deviations / 2 * widest * unit(direction)


@dataclass(frozen=True)
class LargestAngle(Omniscient):
    """After Fang et al. 2025: what turns a normalizing server's direction the most, as long as an honest contribution.

    m is the honest contributions' part of the mean, v = share g the liars'. Of all v with |v| <= rho the one that makes
    the largest angle between m and m + v is at right angles to m + v: sin(angle) = rho / |m|. From rho = |m| on, v = -m
    rho / |m| turns it around.
    """

    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        m = (1 - sight.share) * sight.mean
        length, longest = float(np.linalg.norm(m)), float(np.linalg.norm(sight.honest, axis=1).max())
        if length == 0 or sight.share * longest >= length:
            return -longest * unit(m)
        sine = sight.share * longest / length
        # The way in which the honest contributions scatter most hides the lie best; where they do not, any will do.
        rows = np.vstack([sight.honest, generator.standard_normal(m.size)])
        aside = rows - np.outer(rows @ unit(m), unit(m))
        scatter = np.linalg.norm(aside[:-1], axis=1)
        across = aside[scatter.argmax() if scatter.max() > 1e-9 * longest else -1]
        return longest * (-sine * unit(m) + float(np.sqrt(1 - sine * sine)) * unit(across))


@dataclass(frozen=True)
class Adaptive(Omniscient):
    """Knows the defence: as far from its centre as the middle agent is, against the honest mean."""

    def send(self, sight: Sight, generator: np.random.Generator) -> Vector:
        centre = np.zeros_like(sight.own) if sight.centre is None else sight.centre
        longest = float(np.linalg.norm(sight.honest - centre, axis=1).max())
        return centre - min(sight.radius, longest) * unit(sight.mean)


def unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector


Defence = Callable[[], tuple[Vector, float] | None]  # its centre, and how far from it the middle agent is


@dataclass
class Adversary:
    """Sees every report before the server does, and changes those of the liars, who act as one."""

    attack: Omniscient
    liars: frozenset[int]
    stream: NDArray[np.uint64]
    defence: Defence = lambda: None
    latest: dict[int, Floats] = field(default_factory=dict)  # honest agent -> its last contribution
    sent: int = 0  # lies among
    seen: int = 0  # so many reports

    def __call__(self, report: Report) -> Report:
        """The report that the server is given. Until somebody honest has reported, a liar has nothing to go by."""
        self.seen += 1
        if report.agent_id not in self.liars:
            self.latest[report.agent_id] = report.payload
            return report
        self.sent += 1
        if not self.latest:
            return report
        honest = np.array([self.latest[agent_id] for agent_id in sorted(self.latest)], np.float64)
        sight = Sight(honest, report.payload.astype(np.float64), self.sent / self.seen, *(self.defence() or ()))
        generator = thaw(self.stream)
        lie = self.attack.send(sight, generator)
        self.stream = freeze(generator)
        return with_vector(report, lie)

    def to_tree(self) -> dict[str, Any]:
        agents = sorted(self.latest)
        rows = np.array([self.latest[agent_id] for agent_id in agents], np.float32)
        counts = np.array([self.sent, self.seen], np.int64)
        return {"agents": np.array(agents, np.int64), "latest": rows, "stream": self.stream, "counts": counts}

    def from_tree(self, tree: Mapping[str, Any]) -> None:
        self.latest = dict(zip(tree["agents"].tolist(), map(np.array, tree["latest"]), strict=True))
        self.stream = np.array(tree["stream"], np.uint64)
        self.sent, self.seen = (int(count) for count in tree["counts"])
