"""How soon a method reaches a goal: a search over its settings on seeds of its own, then the best ones on all seeds.

On problems with a known optimum the goal is a gap, and theta must stay there; on environments it is a mean of theta's
last evaluations.

Every contestant that searches has the same number of points, so that nobody wins by having been tuned longer. One
with the constants of its preset searches none.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.engine.virtual import VirtualEngine
from afedpg.experiments.choices import Method
from afedpg.experiments.in_memory import run_in_memory
from afedpg.experiments.jobs import Plan, Progress, Settings, TableJob
from afedpg.experiments.tables import Table, read, table
from afedpg.messages import Workload
from afedpg.problems import make_problem
from afedpg.runs.best import scaled_by
from afedpg.runs.goals import EVALUATION_WINDOW
from afedpg.runs.parts import prepare
from afedpg.server.state import ServerState

AGENTS = 10
LEVEL = 0.05  # of the gap at the start
HOLD = 5.0  # seconds that theta must stay at the level; a gradient of the fastest agent takes 1
HELD_SINCE = "the first step at the level"  # part of a contest's name: others measured this otherwise
EVERY = 4  # contributions of T steps per agent between two evaluations of theta
HOPELESS = 2.0  # times the best mean so far: a point that takes longer is given up in the search
SEARCH_SEED = 1_000  # the first one of the search
COLUMNS = "phase seed aggregator alpha eta seconds gradients unused"
SEARCH, CONTEST = "search", "contest"  # phases; under a further clock the phase is that clock's name

Law = tuple[tuple[str, float | str], ...]


@dataclass(frozen=True)
class Course:
    """What is run, and over which constants everybody searches; likely ones first: they bound how long others take."""

    alphas: tuple[float, ...] = (0.2, 0.5, 0.05)  # none: the preset's constants, and no search
    etas: tuple[float, ...] = (0.03, 0.1, 0.01, 0.3, 1.0, 3.0)  # a batch makes few steps and wants long ones
    goal: float | None = None  # a return; None: the gap
    most: int = 3_000  # contributions, used or not, after which a run has not reached the goal
    more: tuple[tuple[str, Any], ...] = (("literal_constants", True),)
    every: int = EVERY

    @property
    def searches(self) -> bool:
        return bool(self.alphas)

    def by_preset(self, share: float) -> Course:
        """For a method with constants of its own, whose contributions are of so many times this course's T."""
        looks = tuple((name, value) for name, value in self.more if name.startswith("evaluate"))
        most, every = (max(1, round(count / share)) for count in (self.most, self.every))
        return Course((), (), self.goal, most, (*looks, ("fastest", share)), every)


EXACT = Course()


def course_to(goal: float, most: int, steps: int) -> Course:
    """To a return. alpha and eta are per contribution here, so that a batch has as long a way as its contributions."""
    more = {"steps": steps, "hidden": (64, 64), "compute": "auto", "evaluate_kind": "sampled", "evaluate_episodes": 5}
    return Course((0.2, 0.1, 0.5), (0.02, 0.01, 0.04, 0.005), goal, most, tuple(more.items()))


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


def points(contestant: Contestant, course: Course = EXACT) -> list[Point]:
    """The same pairs of alpha and eta for everybody; the values of an own parameter take turns over them."""
    values = contestant.values
    return [
        Point(contestant.aggregator.format(values[(i + j) % len(values)]), alpha, eta)
        for i, alpha in enumerate(course.alphas)
        for j, eta in enumerate(course.etas)
    ]


@dataclass(frozen=True)
class Contest(TableJob):
    """One contestant on one problem under one clock: the search, then the best point on every seed."""

    kind = "contests"

    plan: Plan
    contestant: Contestant
    problem: str
    law: Law  # settings of the timing model
    searched: int  # seeds per point of the search
    seeds: tuple[int, ...]
    course: Course = EXACT
    also: tuple[tuple[str, Law], ...] = ()  # further clocks, by name: the best point is run under them, too

    @property
    def settings(self) -> Settings:
        """Of its first run; the others differ in the point and the seed."""
        return self.run_settings(self.points[0], self.seeds[0])

    @cached_property
    def points(self) -> list[Point]:
        if self.course.searches:
            return points(self.contestant, self.course)
        chosen = self._settings(0, self.law).config
        return [Point(chosen.aggregator, chosen.schedule.alpha, chosen.schedule.eta)]

    def run_settings(self, point: Point, seed: int, phase: str = CONTEST) -> Settings:
        law = dict(self.also).get(phase, self.law)
        if not self.course.searches:
            return self._settings(seed, law)
        return self._settings(seed, law, **point._asdict(), schedule="constant")

    def _settings(self, seed: int, law: Law, **constants: Any) -> Settings:
        more = {**dict(law), **constants, **dict(self.course.more), "iterations": self.course.most // AGENTS}
        return self.plan.settings(self.problem, self.contestant.method, AGENTS, seed, **more)

    @cached_property
    def name(self) -> str:
        goal = (HELD_SINCE,) if self.course.goal is None else (self.course.goal, self.course.every)
        rules = (LEVEL, HOLD, self.course.most, HOPELESS, SEARCH_SEED, self.searched, *goal, *self.also)
        parts = (self.settings.name, self.points, self.seeds, rules)
        digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:10]
        return f"{self.problem}-{self.contestant.label.split()[0]}-{dict(self.law).get('timing', 'own')}-{digest}"

    @property
    def phases(self) -> list[str]:
        """After the search."""
        return [CONTEST, *dict(self.also)]

    @property
    def gradients(self) -> int:
        """At most; most runs end far earlier."""
        searched = len(self.points) * self.searched if self.course.searches else 0
        return self.course.most * (searched + len(self.seeds) * len(self.phases))

    @property
    def cost(self) -> float:
        return self.settings.seconds(self.gradients)

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        """Every run is stored as soon as it is over; where they were interrupted, the next one goes on."""
        unfinished = self.path(out).with_suffix(".unfinished.csv")
        rows = list(read(unfinished).rows) if unfinished.is_file() else []
        known = {row[:5]: Passage(*row[5:]) for row in rows}  # type: ignore[arg-type]
        searched = len(self.points) if self.course.searches else 0
        steps, total = 0, searched + len(self.seeds) * len(self.phases)

        def passage(phase: str, seed: int, point: Point, limit: float = math.inf) -> Passage:
            key = (phase, seed, *point)
            if key not in known:
                known[key] = first_passage(self.run_settings(point, seed, phase), limit, self.course)
                rows.append((*key, *known[key]))
                table(COLUMNS, rows).write(unfinished)
            return known[key]

        def step() -> None:
            nonlocal steps
            steps += 1
            progress(steps / total)

        best = self._search(passage, step)
        for phase in self.phases:
            for seed in self.seeds:
                passage(phase, seed, best)
                step()
        table(COLUMNS, rows).write(unfinished)
        unfinished.replace(self.path(out))

    def _search(self, passage: Callable[[str, int, Point, float], Passage], step: Callable[[], None]) -> Point:
        best, record = self.points[0], math.inf
        for point in self.points if self.course.searches else ():
            seconds: list[float] = []
            for seed in range(SEARCH_SEED, SEARCH_SEED + self.searched):
                limit = HOPELESS * record * self.searched - sum(seconds)
                seconds.append(passage(SEARCH, seed, point, limit).seconds)
                if not math.isfinite(seconds[-1]):
                    break
            mean = float(np.mean(seconds))
            if mean < record:
                best, record = point, mean
            step()
        return best


def first_passage(settings: Settings, limit: float = math.inf, course: Course = EXACT) -> Passage:
    """When theta first is at the goal; where that is a gap, and stays there for `HOLD` seconds."""
    config = settings.config
    workload, rule, server = prepare(config, settings.own())
    goal, every = course.goal, course.every
    arrived = _at_gap(config, server) if goal is None else _at_return(config, workload, goal, every)
    hold = HOLD if goal is None else 0.0
    federation = Federation(rule, server)
    reached: Passage | None = None
    looked = 0

    def held(engine: VirtualEngine) -> bool:
        return reached is not None and engine.seconds - reached.seconds >= hold

    def finished(engine: VirtualEngine) -> bool:
        nonlocal reached, looked
        if held(engine):  # before this event, whatever it changes: steps may be further apart than `HOLD`
            return True
        state = federation.server
        if state.iteration > looked:
            looked = state.iteration
            if not arrived(state):
                reached = None
            elif reached is None:
                reached = Passage(engine.seconds, state.gradients, state.unused)
        kept = len(state.memory.kept)
        over = state.gradients + state.unused + kept >= course.most or engine.seconds - hold > limit
        return over or held(engine)

    engine = run_in_memory(settings, workload, federation, finished)
    return reached if held(engine) and reached is not None else Passage(math.inf, server.gradients, server.unused)


def _at_gap(config: Config, start: ServerState) -> Callable[[ServerState], bool]:
    problem = make_problem(config)
    level = LEVEL * (problem.optimum - problem.value(start.theta))
    return lambda state: problem.optimum - problem.value(state.theta) <= level


def _at_return(config: Config, workload: Workload, goal: float, every: int) -> Callable[[ServerState], bool]:
    """Theta is evaluated every so many contributions per agent; the mean of the last five evaluations decides."""
    period, recent, looked = every * config.agents, deque[float](maxlen=EVALUATION_WINDOW), 0

    def arrived(state: ServerState) -> bool:
        nonlocal looked
        if state.gradients // period > looked // period:
            looked = state.gradients
            [told] = workload.evaluate(state.theta.astype(np.float32), scaled_by(config, state), state.iteration)
            recent.append(told.mean)
        return len(recent) == EVALUATION_WINDOW and float(np.mean(recent)) >= goal

    return arrived


def times(contest: Table, phase: str = CONTEST) -> Sequence[Passage]:
    """Of every seed, in order."""
    rows = [row for row in contest.records() if row["phase"] == phase]
    return [Passage(float(row["seconds"]), int(row["gradients"]), int(row["unused"])) for row in rows]
