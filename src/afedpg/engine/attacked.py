"""A workload of which some agents lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from afedpg.agent.attacks.reports import Lie
from afedpg.engine.delegate import Delegate
from afedpg.messages import AgentState, Report, Task, Workload
from afedpg.seeding import branch, stream

_PREFIX = "attack_"  # of what a liar remembers, in its agent's state


@dataclass
class Attacked(Delegate):
    """`inner` for all agents but `liars`, which work as in `world` and send what `lie` makes of it."""

    liars: frozenset[int]
    seed: int
    lie: Lie | None = None
    world: Workload | None = None  # None: that of the honest

    def start(self, agent_id: int) -> AgentState:
        state = self.inner.start(agent_id)
        if agent_id not in self.liars or self.lie is None:
            return state
        return state | _prefixed(self.lie.start(stream(self.seed, "attack", agent_id)))

    def renew(self, state: AgentState, life: int) -> AgentState:
        work, memory = _split(state)
        again = {name: branch(array, life) if name.endswith("stream") else array for name, array in memory.items()}
        return self.inner.renew(work, life) | _prefixed(again)

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        work, memory = _split(state)
        return self._workload(agent_id).prepare(work, agent_id) | _prefixed(memory)

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        work, memory = _split(state)
        work, report = self._workload(task.agent_id).work(work, task)
        if task.agent_id in self.liars and self.lie is not None:
            memory, report = self.lie.tell(memory, report)
        return work | _prefixed(memory), report

    def _workload(self, agent_id: int) -> Workload:
        return self.inner if self.world is None or agent_id not in self.liars else self.world


def _split(state: AgentState) -> tuple[AgentState, AgentState]:
    """What the honest work needs, and what the lie remembers under its own names."""
    work = {name: array for name, array in state.items() if not name.startswith(_PREFIX)}
    memory = {name.removeprefix(_PREFIX): array for name, array in state.items() if name.startswith(_PREFIX)}
    return work, memory


def _prefixed(memory: Mapping[str, NDArray[Any]]) -> AgentState:
    return {_PREFIX + name: array for name, array in memory.items()}
