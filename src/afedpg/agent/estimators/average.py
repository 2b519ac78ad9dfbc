"""The average reward per step instead of a discounted return: an option of the estimators that have advantages.

    rho <- (1 - a) rho + a mean(r - c)           c the reset cost where an episode terminated, else 0
    delta_t = r_t - c_t - rho + V(s_{t+1}) - V(s_t)
    A_t = delta_t + lambda A_{t+1}               V is fitted to A + V - nu b, b the running mean of V

The process goes on for ever: after a termination comes the next episode's first state, and without a cost falling would
be free. V is known up to a constant, which nu b pulls towards 0. lambda is the horizon.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from afedpg.agent.estimators.advantage import Row, discounted, next_values
from afedpg.agent.estimators.estimator import Estimator
from afedpg.config import option
from afedpg.messages import AgentState
from afedpg.sampling.rollout import Rollout

RATE = 0.05  # a, of rho and b; 1/n in the first rollouts
PULL = 0.1  # nu


@dataclass(frozen=True)
class Averaging(Estimator):
    """Rho in the environment's own units, b and the number of rollouts are the agent's, as its state "average"."""

    average_reward: bool = option(False, "maximize the reward per step instead of the discounted return")
    reset_cost: float = option(100.0, "average_reward: what a termination costs", at_least=0, at_most=1e9)

    def start_average(self) -> AgentState:
        return {"average": np.zeros(3)} if self.average_reward else {}

    def averaged(
        self, state: AgentState, new: Rollout, joined: Rollout, values: Row, cut_values: Row, gae_lambda: float
    ) -> tuple[AgentState, Row, Row]:
        """The new "average", and advantages and value targets of `joined`, which ends with the `new` rollout."""
        gain, level, count = state["average"].tolist()
        share, scale = max(RATE, 1 / (count + 1)), joined.reward_scale
        paid = joined.rewards - self.reset_cost / scale * joined.terminated
        gain += share * (scale * float(paid[-new.steps :].mean()) - gain)
        level += share * (float(values[-new.steps :].mean()) - level)
        following = next_values(joined, values, cut_values)
        following[joined.terminated] = np.append(values[1:], level)[joined.terminated]
        advantages = discounted(paid - gain / scale, values, following, joined.truncated, 1.0, gae_lambda)
        return {"average": np.array([gain, level, count + 1])}, advantages, advantages + values - PULL * level
