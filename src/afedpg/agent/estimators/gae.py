"""The plain gradient with generalized advantages, whose values are fitted by the agent alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from afedpg.agent.estimators import gradient
from afedpg.agent.estimators.advantage import Row, bootstrapped_returns, gae, standardized
from afedpg.agent.estimators.average import Averaging
from afedpg.agent.estimators.estimator import Tools
from afedpg.messages import AgentState, Contribution, Task
from afedpg.sampling.rollout import Rollout


@dataclass(frozen=True)
class Gae(Averaging):
    """grad log pi(a_t|s_t) A_t averaged over the rollout, A the generalized advantage with a local baseline."""

    def start(self, tools: Tools, generator: np.random.Generator) -> AgentState:
        baseline = tools.build_baseline(None)  # no kernels are needed, which take long to load
        return {**baseline.start(generator), **self.start_average()}

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
        average: AgentState = {}
        if self.average_reward:
            average, advantages, returns = self.averaged(state, rollout, rollout, within, beyond, settings.gae_lambda)
        else:
            advantages = gae(rollout, within, beyond, settings.gamma, settings.gae_lambda)
            # whole returns, not lambda-returns: those carry a fresh baseline's zeros from report to report
            returns = bootstrapped_returns(rollout, beyond, settings.gamma)
        fitted = {**tools.baseline.fit(state, rollout.observations, returns), **average}
        return fitted, standardized(advantages) if settings.scale_advantages else advantages
