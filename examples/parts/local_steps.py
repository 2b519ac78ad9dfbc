"""An estimator that makes three local steps on its rollout and sends the difference.

afedpg train CartPole-v1 --estimator examples/parts/local_steps.py:LocalSteps:rate=0.02
"""

from dataclasses import dataclass

from afedpg.agent.estimators.shipped import Gae
from afedpg.config import option
from afedpg.messages import Contribution


@dataclass(frozen=True)
class LocalSteps(Gae):
    """Three gradient steps with the same advantages; what is sent is where they lead."""

    rate: float = option(0.01, "length of a local step per unit of gradient", above=0, at_most=10)
    steps: int = option(3, "local steps", at_least=1, at_most=100)

    def estimate(self, tools, state, task, rollout):
        fitted, advantages = self.advantages(tools, state, rollout)
        theta = task.theta
        for _ in range(self.steps):
            theta = theta + self.rate * tools.gradient(theta, rollout, advantages / rollout.steps)
        return fitted, Contribution(theta - task.theta)
