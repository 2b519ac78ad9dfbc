"""An agent in a process of the cluster."""

from __future__ import annotations

import platform
from dataclasses import replace

import ray

from afedpg.engine.process import one_thread
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import AgentState, Floats, Report, Task


class Actor:
    """Keeps its own state, and hands a copy out with every report: whoever takes its place goes on from there."""

    def __init__(self, build: BuildWorkload, agent_id: int, state: AgentState | None, life: int) -> None:
        """`life` counts how often the agent went on from a state that others had gone on from; see Workload.renew."""
        one_thread()
        self._workload = build()
        self._state = self._workload.start(agent_id) if state is None else state
        if life:
            self._state = self._workload.renew(self._state, life)

    def where(self) -> tuple[str, str]:
        """Host, and Ray's name of the node. Answers once the agent is ready to work."""
        return platform.node(), ray.get_runtime_context().get_node_id()

    @ray.method(num_returns=2)  # type: ignore[untyped-decorator]
    def work(self, task: Task, theta: Floats | None = None) -> tuple[Report, AgentState]:
        """`theta` takes the place of the Task's where it came through the object store."""
        if theta is not None:
            task = replace(task, theta=theta)
        self._state, report = self._workload.work(self._state, task)
        return report, self._state
