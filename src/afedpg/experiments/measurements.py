"""Training in memory, with theta looked at on the way: for a million gradients, where a folder is too much."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from afedpg.engine.delegate import Delegate
from afedpg.engine.federation import Federation, OnArrival
from afedpg.experiments.in_memory import run_in_memory
from afedpg.experiments.jobs import Progress, Settings, TableJob
from afedpg.experiments.tables import table
from afedpg.messages import AgentState, Arrival, Report, Task, Vector
from afedpg.problems import ProblemWorkload, make_problem, make_sites
from afedpg.runs.parts import prepare
from afedpg.runs.train import run

COLUMNS = "gradients iterations seconds delays gap gradient_norm"


@dataclass(frozen=True)
class Measurement(TableJob):
    """Gap and gradient norm of one training on a synthetic problem at chosen numbers of applied gradients.

    `delays` is the sum of the delays of all gradients applied so far.
    """

    kind = "measurements"

    settings: Settings
    points: tuple[int, ...]  # where to look; the last one is the end
    common: bool = False  # the k-th gradient to arrive gets the k-th draw of the seed, whoever computes it

    @property
    def name(self) -> str:
        """Where it looks is part of it."""
        digest = hashlib.sha256(repr(self.points).encode()).hexdigest()[:6]
        return f"{self.settings.name}-{digest}{'-common' if self.common else ''}"

    @property
    def gradients(self) -> int:
        return self.points[-1]

    @property
    def cost(self) -> float:
        return self.settings.seconds(self.gradients)

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        table(COLUMNS, self.measure(progress)).write(self.path(out))

    def measure(self, progress: Progress = lambda done: None) -> list[tuple[int, int, float, int, float, float]]:
        problem = make_problem(self.settings.config)
        rows: list[tuple[int, int, float, int, float, float]] = []
        total = self.points[-1]
        points = (*self.points, np.iinfo(np.int64).max)  # the last is never reached
        delays = 0

        def arrived(arrival: Arrival, seconds: float, theta: Vector) -> None:
            nonlocal delays
            delays += arrival.delay
            if arrival.gradient >= points[len(rows)]:
                gap = problem.optimum - problem.value(theta)
                norm = float(np.sqrt(np.sum(problem.gradient(theta) ** 2)))
                rows.append((arrival.gradient, arrival.iteration + 1, seconds, delays, gap, norm))
                progress(arrival.gradient / total)

        if self.common:
            _run_with_common_noise(self.settings, arrived, total)
        else:
            run(self.settings.config, self.settings.own(), on_arrival=arrived, until=total)
        return rows


@dataclass
class InOrder(Delegate):
    """Agents that share one stream of draws, in the order in which their gradients arrive.

    Draws are independent of theta~ and of the time they take, so each run has the same law as with a stream per agent;
    but runs that differ in N or in the rule see the same draws, and their ratio is far less noisy. Because its work
    depends on who was before, this workload must be computed at arrival, by one process.
    """

    shared: AgentState

    def start(self, agent_id: int) -> AgentState:
        return {}

    def renew(self, state: AgentState, life: int) -> AgentState:
        return state  # there is nothing in it

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        self.shared, report = self.inner.work(self.shared, task)
        return state, report


def _run_with_common_noise(settings: Settings, on_arrival: OnArrival, gradients: int) -> None:
    config = settings.config
    problem = ProblemWorkload(make_problem(config), config.seed, steps=config.batch, sites=make_sites(config))
    workload = InOrder(problem, problem.start(0))
    _, rule, server = prepare(config, settings.own())
    federation = Federation(rule, server, on_arrival=on_arrival)
    run_in_memory(settings, workload, federation, lambda _: federation.server.gradients >= gradients)


def log_points(first: int, last: int, per_decade: int) -> tuple[int, ...]:
    """Numbers of gradients, evenly spaced in the logarithm."""
    count = max(2, round(per_decade * np.log10(last / first)) + 1)
    return tuple(dict.fromkeys(int(point) for point in np.geomspace(first, last, count).round()))
