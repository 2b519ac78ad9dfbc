"""Single trainings among liars, and how alike honest contributions are: what `adversaries` is computed from.

A trial is kept as a table of one row as soon as it is over.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.config import PROBLEMS
from afedpg.engine.delegate import Delegate
from afedpg.engine.federation import Federation
from afedpg.engine.process import DeadEnd
from afedpg.experiments.choices import Method
from afedpg.experiments.in_memory import run_in_memory
from afedpg.experiments.jobs import Plan, Progress, Settings, TableJob
from afedpg.experiments.tables import table
from afedpg.messages import AgentState, Report, Task, Vector
from afedpg.runs.parts import prepare
from afedpg.runs.train import run

AGENTS = 10
EPISODES = 20  # an environment's theta is evaluated on
METHOD = Method("afedpg")


@dataclass(frozen=True)
class Course:
    """How long a task is trained, how long its steps are with each aggregator, and its other settings."""

    seconds: float
    eta: Mapping[str, float]
    more: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)  # of an aggregator, where not its defaults

    def written(self, aggregator: str) -> str:
        """As on the command line."""
        return ":".join([aggregator, *([self.parameters[aggregator]] if aggregator in self.parameters else [])])


class _Kept(TableJob):
    """A job that comes to a row of numbers."""

    kind = "trials"
    columns: ClassVar[str]

    @property
    @abstractmethod
    def settings(self) -> Settings: ...

    @abstractmethod
    def measure(self) -> tuple[float, ...]:
        """The row."""

    @cached_property
    def name(self) -> str:
        return f"{type(self).__name__.lower()}-{self.settings.name}"

    @cached_property
    def gradients(self) -> int:
        """At most."""
        return self.settings.config.gradients

    @cached_property
    def cost(self) -> float:
        return self.settings.seconds(self.gradients)

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        table(self.columns, [self.measure()]).write(self.path(out))


class Case(NamedTuple):
    """Without an attack the liars are not there: those that are left are all honest."""

    task: str
    attack: str  # "" for none
    defence: str
    pace: float  # virtual seconds per contribution of a liar; of an honest agent it is 1
    liars: int


@dataclass(frozen=True)
class Trial(_Kept):
    columns = "seed start value"

    plan: Plan
    case: Case
    course: Course
    seed: int

    @cached_property
    def settings(self) -> Settings:
        case, course = self.case, self.course
        honest = AGENTS - case.liars
        agents = AGENTS if case.attack else honest
        speeds = (1.0,) * honest + (case.pace,) * (agents - honest)
        # A flood is not planned for.
        rounds = course.seconds * sum(min(1.0, 1 / seconds) for seconds in speeds) / agents
        attack = {"attack": case.attack, "attackers": tuple(range(honest, agents))} if case.attack else {}
        return self.plan.settings(
            case.task, METHOD, agents, self.seed, timing="list", speeds=speeds,
            aggregator=course.written(case.defence), eta=course.eta[case.defence], stop_at_seconds=course.seconds,
            iterations=math.ceil(rounds), evaluate_kind="sampled", evaluate_episodes=EPISODES, **attack, **course.more,
        )  # fmt: skip

    def measure(self) -> tuple[float, ...]:
        """What theta is worth at the start and in the end."""
        config, own = self.settings.config, self.settings.own()
        workload, _, server = prepare(config, own)
        before = workload.evaluate(server.theta.astype(np.float32), {}, 0)[0].mean
        with np.errstate(all="ignore"):  # a theta that was led astray may be anything
            try:
                result = run(config, own, workers=1)
            except DeadEnd:  # theta is where every contribution is refused
                return self.seed, before, -math.inf
        return self.seed, before, result.evaluations[0].mean


@dataclass(frozen=True)
class Likeness(_Kept):
    """How alike the contributions of honest agents are: cosines of single ones, and of agents' running means."""

    columns = "seed delay cosine cosine_of_means norm norm_low norm_high"

    plan: Plan
    task: str
    estimator: str
    steps: int
    timing: str
    seed: int
    rounds: int

    @cached_property
    def settings(self) -> Settings:
        more: dict[str, Any] = {"batch" if self.task in PROBLEMS else "steps": self.steps}
        if self.estimator:
            more["estimator"] = self.estimator
        method = Method("afedppo") if self.estimator == "clipped" else METHOD
        laws = {"linear": {"spread": 20.0}}
        return self.plan.settings(
            self.task, method, AGENTS, self.seed, timing=self.timing, iterations=self.rounds, **more,
            **laws.get(self.timing, {}),
        )  # fmt: skip

    def measure(self) -> tuple[float, ...]:
        """Over the second half of the training: the first steps are all alike."""
        config = self.settings.config
        workload, rule, server = prepare(config, self.settings.own())
        delays: list[int] = []
        federation = Federation(rule, server, on_arrival=lambda arrival, *_: delays.append(arrival.delay))
        heard = Heard(workload, [])
        run_in_memory(self.settings, heard, federation, lambda _: federation.server.gradients >= config.gradients)
        half, policy = len(heard.sent) // 2, rule.groups(server.theta.size)[0][1]
        single, together = zip(*alike(heard.sent, policy, half), strict=True)
        norms = [float(np.linalg.norm(vector[policy])) for _, vector in heard.sent[half:]]
        spread = (float(np.quantile(norms, share)) for share in (0.5, 0.1, 0.9))
        return self.seed, float(np.mean(delays)), float(np.mean(single)), float(np.mean(together)), *spread


@dataclass
class Heard(Delegate):
    """Remembers what agents send."""

    sent: list[tuple[int, NDArray[Any]]]

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        state, report = self.inner.work(state, task)
        self.sent.append((report.agent_id, report.payload))
        return state, report


def alike(sent: list[tuple[int, NDArray[Any]]], place: slice, first: int) -> Iterator[tuple[float, float]]:
    """From the `first` contribution on, whenever all agents have sent another: the mean cosine between two agents'
    newest, and between their running means over the last ten or so.
    """
    newest: dict[int, Vector] = {}
    means: dict[int, Vector] = {}
    for index, (agent_id, payload) in enumerate(sent):
        vector = payload[place].astype(np.float64)
        newest[agent_id] = vector
        means[agent_id] = vector if agent_id not in means else 0.9 * means[agent_id] + 0.1 * vector
        if index >= first and (index - first) % len(newest) == 0:
            yield _mean_cosine(newest), _mean_cosine(means)


def _mean_cosine(vectors: Mapping[int, Vector]) -> float:
    rows = np.array([vector for vector in vectors.values() if vector.any()])
    if len(rows) < 2:
        return 0.0
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    total = float(np.square(rows.sum(axis=0)).sum())
    return (total - len(rows)) / (len(rows) * (len(rows) - 1))
