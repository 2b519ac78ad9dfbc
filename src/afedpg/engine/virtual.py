"""The virtual engine: simulated time in integer nanoseconds, exact and reproducible.

A heap of what happens next: agents join, leave, and finish their work. Ties break on the agent's number. Between events
nothing happens, so a crew of workers may compute whoever is out ahead of time without changing a bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from afedpg.engine.crew import Crew, Job
from afedpg.engine.federation import Federation
from afedpg.engine.process import DeadEnd
from afedpg.engine.timing import Timing
from afedpg.errors import AfedpgError
from afedpg.messages import AgentState, Event, Join, Leave, Task, TaskId, Workload
from afedpg.record.states import stack_states, unstack_states
from afedpg.server.state import moments_from_tree, moments_to_tree

NANOSECONDS = 1_000_000_000
LAST = 2**63 - 1  # nanosecond a checkpoint can hold: 292 years
MOST_REFUSALS = 10  # per agent, with no gradient applied: theta stands still, so what is refused stays refused


class Kind(IntEnum):
    """In the order they happen when they happen at the same instant."""

    LEAVE = 0
    JOIN = 1
    FINISH = 2


class Happening(NamedTuple):
    nanoseconds: int
    kind: int
    agent_id: int
    counter: int = 0  # of the Task that is finished


@dataclass
class VirtualEngine:
    federation: Federation
    workload: Workload
    crew: Crew
    timing: Timing
    agents: int
    nanoseconds: int = 0
    heap: list[Happening] = field(default_factory=list)
    states: list[AgentState] = field(default_factory=list)  # each from before the agent's outstanding Task
    tasks: dict[int, Task] = field(default_factory=dict)  # outstanding, with a theta~ of their own
    handed_out: list[int] = field(default_factory=list)  # how many Tasks each agent was given
    refused: Counter[int] = field(default_factory=Counter)  # agent -> reports, since a gradient was last applied
    consistent: bool = True  # between events: only then may the run be stored

    @property
    def seconds(self) -> float:
        return self.nanoseconds / NANOSECONDS

    def start(self) -> None:
        """Nobody has joined yet; everyone is about to."""
        self.states = [self.workload.start(agent_id) for agent_id in range(self.agents)]
        self.handed_out = [0] * self.agents
        for agent_id in range(self.agents):
            self._schedule(round(self.timing.joins.get(agent_id, 0.0) * NANOSECONDS), Kind.JOIN, agent_id)
        for agent_id, seconds in self.timing.leaves.items():
            self._schedule(round(seconds * NANOSECONDS), Kind.LEAVE, agent_id)

    def run(self, finished: Callable[[], bool]) -> None:
        """Events in virtual order until `finished`, which is asked before each and may raise to stop."""
        while not finished():
            if not self.heap:
                raise DeadEnd("no agent is left that will ever answer; check --silent, --drop and the timing model")
            if self.crew.ahead:
                self.crew.prefetch(self._upcoming(self.crew.ahead))
            self._happen()

    def _happen(self) -> None:
        """One event. If the agent's work raises, nothing has changed and the run can be stored as it is."""
        happening = self.heap[0]
        agent_id = happening.agent_id
        event: Event | None = None  # an agent that left before it was done
        if happening.kind == Kind.JOIN:
            event = Join(agent_id)
        elif happening.kind == Kind.LEAVE:
            event = Leave(agent_id)
        elif self._is_out(happening):
            state, event = self.crew.collect(Job(self.states[agent_id], self.tasks[agent_id]))
        self.consistent = False
        heappop(self.heap)
        self.nanoseconds = happening.nanoseconds
        if event is not None:
            if happening.kind == Kind.FINISH:
                self.states[agent_id] = state
            self.tasks.pop(agent_id, None)
            for task in self.federation.apply(event, self.seconds):
                self._hand_out(task)
        self.consistent = True
        if event is not None:
            self._count_refusals()

    def _count_refusals(self) -> None:
        """The end, once everybody who is at work was refused: one whose report is yet to come may be believed."""
        server = self.federation.server
        if server.arrivals:
            self.refused.clear()
        elif server.rejected is not None:
            agent_id, reason = server.rejected.agent_id, server.rejected.reason
            self.refused[agent_id] += 1
            count = self.refused.total()
            if count >= MOST_REFUSALS * self.agents and self.refused.keys() >= self._at_work():
                raise DeadEnd(f"{count} reports in a row refused, the last of agent {agent_id}: {reason}")

    def _at_work(self) -> set[int]:
        """Those whose report will come."""
        return {item.agent_id for item in self.heap if item.kind == Kind.FINISH and self._is_out(item)}

    def _is_out(self, happening: Happening) -> bool:
        task = self.tasks.get(happening.agent_id)
        return task is not None and task.task_id.counter == happening.counter

    def _hand_out(self, task: Task) -> None:
        """The agent keeps its own theta~, takes its seconds, and finishes when they are over."""
        agent_id = task.agent_id
        self.tasks[agent_id] = replace(task, theta=task.theta.copy())
        seconds = self.timing.seconds(agent_id, self.handed_out[agent_id]) * self.workload.cost
        self.handed_out[agent_id] += 1
        if not seconds > 0:
            raise AfedpgError(f"the timing model gave agent {agent_id} {seconds} seconds; must be above 0")
        if math.isfinite(seconds):
            # Time must pass, or an event could come before its own cause; what is beyond LAST is refused below.
            takes = max(1, round(min(seconds * NANOSECONDS, 2.0 * LAST)))
            self._schedule(self.nanoseconds + takes, Kind.FINISH, agent_id, task.task_id.counter)

    def _schedule(self, nanoseconds: int, kind: Kind, agent_id: int, counter: int = 0) -> None:
        if nanoseconds > LAST:
            raise AfedpgError(f"agent {agent_id} is busy beyond 292 virtual years; give the timing model fewer seconds")
        heappush(self.heap, Happening(nanoseconds, kind, agent_id, counter))

    def _upcoming(self, count: int) -> list[Job]:
        """The next few agents to finish, in order."""
        popped = [heappop(self.heap) for _ in range(min(count, len(self.heap)))]
        for happening in popped:
            heappush(self.heap, happening)
        out = [item.agent_id for item in popped if item.kind == Kind.FINISH and self._is_out(item)]
        return [Job(self.states[agent_id], self.tasks[agent_id]) for agent_id in out]

    def to_tree(self) -> dict[str, Any]:
        """Everything a run needs to go on, as plain arrays and numbers."""
        tasks = [self.tasks[agent_id] for agent_id in sorted(self.tasks)]
        parameters = self.workload.parameters
        return {
            "nanoseconds": self.nanoseconds,
            "heap": np.array(sorted(self.heap), np.int64).reshape(-1, 4),
            "handed_out": np.array(self.handed_out, np.int64),
            "agents": stack_states(self.states),
            "tasks": {
                "ids": np.array([(t.agent_id, t.version, *t.task_id) for t in tasks], np.int64).reshape(-1, 4),
                "theta": np.array([t.theta for t in tasks], np.float32).reshape(-1, parameters),
                "statistics": stack_states([moments_to_tree(task.statistics) for task in tasks]),
            },
        }

    def from_tree(self, tree: dict[str, Any]) -> None:
        self.nanoseconds = tree["nanoseconds"]
        self.heap = [Happening(*(int(number) for number in row)) for row in tree["heap"]]  # sorted is a heap
        self.handed_out = [int(count) for count in tree["handed_out"]]
        self.states = unstack_states(tree["agents"])
        tasks = tree["tasks"]
        rows = zip(tasks["ids"].tolist(), tasks["theta"], unstack_states(tasks["statistics"]), strict=True)
        for (agent_id, version, epoch, counter), theta, statistics in rows:
            moments = moments_from_tree(statistics)
            self.tasks[agent_id] = Task(TaskId(epoch, counter), agent_id, np.array(theta), version, moments)
