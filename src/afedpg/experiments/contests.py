"""How soon a method reaches a gap: a search over its settings on seeds of its own, then the best ones on all seeds.

Every contestant has the same number of points to search, so that nobody wins by having been tuned longer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from afedpg.engine.crew import Alone
from afedpg.engine.federation import Federation
from afedpg.engine.process import Interruption
from afedpg.engine.timing import make_timing
from afedpg.engine.virtual import VirtualEngine
from afedpg.experiments.choices import Method
from afedpg.experiments.jobs import GRADIENT_SECONDS, Plan, Progress, Settings
from afedpg.experiments.tables import Table, read, table
from afedpg.problems import make_problem
from afedpg.runs.parts import prepare

AGENTS = 10
ALPHAS, ETAS = (0.2, 0.5, 0.05), (0.03, 0.1, 0.01, 0.3)  # likely ones first: they bound how long others may take
LEVEL = 0.05  # of the gap at the start
HOLD = 5.0  # seconds that theta must stay at the level; a gradient of the fastest agent takes 1
MOST = 3_000  # contributions, used or not, after which a run has not reached it
HOPELESS = 2.0  # times the best mean so far: a point that takes longer is given up in the search
SEARCH_SEED = 1_000  # the first one of the search
COLUMNS = "phase seed aggregator alpha eta seconds gradients unused"


@dataclass(frozen=True)
class Contestant:
    """A way to make steps, and the values of its own parameter that are searched."""

    label: str
    method: Method
    aggregator: str = ""  # as on the command line, "{}" in the place of the value; "": the method's
    values: tuple[float, ...] = (0,)


class Point(NamedTuple):
    aggregator: str
    alpha: float
    eta: float


class Passage(NamedTuple):
    seconds: float  # infinite: not reached
    gradients: int
    unused: int


def points(contestant: Contestant) -> list[Point]:
    """The same 12 pairs of alpha and eta for everybody; the values of an own parameter take turns over them."""
    values = contestant.values
    return [
        Point(contestant.aggregator.format(values[(i + j) % len(values)]), alpha, eta)
        for i, alpha in enumerate(ALPHAS)
        for j, eta in enumerate(ETAS)
    ]


@dataclass(frozen=True)
class Contest:
    """One contestant on one problem under one clock: the search, then the best point on every seed."""

    plan: Plan
    contestant: Contestant
    problem: str
    law: tuple[tuple[str, float | str], ...]  # settings of the timing model
    searched: int  # seeds per point of the search
    seeds: tuple[int, ...]

    @property
    def settings(self) -> Settings:
        """Of its first run; the others differ in the point and the seed."""
        return self.run_settings(points(self.contestant)[0], self.seeds[0])

    def run_settings(self, point: Point, seed: int) -> Settings:
        return self.plan.settings(
            self.problem, self.contestant.method, AGENTS, seed, **dict(self.law), aggregator=point.aggregator,
            alpha=point.alpha, eta=point.eta, schedule="constant", literal_constants=True, iterations=MOST // AGENTS,
        )  # fmt: skip

    @cached_property
    def name(self) -> str:
        rules = (LEVEL, HOLD, MOST, HOPELESS, SEARCH_SEED, self.searched)
        parts = (self.settings.name, points(self.contestant), self.seeds, rules)
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:10]
        return f"{self.problem}-{self.contestant.label.split()[0]}-{dict(self.law).get('timing', 'own')}-{digest}"

    @property
    def gradients(self) -> int:
        """At most; most runs end far earlier."""
        return MOST * (len(points(self.contestant)) * self.searched + len(self.seeds))

    @property
    def cost(self) -> float:
        return self.gradients * GRADIENT_SECONDS

    def path(self, out: Path) -> Path:
        return out / "contests" / f"{self.name}.csv"

    def finished(self, out: Path) -> bool:
        return self.path(out).is_file()

    def read(self, out: Path) -> Table:
        return read(self.path(out))

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        every = points(self.contestant)
        total, rows = len(every) + len(self.seeds), []
        best, record = every[0], math.inf
        for place, point in enumerate(every):
            passages: list[Passage] = []
            for seed in range(SEARCH_SEED, SEARCH_SEED + self.searched):
                limit = HOPELESS * record * self.searched - sum(passage.seconds for passage in passages)
                passages.append(first_passage(self.run_settings(point, seed), limit))
                rows.append(("search", seed, *point, *passages[-1]))
                if not math.isfinite(passages[-1].seconds):
                    break
            mean = float(np.mean([passage.seconds for passage in passages]))
            if mean < record:
                best, record = point, mean
            progress((place + 1) / total)
        for place, seed in enumerate(self.seeds):
            rows.append(("contest", seed, *best, *first_passage(self.run_settings(best, seed))))
            progress((len(every) + place + 1) / total)
        table(COLUMNS, rows).write(self.path(out))


def first_passage(settings: Settings, limit: float = math.inf) -> Passage:
    """When the exact gap of theta first is at the level and stays there for `HOLD` seconds."""
    config, own = settings.config, settings.own()
    problem = make_problem(config)
    workload, rule, server = prepare(config, own)
    level = LEVEL * (problem.optimum - problem.value(server.theta))
    federation = Federation(rule, server)
    engine = VirtualEngine(federation, workload, Alone(workload), make_timing(config, own.timing), config.agents)
    reached: Passage | None = None
    looked = 0

    with Interruption().watched() as interruption:

        def finished() -> bool:
            nonlocal reached, looked
            interruption.check()
            state = federation.server
            if state.iteration > looked:
                looked = state.iteration
                if problem.optimum - problem.value(state.theta) > level:
                    reached = None
                elif reached is None:
                    reached = Passage(engine.seconds, state.gradients, state.unused)
            if reached is not None and engine.seconds - reached.seconds >= HOLD:
                return True
            kept = len(state.memory.kept)
            return state.gradients + state.unused + kept >= MOST or engine.seconds - HOLD > limit

        engine.start()
        engine.run(finished)
    held = reached is not None and engine.seconds - reached.seconds >= HOLD
    return reached if held and reached is not None else Passage(math.inf, server.gradients, server.unused)


def times(contest: Table) -> Sequence[Passage]:
    """Of every seed, in order."""
    rows = [row for row in contest.records() if row["phase"] == "contest"]
    return [Passage(float(row["seconds"]), int(row["gradients"]), int(row["unused"])) for row in rows]
