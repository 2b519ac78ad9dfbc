"""The estimators that ship; here those of whole returns, and a3c's policy and value gradient."""

from __future__ import annotations

from dataclasses import dataclass

from afedpg.agent.estimators import gradient
from afedpg.agent.estimators.clipped import Clipped
from afedpg.agent.estimators.estimator import Estimator, Tools
from afedpg.agent.estimators.gae import Gae
from afedpg.agent.estimators.natural import Natural
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Contribution, Task
from afedpg.policy.mlp import MlpPolicy
from afedpg.sampling.rollout import Rollout


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


SHIPPED: dict[str, type[Estimator]] = {
    "gae": Gae,
    "reinforce": Reinforce,
    "a3c": A3c,
    "clipped": Clipped,
    "natural": Natural,
}
