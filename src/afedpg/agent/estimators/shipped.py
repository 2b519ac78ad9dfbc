"""The estimators that ship: advantages, whole returns, and a3c's policy and value gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from afedpg.agent.estimators import gradient
from afedpg.agent.estimators.advantage import Row, bootstrapped_returns, gae, standardized
from afedpg.agent.estimators.clipped import Clipped
from afedpg.agent.estimators.estimator import Estimator, Tools
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Contribution, Task
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.rollout import Rollout


@dataclass(frozen=True)
class Gae(Estimator):
    """grad log pi(a_t|s_t) A_t averaged over the rollout, A the generalized advantage with a local baseline."""

    def start(self, tools: Tools, generator: np.random.Generator) -> AgentState:
        return tools.build_baseline(None).start(generator)  # no kernels are needed, which take long to load

    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        fitted, advantages = self.advantages(tools, state, rollout)
        uphill = gradient.advantage_gradient(
            tools.policy, task.theta, rollout, advantages, tools.settings.device, tools.kernels
        )
        return fitted, Contribution(uphill)

    def advantages(self, tools: Tools, state: AgentState, rollout: Rollout) -> tuple[AgentState, Row]:
        """GAE with the values fitted so far; only then is this rollout fitted. The baseline's new arrays come first."""
        settings = tools.settings
        seen = np.concatenate([rollout.observations, rollout.cut_observations])
        values = tools.baseline.values(state, seen)
        within, beyond = values[: rollout.steps], values[rollout.steps :]
        advantages = gae(rollout, within, beyond, settings.gamma, settings.gae_lambda)
        # whole returns, not lambda-returns: those carry a fresh baseline's zeros from report to report
        returns = bootstrapped_returns(rollout, beyond, settings.gamma)
        fitted = tools.baseline.fit(state, rollout.observations, returns)
        return fitted, standardized(advantages) if settings.scale_advantages else advantages


@dataclass(frozen=True)
class Reinforce(Estimator):
    """grad log pi(a_t|s_t) sum_{h>=t} gamma^h r_h, averaged over whole episodes; no baseline."""

    whole_episodes = True

    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        settings = tools.settings
        uphill = gradient.reinforce(tools.policy, task.theta, rollout, settings.gamma, settings.device, tools.kernels)
        return {}, Contribution(uphill)


@dataclass(frozen=True)
class A3c(Estimator):
    """The gradient of policy, entropy and value loss together; the value network is shared as a part of theta."""

    value_network = True

    def check(self, tools: Tools) -> None:
        if not isinstance(tools.policy, MlpPolicy):
            raise ConfigError("estimator: a3c shares value parameters, which a policy of your own does not have")

    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        settings = tools.settings
        assert isinstance(tools.policy, MlpPolicy)
        uphill = gradient.a3c(
            tools.policy, task.theta, rollout, settings.gamma, settings.entropy, settings.value_weight, settings.device
        )
        return {}, Contribution(uphill)


SHIPPED: dict[str, type[Estimator]] = {"gae": Gae, "reinforce": Reinforce, "a3c": A3c, "clipped": Clipped}
