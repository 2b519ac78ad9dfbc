"""A workload made of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from afedpg.messages import (
    AgentState,
    Evaluation,
    Exchange,
    Floats,
    Occasion,
    Report,
    Statistics,
    Task,
    Vector,
    Workload,
)


@dataclass
class Delegate:
    """A workload that is another one but for what it says otherwise."""

    inner: Workload

    @property
    def parameters(self) -> int:
        return self.inner.parameters

    @property
    def exchange(self) -> Exchange:
        return self.inner.exchange

    @property
    def cost(self) -> float:
        return self.inner.cost

    @property
    def steps(self) -> int:
        return self.inner.steps

    def check(self) -> None:
        self.inner.check()

    def initial_theta(self) -> Vector:
        return self.inner.initial_theta()

    def start(self, agent_id: int) -> AgentState:
        return self.inner.start(agent_id)

    def renew(self, state: AgentState, life: int) -> AgentState:
        return self.inner.renew(state, life)

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        return self.inner.prepare(state, agent_id)

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        return self.inner.work(state, task)

    def evaluate(
        self, theta: Floats, statistics: Statistics, iteration: int, occasion: Occasion = "evaluation"
    ) -> list[Evaluation]:
        return self.inner.evaluate(theta, statistics, iteration, occasion)

    def export(self, theta: Floats, statistics: Statistics) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        return self.inner.export(theta, statistics)


def bare(workload: Workload) -> Workload:
    """What all delegates stand before."""
    while isinstance(workload, Delegate):
        workload = workload.inner
    return workload
