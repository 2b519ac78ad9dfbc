"""What an agent makes of its rollout: an estimator turns it into a contribution.

    rollout -> Estimator -> Contribution        in agent/work.py, with theta~ and the statistics of the Task

An estimator is a frozen dataclass; its fields declared with `option(...)` are its own parameters, settable as
`--estimator NAME:key=value`. What it remembers between rollouts is flat arrays in the agent's state, which are
replaced, never written to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.baselines.linear import Baseline, NoBaseline
from afedpg.agent.estimators.advantage import Row
from afedpg.agent.estimators.gradient import log_probs, weighted_score
from afedpg.config import AgentConfig
from afedpg.messages import AgentState, Contribution, Group, Scalar, Task, Vector
from afedpg.policy.image import Image
from afedpg.policy.mlp import Layers, Policy
from afedpg.sampling.rollout import Rollout

if TYPE_CHECKING:
    from afedpg.agent.compute.kernels import CriticKernels, PolicyKernels


@dataclass(frozen=True)
class Tools:
    """What an estimator computes with."""

    policy: Policy
    settings: AgentConfig
    observations: int  # numbers in one
    build_kernels: Callable[[], tuple[PolicyKernels | None, CriticKernels | None]] = lambda: (None, None)
    build_baseline: Callable[[CriticKernels | None], Baseline] = lambda critic: NoBaseline()
    image: Image | None = None  # of observations that are pictures, bytes [n, observations]

    @cached_property
    def _both(self) -> tuple[PolicyKernels | None, CriticKernels | None]:
        return self.build_kernels()

    @property
    def kernels(self) -> PolicyKernels | None:
        """Native code of the policy; without it torch computes."""
        return self._both[0]

    @property
    def critic(self) -> CriticKernels | None:
        return self._both[1]

    @cached_property
    def baseline(self) -> Baseline:
        return self.build_baseline(self.critic)

    @property
    def critic_network(self) -> Layers:
        """Of an estimator's own critic."""
        settings = self.settings
        return Layers(self.observations, settings.baseline_hidden, 1, settings.activation, self.image)

    @property
    def parameters(self) -> int:
        """Of the policy, which theta begins with."""
        return self.policy.layout.size

    def gradient(self, theta: NDArray[Any], rollout: Rollout, weights: Row) -> NDArray[Any]:
        """sum_t w_t grad log pi(a_t | s_t) at the policy `theta` [parameters]."""
        return weighted_score(self.policy, theta, rollout, weights, self.settings.device, self.kernels)

    def log_probs(self, theta: NDArray[Any], rollout: Rollout) -> Row:
        """log pi(a_t | s_t), [T]."""
        return log_probs(self.policy, theta, rollout, self.settings.device, self.kernels)


class Estimator(ABC):
    """What every estimator is, and what it does unless it says otherwise.

    `whole_episodes`: rollouts end with an episode. `late_fetch`: the agent samples with parameters of its own, kept in
    its state as "theta", and asks for its Task when it has sampled. `value_network`: the policy's vector goes on with a
    value network. `own_critic`: it has a value network of its own, with the policy's activation. `scalars`: numbers
    that come with every contribution.
    """

    whole_episodes: bool = False
    late_fetch: bool = False
    value_network: bool = False
    own_critic: bool = False
    scalars: tuple[Scalar, ...] = ()

    def check(self, tools: Tools) -> None:  # noqa: B027 - most need nothing
        """A ConfigError where it cannot work with these."""

    def groups(self, tools: Tools) -> tuple[Group, ...]:
        """Theta's parts, the policy first; none: theta is the policy, and a contribution is a step of it."""
        return ()

    def statistics(self, tools: Tools) -> dict[str, int]:
        """Names and lengths of the moments that come with every contribution, observations aside."""
        return {}

    def initial(self, tools: Tools, generator: np.random.Generator) -> Vector:
        """Theta at the start, beyond the policy."""
        return np.empty(0)

    def start(self, tools: Tools, generator: np.random.Generator) -> AgentState:
        """What an agent remembers, as it is at the start."""
        return {}

    @abstractmethod
    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        """The arrays of the state that are new, and what is sent."""
