"""The methods compared, each a short recipe of shared parts; one is another with a line changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from afedpg.config import Config
from afedpg.server.lookahead import Broadcast, LookAhead, SendTheta
from afedpg.server.schedules import Schedule, schedules
from afedpg.server.transforms import Chain, Mix, Normalize, RMSProp, Scale, Transform


@dataclass(frozen=True)
class ServerRule:
    step: Transform  # gradient -> what is added to theta
    broadcast: Broadcast  # what agents are sent
    alpha: Schedule | None  # for the record; None where the method has none
    eta: Schedule
    synchronous: bool = False  # wait for the gradients of all agents and average them


def afedpg(alpha: Schedule, eta: Schedule) -> ServerRule:
    return ServerRule(Chain(Mix(alpha), Normalize(), Scale(eta)), LookAhead(alpha), alpha, eta)


def afedpg_vanilla(alpha: Schedule, eta: Schedule) -> ServerRule:
    return replace(afedpg(alpha, eta), broadcast=SendTheta())


def fedpg(alpha: Schedule, eta: Schedule) -> ServerRule:
    return replace(afedpg(alpha, eta), synchronous=True)


def pg_plain(alpha: Schedule, eta: Schedule) -> ServerRule:
    return ServerRule(Scale(eta), SendTheta(), None, eta)


def a3c(alpha: Schedule, eta: Schedule) -> ServerRule:
    return ServerRule(Chain(RMSProp(), Scale(eta)), SendTheta(), None, eta)


Recipe = Callable[[Schedule, Schedule], ServerRule]

RECIPES: dict[str, Recipe] = {
    "afedpg": afedpg,
    "afedpg-vanilla": afedpg_vanilla,
    "fedpg": fedpg,
    "pg": afedpg,  # the same rule with one agent
    "pg-plain": pg_plain,
    "a3c": a3c,
}


def make_rule(
    config: Config, recipe: Recipe | None = None, alpha: Schedule | None = None, eta: Schedule | None = None
) -> ServerRule:
    """The method of the configuration, or a recipe and schedules of one's own. How the constants are scaled follows
    from the rule that comes out, so that a copy of a method is that method.
    """
    recipe = recipe or RECIPES[config.method]

    def made(synchronous: bool) -> ServerRule:
        usual = schedules(config, synchronous)
        return recipe(alpha or usual[0], eta or usual[1])

    rule = made(synchronous=False)
    return made(synchronous=True) if rule.synchronous else rule
