"""What the server knows, and the same as a tree of plain arrays and numbers for a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from afedpg.messages import AgentState, Arrival, Floats, Moments, Rejected, Report, Stats, TaskId, Vector
from afedpg.server.moments import PRIOR, Observed, Slot
from afedpg.server.rules import ServerRule


@dataclass(slots=True)
class ServerState:
    theta: Vector  # theta_k: what is evaluated, stored and delivered
    theta_lookahead: Floats  # theta~_k: what agents sample with
    buffers: dict[str, Vector]  # what the rule's parts remember
    statistics: Moments | None = None  # of the observations of all agents, for Tasks
    observed: Observed = field(default_factory=Observed)  # the same by agent
    iteration: int = 0  # k, server steps
    gradients: int = 0  # applied
    samples: int = 0  # environment steps behind them
    applied: dict[int, int] = field(default_factory=dict)  # agent -> gradients applied
    epoch: int = 0
    counter: int = 0
    outstanding: dict[int, tuple[TaskId, int]] = field(default_factory=dict)  # agent -> its Task's id and version
    late: set[int] = field(default_factory=set)  # those whose Task is of a round that was closed without them
    waiting: dict[int, Report] = field(default_factory=dict)  # agent -> its gradient in the open round
    arrivals: list[Arrival] = field(default_factory=list)  # what the last event applied
    rejected: Rejected | None = None  # what the last event was refused for


def initial_state(rule: ServerRule, theta: Vector) -> ServerState:
    theta = np.array(theta, dtype=np.float64)
    return ServerState(theta, theta.astype(np.float32), rule.step.buffers(theta.size))


def begin_with(state: ServerState, statistics: Moments | None) -> None:
    """Statistics from before the run: of another run, or of a checkpoint that does not know whose they are."""
    state.statistics = statistics
    state.observed = Observed({} if statistics is None else {PRIOR: Slot(1, statistics)})


def to_tree(state: ServerState) -> dict[str, Any]:
    """A copy of the gradients of an open round is part of it: N vectors of theta's length at most."""
    rows = [(agent_id, version, *task_id) for agent_id, (task_id, version) in state.outstanding.items()]
    return {
        "theta": state.theta,
        "theta_lookahead": state.theta_lookahead,
        "buffers": state.buffers,
        "statistics": moments_to_tree(state.statistics),
        "observed": _observed_to_tree(state.observed),
        "iteration": state.iteration,
        "gradients": state.gradients,
        "samples": state.samples,
        "applied": np.array(list(state.applied.items()), np.int64).reshape(-1, 2),
        "epoch": state.epoch,
        "counter": state.counter,
        "outstanding": np.array(rows, np.int64).reshape(-1, 4),
        "late": sorted(state.late),
        "waiting": [_report_to_tree(report) for report in state.waiting.values()],
    }


def from_tree(tree: dict[str, Any]) -> ServerState:
    rows = tree["outstanding"].tolist()
    state = ServerState(
        theta=tree["theta"],
        theta_lookahead=tree["theta_lookahead"],
        buffers=tree["buffers"],
        iteration=tree["iteration"],
        gradients=tree["gradients"],
        samples=tree["samples"],
        applied=dict(tree["applied"].tolist()) if "applied" in tree else {},
        epoch=tree["epoch"],
        counter=tree["counter"],
        outstanding={agent_id: (TaskId(epoch, counter), version) for agent_id, version, epoch, counter in rows},
        waiting={report.agent_id: report for report in map(_report_from_tree, tree.get("waiting", ()))},
    )
    state.late = set(tree.get("late", ()))
    begin_with(state, moments_from_tree(tree["statistics"]))
    if "observed" in tree:
        state.observed = _observed_from_tree(tree["observed"])
    return state


def _observed_to_tree(observed: Observed) -> dict[str, Any]:
    slots = list(observed.slots.values())
    arrays = {name: np.array([getattr(slot.moments, name) for slot in slots]) for name in ("count", "mean", "m2")}
    rows = [(agent_id, slot.reports) for agent_id, slot in observed.slots.items()]
    agents = np.array(rows, np.int64).reshape(-1, 2)
    return {**arrays, "agents": agents, "aside": sorted(observed.aside), "reports": observed.reports}


def _observed_from_tree(tree: dict[str, Any]) -> Observed:
    moments = (
        Moments(float(count), np.array(mean), np.array(m2))
        for count, mean, m2 in zip(tree["count"], tree["mean"], tree["m2"], strict=True)
    )
    slots = {agent: Slot(n, part) for (agent, n), part in zip(tree["agents"].tolist(), moments, strict=True)}
    return Observed(slots, frozenset(tree["aside"]), tree["reports"])


def _report_to_tree(report: Report) -> dict[str, Any]:
    stats = report.stats
    return {
        "task": [report.agent_id, report.version, *report.task_id],
        "gradient": report.gradient,
        "moments": moments_to_tree(report.moments),
        "stats": [stats.steps, list(stats.returns), list(stats.lengths), stats.extra],
    }


def _report_from_tree(tree: dict[str, Any]) -> Report:
    agent_id, version, epoch, counter = tree["task"]
    steps, returns, lengths, extra = tree["stats"]
    stats = Stats(steps, tuple(returns), tuple(lengths), extra)
    moments = moments_from_tree(tree["moments"])
    return Report(TaskId(epoch, counter), agent_id, tree["gradient"], version, moments, stats)


def moments_to_tree(moments: Moments | None) -> AgentState:
    """Empty where there are none."""
    return {} if moments is None else {"count": np.array(moments.count), "mean": moments.mean, "m2": moments.m2}


def moments_from_tree(tree: AgentState) -> Moments | None:
    return Moments(float(tree["count"]), tree["mean"], tree["m2"]) if tree else None
