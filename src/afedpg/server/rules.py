"""The methods compared, each a short recipe of shared parts; one is another with a line changed.

A method is a function (alpha, eta) -> ServerRule; one with parameters of its own is an object that can be called so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.messages import Exchange, Group
from afedpg.own_parts import asked, check_tuple, is_own, name_of
from afedpg.server.aggregators import Aggregator, All, Each
from afedpg.server.guards import GuardedNumber, guarded, guarded_step
from afedpg.server.lookahead import Broadcast, LookAhead, SendTheta
from afedpg.server.schedules import Schedule, schedules
from afedpg.server.transforms import At, Chain, Mix, Normalize, RMSProp, Scale, Transform


def whole(at: At) -> float:
    """The agent's values as they are."""
    return 1.0


@dataclass(frozen=True)
class ServerRule:
    """Everything that decides what the server does with a report; `step` and `broadcast` act on each group alone."""

    step: Transform  # contribution -> what is added to theta
    broadcast: Broadcast  # what agents are sent
    alpha: Schedule | None  # for the record; None where the method has none
    eta: Schedule
    aggregator: Aggregator = field(default_factory=Each)  # when there is a direction, and made of what
    mixing: Callable[[At], float] = whole  # w of groups of parameters: theta_g += w (x - theta_g)
    exchange: Exchange = field(default_factory=Exchange)  # what a report looks like; set when the run is made
    scalars: tuple[str, ...] = ()  # the numbers that `step` reads: an estimator must send them

    @property
    def synchronous(self) -> bool:
        return self.aggregator.waits

    def contributions(self, agents: int) -> int:
        """That a step is made of, nominally."""
        return max(1, self.aggregator.contributions(agents))

    def spent(self, gradients: int, unused: int) -> int:
        """Of the contributions a run has. What a defence drops is not among them, or a flood would end the run."""
        return gradients if self.aggregator.robust else gradients + unused

    def groups(self, parameters: int) -> tuple[tuple[Group, slice], ...]:
        """With their places in theta."""
        found, start = [], 0
        for group in self.exchange.groups or (Group("theta", parameters),):
            found.append((group, slice(start, start + group.size)))
            start += group.size
        if start != parameters:
            raise ValueError(f"the groups have {start} numbers, theta has {parameters}")
        return tuple(found)


def afedpg(alpha: Schedule, eta: Schedule) -> ServerRule:
    """Mix, normalize, step and look ahead at every arrival: the paper's Algorithm 1."""
    return ServerRule(Chain(Mix(alpha), Normalize(), Scale(eta)), LookAhead(alpha), alpha, eta)


def afedpg_vanilla(alpha: Schedule, eta: Schedule) -> ServerRule:
    """afedpg without the lookahead."""
    return replace(afedpg(alpha, eta), broadcast=SendTheta())


def fedpg(alpha: Schedule, eta: Schedule) -> ServerRule:
    """afedpg in synchronous rounds: a step with the mean of all agents' gradients."""
    return replace(afedpg(alpha, eta), aggregator=All())


def pg_plain(alpha: Schedule, eta: Schedule) -> ServerRule:
    """eta times the gradient, one agent."""
    return ServerRule(Scale(eta), SendTheta(), None, eta)


def a3c(alpha: Schedule, eta: Schedule) -> ServerRule:
    """RMSProp with statistics shared by all agents; comes with the estimator a3c and segments of 32 steps."""
    return ServerRule(Chain(RMSProp(), Scale(eta)), SendTheta(), None, eta)


def afedppo(alpha: Schedule, eta: Schedule) -> ServerRule:
    """Differences are added as they are, Adam's moments taken over; comes with the estimator clipped."""
    return ServerRule(Scale(eta), SendTheta(), None, eta)


Recipe = Callable[[Schedule, Schedule], ServerRule]

RECIPES: dict[str, Recipe] = {
    "afedpg": afedpg,
    "afedpg-vanilla": afedpg_vanilla,
    "fedpg": fedpg,
    "pg": afedpg,  # the same rule with one agent
    "pg-plain": pg_plain,
    "a3c": a3c,
    "afedppo": afedppo,
}


def make_rule(
    config: Config,
    recipe: Recipe,
    alpha: Schedule | None = None,
    eta: Schedule | None = None,
    aggregator: Aggregator | None = None,
    exchange: Exchange = Exchange(),
) -> ServerRule:
    """A recipe with the configured schedules, or some of one's own. How the constants are scaled follows from the rule
    that comes out, so that a copy of a method is that method. `aggregator` takes the place of the recipe's. Parts of
    the user's own are guarded.
    """
    name = name_of(recipe)
    if not callable(recipe):
        raise ConfigError(f"method: {name} cannot be called; give it __call__(self, alpha, eta)")

    def made(contributions: int) -> ServerRule:
        usual = schedules(config, contributions)
        given = alpha or usual[0], eta or usual[1]
        rule = asked(f"method: {name}", recipe, *given) if is_own(recipe) else recipe(*given)
        if not isinstance(rule, ServerRule):
            raise ConfigError(f"method: {name} gave {rule!r}, not a ServerRule")
        if is_own(recipe):
            rule = _guarded(rule, f"method: {name}")
        chosen = rule.aggregator if aggregator is None else aggregator
        return replace(rule, aggregator=guarded(chosen), exchange=exchange)

    rule = made(1)
    contributions = rule.contributions(config.agents)
    return made(contributions) if contributions > 1 else rule


def _guarded(rule: ServerRule, whose: str) -> ServerRule:
    """What can be seen of its fields now is not left to the first step."""
    functions = (
        ("broadcast.stretch", getattr(rule.broadcast, "stretch", None), "(at)"),
        ("mixing", rule.mixing, "(at)"),
        ("alpha", whole if rule.alpha is None else rule.alpha, "(iteration, version)"),
        ("eta", rule.eta, "(iteration, version)"),
    )
    for name, function, given in functions:
        if not callable(function):
            raise ConfigError(f"{whose}: {name} is a {type(function).__name__}, not a function of {given}")
    return replace(
        rule,
        step=guarded_step(rule.step, whose),
        broadcast=GuardedNumber(rule.broadcast.stretch, f"{whose}: stretch"),
        mixing=GuardedNumber(rule.mixing, f"{whose}: mixing", share=True),
        scalars=check_tuple(f"{whose}: scalars", rule.scalars, str),
    )
