"""The server as a function: the same events in the same order give bit-identical theta, whichever engine made them.

No clock, no socket, no thread, no randomness. The arrays of the state belong to this function, which updates them in
place; who wants to keep a theta copies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from afedpg.messages import (
    Arrival,
    CloseRound,
    Event,
    Fetch,
    Join,
    Leave,
    Outcome,
    Rejected,
    Restart,
    Revoke,
    Suspicion,
    Task,
    TaskId,
    Unused,
)
from afedpg.protocol.encoding import nbytes
from afedpg.server import moments
from afedpg.server.admission import Admitted, Limits, admit
from afedpg.server.aggregators import Drop, Given, Here, Keep, Use
from afedpg.server.kernels import advance, move_towards, norm
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState
from afedpg.server.transforms import At, Direction


def step(rule: ServerRule, state: ServerState, event: Event, limits: Limits = Limits()) -> tuple[ServerState, Outcome]:
    """One event: the new state, and what the event did."""
    return apply(rule, state, admit(rule, state, event, limits))


def apply(rule: ServerRule, state: ServerState, admitted: Admitted) -> tuple[ServerState, Outcome]:
    """The same for an event that `admit` has looked at."""
    if admitted.given is not None:
        return state, _report(rule, state, admitted.given)
    return state, _HANDLERS[type(admitted.event)](rule, state, admitted.event)


def _join(rule: ServerRule, state: ServerState, event: Join | Fetch) -> Outcome:
    """A joining or reconnecting agent gets the latest theta~; what it was given before is void."""
    state.present.add(event.agent_id)
    state.absent.discard(event.agent_id)
    return Outcome([_hand_out(state, event.agent_id)], [])


def _leave(rule: ServerRule, state: ServerState, event: Leave) -> Outcome:
    agent_id, memory = event.agent_id, state.memory
    state.outstanding.pop(agent_id, None)
    for agents in (state.late, state.absent, state.present):
        agents.discard(agent_id)
    memory.slots.pop(agent_id, None)
    if rule.aggregator.waits:
        memory.kept = [given for given in memory.kept if given.agent != agent_id]
    return _look_again(rule, state)


def _revoke(rule: ServerRule, state: ServerState, event: Revoke) -> Outcome:
    """Its contributions are in theta and stay there; its moments are taken out of the shared statistics."""
    for name, observed in state.observed.items():
        merged = moments.forget(observed, state.statistics.get(name), event.agent_id, rule.aggregator.robust)
        state.statistics = {key: value for key, value in state.statistics.items() if key != name}
        if merged is not None:
            state.statistics = {**state.statistics, name: merged}
    return _leave(rule, state, Leave(event.agent_id))


def _rejected(rule: ServerRule, state: ServerState, event: Rejected) -> Outcome:
    fresh = event.agent_id in state.outstanding and not event.void
    return Outcome([_hand_out(state, event.agent_id)] if fresh else [], [], event)


def _deadline(rule: ServerRule, state: ServerState, event: CloseRound) -> Outcome:
    """Who is missing is late: later rounds do not wait for it until its report has come and it has a Task of theirs."""
    if state.memory.kept:
        state.late = set(state.outstanding)
        state.absent.clear()
    return _look_again(rule, state, deadline=True)


def _restart(rule: ServerRule, state: ServerState, event: Restart) -> Outcome:
    state.epoch += 1
    state.absent = state.absent | state.present if event.awaits else set()
    if rule.aggregator.waits:
        state.memory.kept.clear()
    for agents in (state.outstanding, state.late, state.present):
        agents.clear()
    return Outcome([], [])


def _report(rule: ServerRule, state: ServerState, given: Given) -> Outcome:
    """The aggregator looks at it first: what it drops is not merged into the statistics either."""
    agent_id, report = given.agent, given.report
    del state.outstanding[agent_id]
    state.late.discard(agent_id)
    answer = rule.aggregator.take(given, state.memory, _here(state))
    judged = rule.aggregator.suspicions(state.memory)
    suspicion = Suspicion(agent_id, judged[agent_id]) if agent_id in judged else None
    if isinstance(answer, Drop):
        state.unused += 1
        state.samples += report.stats.steps
        unused = Unused(agent_id, answer.reason)
        return Outcome(_next(rule, state, agent_id), [], unused=unused, suspicion=suspicion)
    for name, new in report.moments.items():
        merged = moments.take(state.observed[name], state.statistics.get(name), agent_id, new, rule.aggregator.robust)
        if merged is not None:
            state.statistics = {**state.statistics, name: merged}
    if isinstance(answer, Keep):
        tasks = _next(rule, state, agent_id) if answer.task else []
        return Outcome(tasks, [], waits=None if answer.task else agent_id, suspicion=suspicion)
    arrivals = _step(rule, state, answer)
    if not rule.aggregator.waits:
        return Outcome(_next(rule, state, agent_id), arrivals, suspicion=suspicion)
    return Outcome([_hand_out(state, each.agent) for each in answer.reports], arrivals)


def _look_again(rule: ServerRule, state: ServerState, deadline: bool = False) -> Outcome:
    """After somebody left, or a round's deadline."""
    use = rule.aggregator.changed(state.memory, _here(state, deadline))
    if use is None:
        return Outcome([], [])
    arrivals = _step(rule, state, use)
    waited = [given.agent for given in use.reports] if rule.aggregator.waits else []
    return Outcome([_hand_out(state, agent_id) for agent_id in waited], arrivals)


def _here(state: ServerState, deadline: bool = False) -> Here:
    awaited = len(state.outstanding) - len(state.late) + len(state.absent)
    agents = state.present | state.absent if state.absent else state.present
    return Here(state.iteration, state.theta, awaited, agents, deadline, state.groups)


def _next(rule: ServerRule, state: ServerState, agent_id: int) -> list[Task]:
    return [] if rule.exchange.late_fetch else [_hand_out(state, agent_id)]


def _step(rule: ServerRule, state: ServerState, use: Use) -> list[Arrival]:
    """Algorithm 1: mix, normalize, step, look ahead; and a row per contribution for the record.

    Zeros count as an arrival and move nothing: mixed in, they would make a step along the old direction.
    """
    first = use.reports[0]
    alone = len(use.reports) == 1
    version = first.version if use.version is None else use.version
    at = At(state.iteration, version, first.agent if alone else -1, state.theta, _scalars(use))
    length, ahead = _move(rule, state, use, at)
    alpha = None if rule.alpha is None else rule.alpha(at.iteration, version)
    eta = rule.eta(at.iteration, version)
    bytes_down = state.theta_lookahead.nbytes + nbytes(state.statistics)
    arrivals = []
    for given in use.reports:
        report = given.report
        state.gradients += 1
        state.samples += report.stats.steps
        state.applied[report.agent_id] = state.applied.get(report.agent_id, 0) + 1
        arrivals.append(
            Arrival(
                state.gradients,
                state.iteration,
                report.agent_id,
                report.task_id,
                report.version,
                state.iteration - report.version,
                alpha,
                eta,
                given.norm,
                length,
                ahead,
                report.stats,
                report.payload.nbytes + nbytes(report.moments) + 8 * len(report.scalars),
                bytes_down,
            )
        )
    state.iteration += 1
    return arrivals


def _move(rule: ServerRule, state: ServerState, use: Use, at: At) -> tuple[float, float]:
    """theta and theta~, group by group; the lengths of the step and of what theta~ is ahead by."""
    length = ahead = 0.0
    several = len(state.groups) > 1
    factors = [1.0] * len(state.groups) if use.factors is None else use.factors
    for (group, place), factor in zip(state.groups, factors, strict=True):
        theta, lookahead, vector, here = state.theta, state.theta_lookahead, use.direction, at
        if several:
            theta, lookahead, vector = theta[place], lookahead[place], vector[place]
            here = at._replace(theta=theta)
        if group.kind == "parameters":
            move_towards(theta, lookahead, vector, factor * rule.mixing(here))
            continue
        moves = use.norm > 0 if use.norm is not None and not several else bool(vector.any())
        if moves and factor != 0:
            factor *= use.factor if group.longest == math.inf else use.factor * min(1.0, group.longest / norm(vector))
            direction = rule.step.update(Direction(vector, factor), state.buffers_of(group.name), here)
            stretch = rule.broadcast.stretch(here)
            advance(theta, lookahead, direction.vector, direction.factor, stretch)
            moved = direction.length
            length, ahead = math.hypot(length, moved), math.hypot(ahead, stretch * moved)
    return length, ahead


def _scalars(use: Use) -> Mapping[str, float]:
    """The aggregator's, or those of one report, or their means over several."""
    reports = use.reports
    if use.scalars is not None:
        return use.scalars
    if len(reports) == 1:
        return reports[0].report.scalars
    names = reports[0].report.scalars
    return {name: sum(given.report.scalars[name] for given in reports) / len(reports) for name in names}


def _hand_out(state: ServerState, agent_id: int) -> Task:
    state.counter += 1
    task_id = TaskId(state.epoch, state.counter)
    state.outstanding[agent_id] = (task_id, state.iteration)
    state.late.discard(agent_id)
    return Task(task_id, agent_id, state.theta_lookahead, state.iteration, state.statistics)


_HANDLERS: dict[type, Callable[[ServerRule, ServerState, Any], Outcome]] = {
    Join: _join,
    Fetch: _join,
    Rejected: _rejected,
    Leave: _leave,
    CloseRound: _deadline,
    Restart: _restart,
    Revoke: _revoke,
}
