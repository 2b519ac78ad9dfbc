"""An aggregator that keeps each agent's last contribution and takes the coordinate-wise median.

afedpg train quadratic --aggregator examples/parts/median.py:Median:least=3
"""

from dataclasses import dataclass

import numpy as np

from afedpg.config import option
from afedpg.server.aggregators import Aggregator, Keep, Use


@dataclass(frozen=True)
class Median(Aggregator):
    """The median over agents of the last contribution of each, at every arrival."""

    least: int = option(3, "agents whose contributions a median is made of at least", at_least=1, at_most=1 << 20)
    weigh = "agents"

    def vectors(self, agents):
        return agents

    def take(self, given, memory, here):
        memory.slots[given.agent] = given.vector.astype(np.float64)
        if len(memory.slots) < min(self.least, len(here.agents)):
            memory.kept.append(given)
            return Keep()
        reports = [*memory.kept, given]
        memory.kept.clear()
        return Use(np.median(np.array(list(memory.slots.values())), axis=0), reports, given.version)
