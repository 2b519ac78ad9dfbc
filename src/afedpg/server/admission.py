"""What the server believes of a report. A refused one becomes a Rejected event: that is all the journal keeps of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afedpg.config import Config
from afedpg.messages import Event, Fetch, Rejected, Report, Scalar, Statistics, Stats
from afedpg.printable import of_peer
from afedpg.server import moments
from afedpg.server.aggregators import Given, lengths
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState

FREE_GRADIENTS = 10  # of every agent, whatever its share: somebody has to begin


@dataclass(frozen=True)
class Limits:
    """What a report may say at most."""

    gradient_norm: float = math.inf
    delay: float = math.inf
    steps: float = math.inf  # environment steps behind one report
    share: float = 1.0  # of the applied gradients, by one agent

    @classmethod
    def of(cls, config: Config) -> Limits:
        network = config.network
        # reinforce finishes the last episode, which is no longer than T; everybody else takes T steps
        return cls(network.max_norm, network.max_delay or math.inf, 2 * config.report_steps, network.max_share)


def admit(rule: ServerRule, state: ServerState, event: Event, limits: Limits) -> tuple[Event, Given | None]:
    """The event itself, or what stands for a report or a fetch that is refused; of a report also its contribution."""
    if not isinstance(event, Report):
        if isinstance(event, Fetch) and (reason := _why_not_fetch(rule, state, event)):
            return Rejected(event.agent_id, f"fetch: {reason}", void=True), None
        return event, None
    if state.outstanding.get(event.agent_id) != (event.task_id, event.version):
        # Sent twice, or for a Task that a reconnection made void: applied at most once, and its agent has other work.
        return Rejected(event.agent_id, f"task {tuple(event.task_id)} is not outstanding", void=True), None
    try:
        vector = rule.exchange.codec.decode(event.payload, state.theta.size)
    except Exception as error:  # a codec of the user's own meets a payload that a liar made: nothing ends the server
        return Rejected(event.agent_id, f"payload: {of_peer(str(error))}"), None
    sizes, length = lengths(vector, state.groups)
    reason = _why_not(rule, state, event, sizes, limits)
    return (event, Given(event, vector, length)) if reason is None else (Rejected(event.agent_id, reason), None)


def _why_not_fetch(rule: ServerRule, state: ServerState, event: Fetch) -> str | None:
    """An agent asks once per contribution: another Task would make void the one that it has, or that is on its way."""
    if not rule.exchange.late_fetch:
        return "agents of this federation get their Tasks unasked"
    if event.agent_id not in state.present:
        return "the agent has not joined"
    return "a Task is outstanding" if event.agent_id in state.outstanding else None


def _why_not(
    rule: ServerRule, state: ServerState, report: Report, sizes: Sequence[float], limits: Limits
) -> str | None:
    """Why a report is not believed, or None. Zeros are fine: they move nothing."""
    for place, size in enumerate(sizes):
        if not size <= limits.gradient_norm or size == math.inf:  # NaN is not below any bound
            what = "contribution" if len(sizes) == 1 else state.groups[place][0].name
            bound = f"norm {size:.3g} is above the bound {limits.gradient_norm:.3g}"
            return f"{what}: {bound if math.isfinite(size) else 'not finite'}"
    delay = state.iteration - report.version
    if delay > limits.delay:
        return f"stale: delay {delay} is above the bound {limits.delay:.0f}"
    if limits.share < 1:
        applied, total = state.applied.get(report.agent_id, 0) + 1, state.gradients + len(state.memory.kept) + 1
        if applied > limits.share * total + FREE_GRADIENTS:
            return f"share: {applied} of {total} gradients would be this agent's, above the bound {limits.share:.3g}"
    reason, wanted = _why_not_stats(report.stats, limits), rule.exchange
    if reason is None and (report.scalars or wanted.scalars):
        reason = _why_not_scalars(report.scalars, wanted.scalars)
    if reason is None and (report.moments or wanted.statistics):
        reason = _why_not_moments(report.moments, state.statistics, wanted.statistics, limits)
    return reason


def _why_not_moments(new: Statistics, merged: Statistics, wanted: Mapping[str, int], limits: Limits) -> str | None:
    if new.keys() != wanted.keys():
        told = of_peer(", ".join(new)) or "nothing"
        return f"moments: of {told}; expected are those of {', '.join(wanted) or 'nothing'}"
    for name, part in new.items():
        if part.count > limits.steps:
            return f"moments: a count of {part.count:.3g}, a report has at most {limits.steps:.0f} steps"
        reason = moments.why_not(merged.get(name), part)
        if reason is None and part.mean.size != wanted[name]:
            reason = f"moments: {part.mean.size} quantities of {name}, expected {wanted[name]}"
        if reason is not None:
            return reason
    return None


def _why_not_scalars(given: Mapping[str, float], wanted: Sequence[Scalar]) -> str | None:
    if given.keys() != {scalar.name for scalar in wanted}:
        names = ", ".join(scalar.name for scalar in wanted) or "none"
        return f"scalars: {of_peer(', '.join(given)) or 'none'} given, expected {names}"
    for scalar in wanted:
        if not scalar.low <= given[scalar.name] <= scalar.high:  # NaN is outside
            return f"scalars: {scalar.name} = {given[scalar.name]:.3g} is outside [{scalar.low:g}, {scalar.high:g}]"
    return None


def _why_not_stats(stats: Stats, limits: Limits) -> str | None:
    """An episode takes at least one step. Only the first that ended may have begun in an earlier report."""
    steps, returns, lengths, _ = stats
    episodes = len(returns)
    if not 0 <= steps <= limits.steps:
        return f"stats: {steps} steps, a report has at most {limits.steps:.0f}"
    if episodes > steps or (lengths and len(lengths) != episodes):
        return f"stats: {episodes} returns and {len(lengths)} lengths of episodes in {steps} steps"
    if lengths and (min(lengths) < 1 or sum(lengths) - lengths[0] >= steps):
        return f"stats: episodes of {sum(lengths)} steps together do not end in {steps} steps"
    return None if math.isfinite(sum(returns)) else "stats: a return is not finite, or their sum"
