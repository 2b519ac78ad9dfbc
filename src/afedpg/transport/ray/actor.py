"""An agent in a process of the cluster."""

from __future__ import annotations

import pickle
import platform
from typing import Any

import ray

from afedpg.engine.process import one_thread
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import AgentState, Floats, Task
from afedpg.protocol.encoding import to_bytes

INLINE_BYTES = 100 << 10  # what Ray sends with a call or its answer instead of through the object store


def packed(value: Any, size: int) -> Any:
    """Something small as bytes, which Ray passes on as they are: its own way of pickling takes longer than the rest of
    a call. Something large as it is, so that its arrays are not copied.
    """
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL) if size <= INLINE_BYTES else value


def unpacked(value: Any) -> Any:
    return pickle.loads(value) if isinstance(value, bytes) else value


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
    def work(self, content: bytes, theta: Floats | None = None) -> tuple[bytes, Any]:
        """A Task to a Report and the state after it, all packed; `theta` is the Task's where it was stored."""
        task: Task = unpacked(content)
        if theta is not None:
            task = task._replace(theta=theta)
        self._state, report = self._workload.work(self._state, task)
        size = sum(array.nbytes for array in self._state.values())
        return to_bytes(report), packed(self._state, size)

    def prepare(self, agent_id: int) -> None:
        """What an agent that fetches late does before it asks for a Task. Its state before it can be had again."""
        self._state = self._workload.prepare(self._state, agent_id)
