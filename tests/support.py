"""Small words the laws are written in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from afedpg.messages import Event, Floats, Join, Report, Task, Vector
from afedpg.server.admission import Limits
from afedpg.server.fold import step
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState, initial_state


class Fold:
    """A server at work: events go in, Tasks come out, each with a theta~ of its own."""

    def __init__(self, rule: ServerRule, theta: Iterable[float], agents: int = 1, limits: Limits = Limits()) -> None:
        self.rule, self.limits = rule, limits
        self.state: ServerState = initial_state(rule, np.array(list(theta), np.float64))
        self.tasks: dict[int, Task] = {}  # the newest of each agent
        for agent_id in range(agents):
            self(Join(agent_id))

    def __call__(self, event: Event) -> list[Task]:
        self.state, self.outcome = step(self.rule, self.state, event, self.limits)
        own = [Task(t.task_id, t.agent_id, t.theta.copy(), t.version, t.statistics) for t in self.outcome.tasks]
        self.tasks |= {task.agent_id: task for task in own}
        return own

    def answer(self, agent_id: int, gradient: Iterable[float]) -> list[Task]:
        return self(answer(self.tasks[agent_id], gradient))

    @property
    def theta(self) -> Vector:
        return self.state.theta.copy()

    @property
    def bits(self) -> str:
        """Of everything the next step depends on."""
        parts = [self.state.theta, self.state.theta_lookahead, *self.state.buffers.values()]
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def answer(task: Task, gradient: Iterable[float] | Floats, **more: object) -> Report:
    return Report(task.task_id, task.agent_id, np.array(gradient, np.float32), task.version, **more)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: (step, value) by curve."""
    module = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    accumulator = module.EventAccumulator(str(folder)).Reload()
    return {
        tag: [(point.step, round(point.value, 5)) for point in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
