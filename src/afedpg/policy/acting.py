"""The policy as the sampler sees it: one observation in, one action out, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from afedpg.errors import AfedpgError
from afedpg.messages import Floats
from afedpg.policy import forward


class Actor(Protocol):
    """Actions are in the policy's own units: float32 [act], unclipped, an index, or int64 [choices] of them."""

    def sample(self, observation: Floats, generator: np.random.Generator) -> Any: ...

    def mode(self, observation: Floats) -> Any:
        """The policy's deterministic action."""


class MlpActor:
    """The compiled forward pass of the MLP policies, for one theta."""

    def __init__(
        self, theta: Floats, sizes: Sequence[int], gaussian: bool, activation: str = "relu", mean: str = "tanh",
        choices: Sequence[int] = (),
    ) -> None:  # fmt: skip
        count = forward.parameter_count(sizes, gaussian)
        if len(theta) < count:
            raise AfedpgError(f"policy: theta has {len(theta)} numbers, these layers need {count}")
        self._theta = forward.aligned(count)
        self._theta[:] = theta[:count]  # a3c's value parameters come after the policy's
        self._network = forward.network_of(sizes, activation, mean)
        self._inputs, self._actions = int(sizes[0]), int(sizes[-1])
        self._scratch = forward.scratch_for(sizes)
        self._gaussian, self._several = gaussian, len(choices) > 0
        self._choices = np.array(choices or (self._actions,), np.int64)

    def sample(self, observation: Floats, generator: np.random.Generator) -> Any:
        self._check(observation)
        if not self._gaussian:
            chosen = np.empty(self._choices.size, np.int64)
            forward.sample_choices(
                self._theta, self._network, observation, self._choices, generator, self._scratch, chosen
            )
            return chosen if self._several else int(chosen[0])
        action = np.empty(self._actions, np.float32)
        forward.sample_gaussian(self._theta, self._network, observation, generator, self._scratch, action)
        return action

    def mode(self, observation: Floats) -> Any:
        self._check(observation)
        if not self._gaussian:
            chosen = np.empty(self._choices.size, np.int64)
            forward.mode_choices(self._theta, self._network, observation, self._choices, self._scratch, chosen)
            return chosen if self._several else int(chosen[0])
        action = np.empty(self._actions, np.float32)
        forward.mean_gaussian(self._theta, self._network, observation, self._scratch, action)
        return action

    def _check(self, observation: Floats) -> None:
        """Compiled code does not look where an array ends."""
        if observation.size != self._inputs:
            raise AfedpgError(f"policy: an observation has {self._inputs} numbers, not {observation.size}")
