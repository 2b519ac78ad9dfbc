"""The server as a function: the same events in the same order give bit-identical theta, whichever engine made them.

No clock, no socket, no thread, no randomness. The arrays of the state belong to this function, which updates them in
place; who wants to keep a theta copies it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    Report,
    Restart,
    Revoke,
    Suspicion,
    Task,
    TaskId,
    Unused,
)
from afedpg.protocol.encoding import nbytes
from afedpg.server import moments
from afedpg.server.admission import Limits, admit
from afedpg.server.aggregators import Drop, Given, Here, Keep, Use
from afedpg.server.kernels import advance, move_towards, norm
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState
from afedpg.server.transforms import At, Direction


def step(rule: ServerRule, state: ServerState, event: Event, limits: Limits = Limits()) -> tuple[ServerState, Outcome]:
    """One event: the new state, and what the event did."""
    return apply(rule, state, *admit(rule, state, event, limits))


def apply(rule: ServerRule, state: ServerState, event: Event, given: Given | None) -> tuple[ServerState, Outcome]:
    """The same for an event that `admit` has looked at; `given` is a report's contribution."""
    if given is not None:
        return state, _report(rule, state, given)
    return state, _HANDLERS[type(event)](rule, state, event)


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
    report, aggregator = given.report, rule.aggregator
    agent_id = report.agent_id
    del state.outstanding[agent_id]
    state.late.discard(agent_id)
    answer = aggregator.take(given, state.memory, _here(state))
    judged = aggregator.suspicions(state.memory)
    outcome = _heed(rule, state, report, answer)
    return outcome._replace(suspicion=Suspicion(agent_id, judged[agent_id])) if agent_id in judged else outcome


def _heed(rule: ServerRule, state: ServerState, report: Report, answer: Use | Keep | Drop) -> Outcome:
    """What the aggregator said of a report."""
    agent_id, aggregator = report.agent_id, rule.aggregator
    if isinstance(answer, Drop):
        state.unused += 1
        state.samples += report.stats.steps
        return Outcome(_next(rule, state, agent_id), [], unused=Unused(agent_id, answer.reason))
    for name, new in report.moments.items():
        merged = moments.take(state.observed[name], state.statistics.get(name), agent_id, new, aggregator.robust)
        if merged is not None:
            state.statistics = {**state.statistics, name: merged}
    if isinstance(answer, Keep):
        tasks = _next(rule, state, agent_id) if answer.task else []
        return Outcome(tasks, [], waits=None if answer.task else agent_id)
    arrivals = _step(rule, state, answer)
    if not aggregator.waits:
        return Outcome(_next(rule, state, agent_id), arrivals)
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
    first, iteration = use.reports[0].report, state.iteration
    version = first.version if use.version is None else use.version
    agent_id, scalars = (first.agent_id, first.scalars) if len(use.reports) == 1 else (-1, _means(use.reports))
    at = At(iteration, version, agent_id, state.theta, scalars if use.scalars is None else use.scalars)
    length, ahead = _move(rule, state, use, at)
    alpha = None if rule.alpha is None else rule.alpha(iteration, version)
    eta = rule.eta(iteration, version)
    bytes_down = state.theta_lookahead.nbytes + nbytes(state.statistics)
    arrivals = []
    for given in use.reports:
        task_id, agent_id, payload, version, observed, stats, scalars = given.report
        state.gradients += 1
        state.samples += stats.steps
        state.applied[agent_id] = state.applied.get(agent_id, 0) + 1
        arrivals.append(
            Arrival(
                state.gradients,
                iteration,
                agent_id,
                task_id,
                version,
                iteration - version,
                alpha,
                eta,
                given.norm,
                length,
                ahead,
                stats,
                payload.nbytes + nbytes(observed) + 8 * len(scalars),
                bytes_down,
                state.samples,
            )
        )
    state.iteration = iteration + 1
    return arrivals


def _move(rule: ServerRule, state: ServerState, use: Use, at: At) -> tuple[float, float]:
    """theta and theta~, group by group; the lengths of the step and of what theta~ is ahead by."""
    length = ahead = 0.0
    several = len(state.shares) > 1
    for number, (group, place, theta, lookahead, buffers) in enumerate(state.shares):
        vector = use.direction[place] if several else use.direction
        factor = 1.0 if use.factors is None else use.factors[number]
        here = At(at.iteration, at.version, at.agent, theta, at.scalars) if several else at
        if group.kind == "parameters":
            move_towards(theta, lookahead, vector, factor * rule.mixing(here))
            continue
        moves = use.norm > 0 if use.norm is not None and not several else bool(vector.any())
        if moves and factor != 0:
            factor *= use.factor if group.longest == math.inf else use.factor * min(1.0, group.longest / norm(vector))
            direction = rule.step.update(Direction(vector, factor), buffers, here)
            stretch = rule.broadcast.stretch(here)
            advance(theta, lookahead, direction.vector, direction.factor, stretch)
            moved = direction.length
            length, ahead = math.hypot(length, moved), math.hypot(ahead, stretch * moved)
    return length, ahead


def _means(reports: Sequence[Given]) -> Mapping[str, float]:
    """Of the scalars that came with several reports."""
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
