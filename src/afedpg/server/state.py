"""What the server knows, and the same as a tree of plain arrays and numbers for a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from afedpg.messages import AgentState, Arrival, Floats, Moments, Rejected, Report, TaskId, Vector
from afedpg.server.rules import ServerRule


@dataclass(slots=True)
class ServerState:
    theta: Vector  # theta_k: what is evaluated, stored and delivered
    theta_lookahead: Floats  # theta~_k: what agents sample with
    buffers: dict[str, Vector]  # what the rule's parts remember
    statistics: Moments | None = None
    iteration: int = 0  # k, server steps
    gradients: int = 0  # applied
    samples: int = 0  # environment steps behind them
    epoch: int = 0
    counter: int = 0
    outstanding: dict[int, tuple[TaskId, int]] = field(default_factory=dict)  # agent -> its Task's id and version
    waiting: dict[int, Report] = field(default_factory=dict)  # agent -> its gradient in the open round
    arrivals: list[Arrival] = field(default_factory=list)  # what the last event applied
    rejected: Rejected | None = None  # what the last event was refused for


def initial_state(rule: ServerRule, theta: Vector) -> ServerState:
    theta = np.array(theta, dtype=np.float64)
    return ServerState(theta, theta.astype(np.float32), rule.step.buffers(theta.size))


def to_tree(state: ServerState) -> dict[str, Any]:
    """Between rounds only: the gradients of an open one are in the journal, not here."""
    if state.waiting:
        raise ValueError("a synchronous round is open")
    rows = [(agent_id, version, *task_id) for agent_id, (task_id, version) in state.outstanding.items()]
    return {
        "theta": state.theta,
        "theta_lookahead": state.theta_lookahead,
        "buffers": state.buffers,
        "statistics": moments_to_tree(state.statistics),
        "iteration": state.iteration,
        "gradients": state.gradients,
        "samples": state.samples,
        "epoch": state.epoch,
        "counter": state.counter,
        "outstanding": np.array(rows, np.int64).reshape(-1, 4),
    }


def from_tree(tree: dict[str, Any]) -> ServerState:
    rows = tree["outstanding"].tolist()
    return ServerState(
        theta=tree["theta"],
        theta_lookahead=tree["theta_lookahead"],
        buffers=tree["buffers"],
        statistics=moments_from_tree(tree["statistics"]),
        iteration=tree["iteration"],
        gradients=tree["gradients"],
        samples=tree["samples"],
        epoch=tree["epoch"],
        counter=tree["counter"],
        outstanding={agent_id: (TaskId(epoch, counter), version) for agent_id, version, epoch, counter in rows},
    )


def moments_to_tree(moments: Moments | None) -> AgentState:
    """Empty where there are none."""
    return {} if moments is None else {"count": np.array(moments.count), "mean": moments.mean, "m2": moments.m2}


def moments_from_tree(tree: AgentState) -> Moments | None:
    return Moments(float(tree["count"]), tree["mean"], tree["m2"]) if tree else None
