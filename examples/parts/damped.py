"""A rule with a parameter of its own: AFedPG in which a late gradient counts for less.

afedpg train lq-bandit --method examples/parts/damped.py:Damped:power=0.7
"""

from dataclasses import dataclass

from afedpg.config import option
from afedpg.server.lookahead import LookAhead
from afedpg.server.rules import ServerRule
from afedpg.server.transforms import Chain, Direction, Mix, Normalize, Scale, Stateless


@dataclass(frozen=True)
class Damp(Stateless):
    """g / (1 + delay)^power. Before the mix: afterwards, normalization would undo it."""

    power: float

    def update(self, direction, buffers, at):
        weight = (1 + at.iteration - at.version) ** -self.power
        return Direction(direction.vector, direction.factor * weight)


@dataclass(frozen=True)
class Damped:
    """AFedPG with late gradients damped."""

    power: float = option(0.5, "how fast a gradient's weight falls with its delay", at_least=0, at_most=4)

    def __call__(self, alpha, eta):
        return ServerRule(Chain(Damp(self.power), Mix(alpha), Normalize(), Scale(eta)), LookAhead(alpha), alpha, eta)
