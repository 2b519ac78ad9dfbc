"""The virtual engine: simulated time in integer nanoseconds, exact and reproducible.

A heap of what happens next: agents join, leave, and finish their work. Ties break on the agent's number. Between events
nothing happens, so a crew of workers may compute whoever is out ahead of time without changing a bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from afedpg.agent.attacks.omniscient import Adversary
from afedpg.engine.crew import Crew, Job
from afedpg.engine.federation import Federation
from afedpg.engine.process import DeadEnd
from afedpg.engine.timing import Timing
from afedpg.errors import AfedpgError
from afedpg.messages import AgentState, Event, Fetch, Join, Leave, Outcome, Rejected, Report, Task, TaskId, Workload
from afedpg.own_parts import name_of
from afedpg.record.states import stack_states, unstack_states
from afedpg.server.state import statistics_from_tree, statistics_to_tree

NANOSECONDS = 1_000_000_000
LAST = 2**63 - 1  # nanosecond a checkpoint can hold: 292 years
_BEYOND = 2.0 * LAST
MOST_REFUSALS = 10  # per agent, with no gradient applied: theta stands still, so what is refused stays refused
MOST_KEPT = 10_000  # events per agent without a server step


# What happens, in the order in which it does at the same instant. Numbers: an enum's names are looked up in Python.
LEAVE = 0
JOIN = 1
FINISH = 2
FETCH = 3


class Happening(NamedTuple):
    nanoseconds: int
    kind: int
    agent_id: int
    counter: int = 0  # of the Task that is finished; of a fetch, how many Tasks the agent was handed out before


@dataclass
class VirtualEngine:
    federation: Federation
    workload: Workload
    crew: Crew
    timing: Timing
    agents: int
    adversary: Adversary | None = None  # sees every report, and changes some
    nanoseconds: int = 0
    heap: list[Happening] = field(default_factory=list)
    states: list[AgentState] = field(default_factory=list)  # each from before what the agent is doing
    tasks: dict[int, Task] = field(default_factory=dict)  # outstanding, with a theta~ of their own
    handed_out: list[int] = field(default_factory=list)  # how many Tasks each agent was given
    pace: list[float] = field(default_factory=list)  # seconds of each agent's present gradient, where it fetches late
    refused: Counter[int] = field(default_factory=Counter)  # agent -> reports, since a gradient was last applied
    kept: int = 0  # events since a contribution was used, or dropped
    consistent: bool = True  # between events: only then may the run be stored

    @property
    def seconds(self) -> float:
        return self.nanoseconds / NANOSECONDS

    def start(self) -> None:
        """Schedules every agent's join."""
        self.states = [self.workload.start(agent_id) for agent_id in range(self.agents)]
        self.handed_out, self.pace = [0] * self.agents, [0.0] * self.agents
        for agent_id in range(self.agents):
            self._schedule(round(self.timing.joins.get(agent_id, 0.0) * NANOSECONDS), JOIN, agent_id)
        for agent_id, seconds in self.timing.leaves.items():
            self._schedule(round(seconds * NANOSECONDS), LEAVE, agent_id)

    def run(self, finished: Callable[[], bool]) -> None:
        """Events in virtual order until `finished`, which is asked before each and may raise to stop."""
        while not finished():
            if not self.heap:
                raise DeadEnd(self._why_nobody_answers())
            if self.crew.ahead:
                self.crew.prefetch(self._upcoming(self.crew.ahead))
            self._happen()

    def _why_nobody_answers(self) -> str:
        why = "no agent is left that will ever answer; check --silent, --drop and the timing model"
        return f"{why}, and {self._what_is_kept()}" if self.federation.open_round else why

    def _what_is_kept(self) -> str:
        aggregator, kept = self.federation.rule.aggregator, len(self.federation.server.memory.kept)
        return f"the aggregator {name_of(aggregator)}, which keeps {kept} reports"

    def _happen(self) -> None:
        """One event. If the agent's work raises, nothing has changed and the run can be stored as it is."""
        happening = self.heap[0]
        kind, agent_id = happening.kind, happening.agent_id
        event: Event | None = None  # an agent that left before it was done
        if kind == JOIN:
            event = Join(agent_id)
        elif kind == LEAVE:
            event = Leave(agent_id)
        elif self._is_out(happening):
            state, event = self.crew.collect(self._job(agent_id))
            event = event or Fetch(agent_id)
        self.consistent = False
        heappop(self.heap)
        self.nanoseconds = happening.nanoseconds
        if event is None:
            self.consistent = True
            return
        if kind >= FINISH:
            self.states[agent_id] = state
        self.tasks.pop(agent_id, None)
        if self.adversary is not None and isinstance(event, Report):
            event = self.adversary(event)
        outcome = self.federation.apply(event, self.seconds)
        for task in outcome.tasks:
            self._hand_out(task, fetched=kind == FETCH)
        if kind == FINISH and self.late_fetch and agent_id not in self.tasks:
            self._sample(agent_id)
        self.consistent = True
        self._look_for_a_dead_end(outcome)

    @cached_property
    def late_fetch(self) -> bool:
        return self.workload.exchange.late_fetch

    def _look_for_a_dead_end(self, outcome: Outcome) -> None:
        if outcome.arrivals or outcome.unused:
            self.refused.clear()
            self.kept = 0
            return
        if outcome.waits is not None:
            self.refused.clear()
        elif outcome.rejected is not None:
            self._count_refusal(outcome.rejected)
        self.kept += 1
        if self.kept > MOST_KEPT * self.agents:  # an aggregator that only ever keeps what agents send
            raise DeadEnd(f"no step was made of the last {self.kept} events; check {self._what_is_kept()}")

    def _count_refusal(self, rejected: Rejected) -> None:
        """The end, once everybody who is at work was refused: one whose report is yet to come may be believed."""
        self.refused[rejected.agent_id] += 1
        count = self.refused.total()
        if count >= MOST_REFUSALS * self.agents and self.refused.keys() >= self._at_work():
            text = f"{count} reports in a row refused, the last of agent {rejected.agent_id}: {rejected.reason}"
            raise DeadEnd(text)

    def _at_work(self) -> set[int]:
        """Those whose report will come."""
        return {item.agent_id for item in self.heap if item.kind >= FINISH and self._is_out(item)}

    def _is_out(self, happening: Happening) -> bool:
        """Whether the agent is still doing what it was scheduled for."""
        task = self.tasks.get(happening.agent_id)
        if happening.kind == FETCH:
            left = happening.agent_id not in self.federation.server.present
            return task is None and not left and happening.counter == self.handed_out[happening.agent_id]
        return task is not None and task.task_id.counter == happening.counter

    def _job(self, agent_id: int) -> Job:
        return Job(agent_id, self.handed_out[agent_id], self.states[agent_id], self.tasks.get(agent_id))

    def _hand_out(self, task: Task, fetched: bool) -> None:
        """The agent keeps its own theta~, takes its seconds, and finishes when they are over."""
        agent_id = task.agent_id
        own = task.theta.copy()
        self.tasks[agent_id] = Task(task.task_id, agent_id, own, task.version, task.statistics)
        if not fetched:
            self.pace[agent_id] = self._seconds(agent_id)
        self.handed_out[agent_id] += 1
        seconds = self.pace[agent_id] * (self.timing.update_share if fetched else 1.0)
        self._in(seconds, FINISH, agent_id, task.task_id.counter)

    def _sample(self, agent_id: int) -> None:
        """The agent goes on with parameters of its own, and asks for the newest when it has sampled."""
        self.pace[agent_id] = self._seconds(agent_id)
        seconds = self.pace[agent_id] * (1 - self.timing.update_share)
        self._in(seconds, FETCH, agent_id, self.handed_out[agent_id])

    def _seconds(self, agent_id: int) -> float:
        """Of the agent's next gradient."""
        up, down = self._bytes
        n = self.handed_out[agent_id]
        seconds = self.timing.seconds(agent_id, n, self.seconds, up, down) * self.workload.cost
        if not seconds > 0:
            raise AfedpgError(f"the timing model gave agent {agent_id} {seconds} seconds; must be above 0")
        if self.timing.transfer is not None:
            seconds += self.timing.transfer(agent_id, n, self.seconds, up, down)
        return seconds

    @cached_property
    def _bytes(self) -> tuple[int, int]:
        """Of a report and of a Task, nominally: a payload does not exist yet when its seconds are asked for."""
        exchange, parameters = self.workload.exchange, self.workload.parameters
        moments = sum(8 + 16 * quantities for quantities in exchange.statistics.values())
        up = exchange.codec.nbytes(parameters) + moments + 8 * len(exchange.scalars)
        return up, 4 * parameters + moments

    def _in(self, seconds: float, kind: int, agent_id: int, counter: int) -> None:
        if math.isfinite(seconds):
            # Time must pass, or an event could come before its own cause; what is beyond LAST is refused below.
            takes = round(min(seconds * NANOSECONDS, _BEYOND)) or 1
            self._schedule(self.nanoseconds + takes, kind, agent_id, counter)

    def _schedule(self, nanoseconds: int, kind: int, agent_id: int, counter: int = 0) -> None:
        if nanoseconds > LAST:
            raise AfedpgError(f"agent {agent_id} is busy beyond 292 virtual years; give the timing model fewer seconds")
        heappush(self.heap, Happening(nanoseconds, kind, agent_id, counter))

    def _upcoming(self, count: int) -> list[Job]:
        """The next few agents to finish, in order."""
        popped = [heappop(self.heap) for _ in range(min(count, len(self.heap)))]
        for happening in popped:
            heappush(self.heap, happening)
        return [self._job(item.agent_id) for item in popped if item.kind >= FINISH and self._is_out(item)]

    def to_tree(self) -> dict[str, Any]:
        """Everything a run needs to go on, as plain arrays and numbers."""
        tasks = [self.tasks[agent_id] for agent_id in sorted(self.tasks)]
        parameters = self.workload.parameters
        return {
            "nanoseconds": self.nanoseconds,
            "heap": np.array(sorted(self.heap), np.int64).reshape(-1, 4),
            "handed_out": np.array(self.handed_out, np.int64),
            "pace": np.array(self.pace, np.float64),
            "agents": stack_states(self.states),
            "adversary": {} if self.adversary is None else self.adversary.to_tree(),
            "tasks": {
                "ids": np.array([(t.agent_id, t.version, *t.task_id) for t in tasks], np.int64).reshape(-1, 4),
                "theta": np.array([t.theta for t in tasks], np.float32).reshape(-1, parameters),
                "statistics": stack_states([statistics_to_tree(task.statistics) for task in tasks]),
            },
        }

    def from_tree(self, tree: dict[str, Any]) -> None:
        self.nanoseconds = tree["nanoseconds"]
        self.heap = [Happening(*(int(number) for number in row)) for row in tree["heap"]]  # sorted is a heap
        self.handed_out = [int(count) for count in tree["handed_out"]]
        self.pace = [float(seconds) for seconds in tree.get("pace", [0.0] * self.agents)]
        self.states = unstack_states(tree["agents"])
        if self.adversary is not None:
            self.adversary.from_tree(tree["adversary"])
        tasks = tree["tasks"]
        rows = zip(tasks["ids"].tolist(), tasks["theta"], unstack_states(tasks["statistics"]), strict=True)
        for (agent_id, version, epoch, counter), theta, statistics in rows:
            merged = statistics_from_tree(statistics)
            self.tasks[agent_id] = Task(TaskId(epoch, counter), agent_id, np.array(theta), version, merged)
