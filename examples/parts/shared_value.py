"""An estimator with a group of parameters and a scalar, and a rule that mixes the one and scales its step by the other.

F=examples/parts/shared_value.py
afedpg train CartPole-v1 --estimator $F:SharedValue --method $F:Mixed:weight=0.25
"""

from dataclasses import dataclass

import numpy as np

from afedpg.agent.estimators.advantage import bootstrapped_returns, gae, standardized
from afedpg.agent.estimators.estimator import Estimator
from afedpg.config import option
from afedpg.messages import Contribution, Group, Scalar
from afedpg.server.lookahead import SendTheta
from afedpg.server.rules import ServerRule
from afedpg.server.transforms import Chain, Direction, Normalize, Scale, Stateless


@dataclass(frozen=True)
class SharedValue(Estimator):
    """A linear value function that the federation shares; each agent sends its own fit, and how well it fits."""

    ridge: float = option(1.0, "pull of the fit towards the shared values", above=0)
    scalars = (Scalar("explained", 0.0, 1.0),)

    def groups(self, tools):
        return Group("policy", tools.parameters), Group("value", tools.observations + 1, "parameters")

    def initial(self, tools, generator):
        return np.zeros(tools.observations + 1)

    def estimate(self, tools, state, task, rollout):
        policy, shared = task.theta[: tools.parameters], task.theta[tools.parameters :]
        x, beyond = self._features(rollout.observations), self._features(rollout.cut_observations)
        advantages = gae(rollout, x @ shared, beyond @ shared, tools.settings.gamma, tools.settings.gae_lambda)
        returns = bootstrapped_returns(rollout, beyond @ shared, tools.settings.gamma)
        gram = x.T @ x + self.ridge * np.eye(x.shape[1])
        value = shared + np.linalg.solve(gram, x.T @ (returns - x @ shared))
        explained = 1 - np.var(returns - x @ value) / (np.var(returns) + 1e-8)
        gradient = tools.gradient(policy, rollout, standardized(advantages) / rollout.steps)
        scalars = {"explained": float(np.clip(explained, 0, 1))}
        return {}, Contribution({"policy": gradient, "value": value.astype(np.float32)}, scalars)

    def _features(self, observations):
        return np.column_stack([observations.astype(np.float64), np.ones(len(observations))])


class ByFit(Stateless):
    def update(self, direction, buffers, at):
        return Direction(direction.vector, direction.factor * (0.5 + 0.5 * at.scalars["explained"]), direction.norm)


@dataclass(frozen=True)
class Mixed:
    """Normalized steps, half as long where the values explain nothing; values move towards the agent's."""

    weight: float = option(0.25, "w of theta_g += w (x - theta_g)", above=0, at_most=1)

    def __call__(self, alpha, eta):
        step = Chain(Normalize(), ByFit(), Scale(eta))
        return ServerRule(step, SendTheta(), None, eta, mixing=lambda at: self.weight, scalars=("explained",))
