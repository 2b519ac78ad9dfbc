"""What the server knows, and the same as a tree of plain arrays and numbers for a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from afedpg.messages import (
    OBSERVATIONS,
    AgentState,
    Floats,
    Group,
    Moments,
    Report,
    Statistics,
    Stats,
    TaskId,
    Vector,
)
from afedpg.protocol.encoding import from_bytes, to_bytes
from afedpg.server.aggregators import Memory, decoded
from afedpg.server.moments import PRIOR, Observed, Slot
from afedpg.server.rules import ServerRule


class Share(NamedTuple):
    """A group's part of the state: the state's own arrays, or views of them."""

    group: Group
    place: slice  # in theta
    theta: Vector
    theta_lookahead: Floats
    buffers: Mapping[str, Vector]


@dataclass(slots=True)
class ServerState:
    theta: Vector  # theta_k: what is evaluated, stored and delivered
    theta_lookahead: Floats  # theta~_k: what agents sample with
    buffers: dict[str, Vector]  # what the rule's parts remember; with several groups as "GROUP/NAME"
    groups: tuple[tuple[Group, slice], ...]  # with their places in theta; of the rule
    memory: Memory = field(default_factory=Memory)  # what the aggregator remembers
    statistics: Statistics = field(default_factory=dict)  # merged from all agents, for Tasks
    observed: defaultdict[str, Observed] = field(default_factory=lambda: defaultdict(Observed))  # the same by agent
    iteration: int = 0  # k, server steps
    gradients: int = 0  # contributions that went into them
    unused: int = 0  # contributions that the aggregator dropped
    samples: int = 0  # environment steps behind both
    applied: dict[int, int] = field(default_factory=dict)  # agent -> contributions that were used
    epoch: int = 0
    counter: int = 0
    outstanding: dict[int, tuple[TaskId, int]] = field(default_factory=dict)  # agent -> its Task's id and version
    present: set[int] = field(default_factory=set)  # agents that take part
    absent: set[int] = field(default_factory=set)  # that took part before the server was started again
    late: set[int] = field(default_factory=set)  # those whose Task is of a round that was closed without them
    shares: tuple[Share, ...] = field(init=False)  # by group

    def __post_init__(self) -> None:
        """Once: the arrays are updated in place."""
        if len(self.groups) == 1:
            self.shares = (Share(*self.groups[0], self.theta, self.theta_lookahead, self.buffers),)
        else:
            self.shares = tuple(self._share(group, place) for group, place in self.groups)

    def _share(self, group: Group, place: slice) -> Share:
        start = f"{group.name}/"
        mine = {name.removeprefix(start): array for name, array in self.buffers.items() if name.startswith(start)}
        return Share(group, place, self.theta[place], self.theta_lookahead[place], mine)


def initial_state(rule: ServerRule, theta: Vector) -> ServerState:
    theta = np.array(theta, dtype=np.float64)
    memory = Memory(rule.aggregator.start(theta.size))
    return ServerState(theta, theta.astype(np.float32), _buffers(rule, theta.size), rule.groups(theta.size), memory)


def _buffers(rule: ServerRule, parameters: int) -> dict[str, Vector]:
    groups = rule.groups(parameters)
    if len(groups) == 1:
        return rule.step.buffers(parameters)
    steps = (group for group, _ in groups if group.kind == "step")
    return {f"{group.name}/{name}": array for group in steps for name, array in rule.step.buffers(group.size).items()}


def buffer_names(rule: ServerRule, parameters: int) -> dict[str, set[str]]:
    """What the rule's parts and its aggregator remember, by the part to blame where a checkpoint has other names."""
    return {"method": set(_buffers(rule, parameters)), "aggregator": set(rule.aggregator.start(parameters))}


def begin_with(state: ServerState, statistics: Statistics) -> None:
    """Statistics from before the run: of another run, or of a checkpoint that does not know whose they are."""
    state.statistics = dict(statistics)
    state.observed.clear()
    state.observed.update({name: Observed({PRIOR: Slot(1, moments)}) for name, moments in statistics.items()})


def local_statistics(state: ServerState) -> dict[str, Moments]:
    """With each agent's own observations, as "observations/AGENT": for who evaluates at a site with its own scaling."""
    slots = state.observed[OBSERVATIONS].slots if OBSERVATIONS in state.observed else {}
    own = {f"{OBSERVATIONS}/{agent_id}": slot.moments for agent_id, slot in slots.items()}
    return {**state.statistics, **own}


def to_tree(state: ServerState) -> dict[str, Any]:
    """What the aggregator remembers is part of it: for rounds, N vectors of theta's length at most."""
    rows = [(agent_id, version, *task_id) for agent_id, (task_id, version) in state.outstanding.items()]
    memory = state.memory
    return {
        "theta": state.theta,
        "theta_lookahead": state.theta_lookahead,
        "buffers": state.buffers,
        "statistics": statistics_to_tree(state.statistics),
        "observed": {name: _observed_to_tree(observed) for name, observed in state.observed.items()},
        "iteration": state.iteration,
        "gradients": state.gradients,
        "unused": state.unused,
        "samples": state.samples,
        "applied": np.array(list(state.applied.items()), np.int64).reshape(-1, 2),
        "epoch": state.epoch,
        "counter": state.counter,
        "outstanding": np.array(rows, np.int64).reshape(-1, 4),
        "present": sorted(state.present),
        "absent": sorted(state.absent),
        "late": sorted(state.late),
        "memory": {
            "arrays": memory.arrays,
            "slots": {str(agent_id): vector for agent_id, vector in memory.slots.items()},
            "kept": [np.frombuffer(to_bytes(given.report), np.uint8) for given in memory.kept],
        },
    }


def from_tree(tree: dict[str, Any], rule: ServerRule | None = None) -> ServerState:
    """Without the rule it was made with, a state to look at: its groups and its aggregator's reports are left out."""
    rows = tree["outstanding"].tolist()
    theta = tree["theta"]
    outstanding = {agent_id: (TaskId(epoch, counter), version) for agent_id, version, epoch, counter in rows}
    state = ServerState(
        theta=theta,
        theta_lookahead=tree["theta_lookahead"],
        buffers=tree["buffers"],
        groups=() if rule is None else rule.groups(theta.size),
        memory=_memory_from_tree(tree, rule, theta.size),
        iteration=tree["iteration"],
        gradients=tree["gradients"],
        unused=tree.get("unused", 0),
        samples=tree["samples"],
        applied=dict(tree["applied"].tolist()) if "applied" in tree else {},
        epoch=tree["epoch"],
        counter=tree["counter"],
        outstanding=outstanding,
        absent=set(tree.get("absent", ())),
        late=set(tree.get("late", ())),
    )
    state.present = set(tree["present"]) if "present" in tree else {*outstanding, *(k.agent for k in state.memory.kept)}
    begin_with(state, statistics_from_tree(tree["statistics"]))
    observed = tree.get("observed", {})
    if "agents" in observed:  # of 0.1.0: the observations alone
        observed = {OBSERVATIONS: observed}
    state.observed.update({name: _observed_from_tree(part) for name, part in observed.items()})
    return state


def _memory_from_tree(tree: dict[str, Any], rule: ServerRule | None, parameters: int) -> Memory:
    stored = tree.get("memory", {})
    reports = [from_bytes(data.tobytes()) for data in stored.get("kept", ())]
    reports += [_report_of_0_1_0(report) for report in tree.get("waiting", ())]
    kept = [] if rule is None else [decoded(report, rule.exchange.codec, rule.groups(parameters)) for report in reports]
    slots = {int(agent_id): vector for agent_id, vector in stored.get("slots", {}).items()}
    return Memory(stored.get("arrays", {}), slots, kept)


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


def _report_of_0_1_0(tree: dict[str, Any]) -> Report:
    """As a checkpoint of 0.1.0 has the reports of an open round."""
    agent_id, version, epoch, counter = tree["task"]
    steps, returns, lengths, extra = tree["stats"]
    stats = Stats(steps, tuple(returns), tuple(lengths), extra)
    moments = statistics_from_tree(tree["moments"])
    return Report(TaskId(epoch, counter), agent_id, tree["gradient"], version, moments, stats)


def statistics_to_tree(statistics: Statistics) -> AgentState:
    """As flat arrays, "NAME.mean" and so on."""
    return {
        f"{name}.{part}": np.asarray(getattr(moments, part), np.float64)
        for name, moments in statistics.items()
        for part in ("count", "mean", "m2")
    }


def statistics_from_tree(tree: AgentState) -> dict[str, Moments]:
    if "count" in tree:  # of 0.1.0: the observations alone
        tree = {f"{OBSERVATIONS}.{part}": array for part, array in tree.items()}
    names = dict.fromkeys(key.rpartition(".")[0] for key in tree)
    return {name: Moments(float(tree[f"{name}.count"]), tree[f"{name}.mean"], tree[f"{name}.m2"]) for name in names}
