"""What the server believes of a report. A refused one becomes a Rejected event: that is all the journal keeps of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from afedpg.config import Config
from afedpg.messages import Event, Rejected, Report, Stats
from afedpg.server import moments
from afedpg.server.kernels import norm
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


class Admitted(NamedTuple):
    """An event that the fold can apply as it is."""

    event: Event
    gradient_norm: float = math.nan  # of a report


def admit(rule: ServerRule, state: ServerState, event: Event, limits: Limits) -> Admitted:
    """The event itself, or what stands for a report that is refused."""
    if not isinstance(event, Report):
        return Admitted(event)
    if state.outstanding.get(event.agent_id) != (event.task_id, event.version):
        # Sent twice, or for a Task that a reconnection made void: applied at most once, and its agent has other work.
        return Admitted(Rejected(event.agent_id, f"task {tuple(event.task_id)} is not outstanding", void=True))
    gradient_norm = norm(event.gradient) if event.gradient.shape == state.theta.shape else math.nan
    reason = _rejection_reason(rule, state, event, gradient_norm, limits)
    return Admitted(event, gradient_norm) if reason is None else Admitted(Rejected(event.agent_id, reason))


def _rejection_reason(
    rule: ServerRule, state: ServerState, report: Report, gradient_norm: float, limits: Limits
) -> str | None:
    """Why a report is refused, or None. A zero gradient is fine: it moves nothing."""
    delay = state.iteration - report.version
    if report.gradient.shape != state.theta.shape:
        return f"gradient: {report.gradient.size} numbers, theta has {state.theta.size}"
    if not math.isfinite(gradient_norm):
        return "gradient: not finite"
    if gradient_norm > limits.gradient_norm:
        return f"gradient: norm {gradient_norm:.3g} is above the bound {limits.gradient_norm:.3g}"
    if rule.synchronous and delay > 0:
        return f"late: its round closed {delay} iterations ago"
    if delay > limits.delay:
        return f"stale: delay {delay} is above the bound {limits.delay:.0f}"
    applied, total = state.applied.get(report.agent_id, 0) + 1, state.gradients + len(state.waiting) + 1
    if limits.share < 1 and applied > limits.share * total + FREE_GRADIENTS:
        return f"share: {applied} of {total} gradients would be this agent's, above the bound {limits.share:.3g}"
    reason = _why_not_stats(report.stats, limits)
    if reason is not None or report.moments is None:
        return reason
    if report.moments.count > limits.steps:
        return f"moments: a count of {report.moments.count:.3g}, a report has at most {limits.steps:.0f} steps"
    return moments.why_not(state.statistics, report.moments)


def _why_not_stats(stats: Stats, limits: Limits) -> str | None:
    """An episode takes at least one step. Only the first that ended may have begun in an earlier report."""
    episodes, lengths = len(stats.returns), stats.lengths
    if not 0 <= stats.steps <= limits.steps:
        return f"stats: {stats.steps} steps, a report has at most {limits.steps:.0f}"
    if episodes > stats.steps or len(lengths) not in (0, episodes):
        return f"stats: {episodes} returns and {len(lengths)} lengths of episodes in {stats.steps} steps"
    if lengths and (min(lengths) < 1 or sum(lengths[1:]) >= stats.steps):
        return f"stats: episodes of {sum(lengths)} steps together do not end in {stats.steps} steps"
    return None if all(map(math.isfinite, stats.returns)) else "stats: a return is not finite"
