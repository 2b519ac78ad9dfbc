"""The server is a fold over events: no clock, no socket, no thread, no randomness.

The same events in the same order give bit-identical theta, whichever engine produced them. The arrays of the state
belong to the fold, which updates them in place; who wants to keep a theta copies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from afedpg.messages import (
    Arrival,
    CloseRound,
    Event,
    Join,
    Leave,
    Moments,
    Rejected,
    Report,
    Restart,
    Revoke,
    Task,
    TaskId,
)
from afedpg.server import moments
from afedpg.server.admission import Admitted, Limits, admit
from afedpg.server.kernels import advance, norm
from afedpg.server.rounds import average
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState
from afedpg.server.transforms import At, Direction


def step(
    rule: ServerRule, state: ServerState, event: Event, limits: Limits = Limits()
) -> tuple[ServerState, list[Task]]:
    """One event: the new state and the Tasks to send out."""
    return apply(rule, state, admit(rule, state, event, limits))


def apply(rule: ServerRule, state: ServerState, admitted: Admitted) -> tuple[ServerState, list[Task]]:
    """The same for an event that `admit` has looked at."""
    state.arrivals, state.rejected = [], None
    if isinstance(admitted.event, Report):
        return state, _report(rule, state, admitted.event, admitted.gradient_norm)
    return state, _HANDLERS[type(admitted.event)](rule, state, admitted.event)


def _join(rule: ServerRule, state: ServerState, event: Join) -> list[Task]:
    """A joining or reconnecting agent gets the latest theta~; what it was given before is void."""
    return [_hand_out(state, event.agent_id)]


def _leave(rule: ServerRule, state: ServerState, event: Leave) -> list[Task]:
    state.outstanding.pop(event.agent_id, None)
    state.waiting.pop(event.agent_id, None)
    state.late.discard(event.agent_id)
    return _close_round(rule, state) if rule.synchronous and not _awaited(state) else []


def _revoke(rule: ServerRule, state: ServerState, event: Revoke) -> list[Task]:
    """Its gradients are in theta and stay there; its moments are taken out of the scaling."""
    state.statistics = moments.forget(state.observed, state.statistics, event.agent_id)
    return _leave(rule, state, Leave(event.agent_id))


def _rejected(rule: ServerRule, state: ServerState, event: Rejected) -> list[Task]:
    state.rejected = event
    fresh = event.agent_id in state.outstanding and not event.void
    return [_hand_out(state, event.agent_id)] if fresh else []


def _deadline(rule: ServerRule, state: ServerState, event: CloseRound) -> list[Task]:
    """Who is missing is late: later rounds do not wait for it until its report has come and it has a Task of theirs."""
    if state.waiting:
        state.late = set(state.outstanding)
    return _close_round(rule, state)


def _restart(rule: ServerRule, state: ServerState, event: Restart) -> list[Task]:
    state.epoch += 1
    state.outstanding.clear()
    state.waiting.clear()
    state.late.clear()
    return []


def _report(rule: ServerRule, state: ServerState, report: Report, gradient_norm: float) -> list[Task]:
    del state.outstanding[report.agent_id]
    if report.moments is not None:
        state.statistics = moments.take(state.observed, state.statistics, report.agent_id, report.moments)
    if rule.synchronous:
        state.waiting[report.agent_id] = report
        return [] if _awaited(state) else _close_round(rule, state)
    _apply(rule, state, Direction(report.gradient), gradient_norm > 0, [(report, gradient_norm)])
    return [_hand_out(state, report.agent_id)]


def _awaited(state: ServerState) -> bool:
    """Somebody's gradient of the open round is yet to come."""
    return len(state.outstanding) > len(state.late)


def _close_round(rule: ServerRule, state: ServerState) -> list[Task]:
    """fedpg: average the gradients of the round by agent id, make one step, send everyone out again."""
    if not state.waiting:
        return []
    reports = [state.waiting[agent_id] for agent_id in sorted(state.waiting)]
    state.waiting.clear()
    mean = average([report.gradient for report in reports])
    _apply(rule, state, Direction(mean), bool(mean.any()), [(report, norm(report.gradient)) for report in reports])
    return [_hand_out(state, report.agent_id) for report in reports]


def _apply(
    rule: ServerRule, state: ServerState, gradient: Direction, moves: bool, reports: list[tuple[Report, float]]
) -> None:
    """Algorithm 1: mix, normalize, step, look ahead; and a row per gradient for the record.

    A zero gradient counts as an arrival and moves nothing: mixed in, it would make a step along the old direction.
    """
    at = At(state.iteration, version=reports[0][0].version)
    length = stretch = 0.0
    if moves:
        direction = rule.step.update(gradient, state.buffers, at)
        length, stretch = direction.length, rule.broadcast.stretch(at)
        advance(state.theta, state.theta_lookahead, direction.vector, direction.factor, stretch)
    bytes_down = state.theta_lookahead.nbytes + _size(state.statistics)
    for report, gradient_norm in reports:
        state.gradients += 1
        state.samples += report.stats.steps
        state.applied[report.agent_id] = state.applied.get(report.agent_id, 0) + 1
        state.arrivals.append(
            Arrival(
                gradient=state.gradients,
                iteration=state.iteration,
                agent=report.agent_id,
                task_id=report.task_id,
                version=report.version,
                delay=state.iteration - report.version,
                alpha=None if rule.alpha is None else rule.alpha(*at),
                eta=rule.eta(*at),
                gradient_norm=gradient_norm,
                step_length=length,
                lookahead_length=stretch * length,
                stats=report.stats,
                bytes_up=report.gradient.nbytes + _size(report.moments),
                bytes_down=bytes_down,
            )
        )
    state.iteration += 1


def _size(statistics: Moments | None) -> int:
    return 0 if statistics is None else 8 + statistics.mean.nbytes + statistics.m2.nbytes


def _hand_out(state: ServerState, agent_id: int) -> Task:
    state.counter += 1
    task_id = TaskId(state.epoch, state.counter)
    state.outstanding[agent_id] = (task_id, state.iteration)
    state.late.discard(agent_id)
    return Task(task_id, agent_id, state.theta_lookahead, state.iteration, state.statistics)


_HANDLERS: dict[type, Callable[[ServerRule, ServerState, Any], list[Task]]] = {
    Join: _join,
    Rejected: _rejected,
    Leave: _leave,
    CloseRound: _deadline,
    Restart: _restart,
    Revoke: _revoke,
}
