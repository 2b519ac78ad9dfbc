"""What a synthetic problem is: an objective with a known optimum, and samples of its gradient.

`ProblemWorkload` makes agents of it with the same `work` as real ones, so that every law of the algorithm, of time and
of failure can be tested in seconds against exact answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from afedpg.messages import AgentState, Evaluation, Exchange, Floats, Occasion, Report, Statistics, Stats, Task, Vector
from afedpg.seeding import branch, freeze, stream, thaw

BLOCK = 512  # random numbers an agent draws at once: waking a generator for every sample costs more than the sample
LEAST = 8  # samples, however many numbers one needs


class Problem(Protocol):
    @property
    def parameters(self) -> int: ...

    @property
    def optimum(self) -> float:
        """J*, the supremum of J."""

    @property
    def width(self) -> int:
        """Random numbers one sample needs."""

    def initial_theta(self) -> Vector: ...

    def value(self, theta: Vector) -> float:
        """J(theta), exact."""

    def gradient(self, theta: Vector) -> Vector:
        """grad J(theta), exact."""

    def draw(self, generator: np.random.Generator, samples: int) -> Vector:
        """The randomness of that many samples, [samples, width]."""

    def sample(self, theta: Floats, draw: Vector) -> tuple[Floats, float]:
        """An unbiased estimate of grad J and the reward behind it."""


@dataclass(frozen=True)
class ProblemWorkload:
    """Agents of a synthetic problem. State: the stream, a block of draws, and how many of them are used."""

    problem: Problem
    seed: int
    cost: float = 1.0
    steps: int = 1  # samples that one gradient is the mean of
    sites: tuple[Problem, ...] = ()  # what agents 0, 1, ... sample, in turn, where they differ

    @property
    def parameters(self) -> int:
        return self.problem.parameters

    @property
    def exchange(self) -> Exchange:
        return Exchange()

    def check(self) -> None:
        """There is nothing in which agents could differ."""

    def initial_theta(self) -> Vector:
        return self.problem.initial_theta()

    def start(self, agent_id: int) -> AgentState:
        return self._refill(stream(self.seed, "agent", agent_id))

    def renew(self, state: AgentState, life: int) -> AgentState:
        return self._refill(thaw(branch(state["stream"], life)))

    def _refill(self, generator: np.random.Generator) -> AgentState:
        draws = self.problem.draw(generator, max(LEAST, BLOCK // self.problem.width))
        return {"stream": freeze(generator), "draws": draws, "used": np.zeros(1, np.int64)}

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        return state

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        problem = self.sites[task.agent_id % len(self.sites)] if self.sites else self.problem
        used, gradients, rewards = state["used"].item(), [], []
        for _ in range(self.steps):
            if used == len(state["draws"]):
                state, used = self._refill(thaw(state["stream"])), 0
            gradient, reward = problem.sample(task.theta, state["draws"][used])
            gradients.append(gradient)
            rewards.append(reward)
            used += 1
        if self.steps > 1:
            gradient = np.asarray(np.mean(gradients, axis=0, dtype=np.float64), np.float32)
        stats = Stats(self.steps, tuple(rewards), (1,) * self.steps)
        state = {**state, "used": np.array([used])}
        return state, Report(task.task_id, task.agent_id, gradient, task.version, {}, stats)

    def evaluate(
        self, theta: Floats, statistics: Statistics, iteration: int, occasion: Occasion = "evaluation"
    ) -> list[Evaluation]:
        """The problem's value; where agents differ, that of each one's."""
        every = {f"agent {agent_id}": site for agent_id, site in enumerate(self.sites)} or {"": self.problem}
        values = {where: problem.value(theta.astype(np.float64)) for where, problem in every.items()}
        return [Evaluation("exact", value, low=value, high=value, environment=w) for w, value in values.items()]

    def export(self, theta: Floats, statistics: Statistics) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        return {"theta": theta}, {"problem": type(self.problem).__name__}
