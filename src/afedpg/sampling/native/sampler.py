"""Which task is rolled out in compiled code, and the sampler of the MuJoCo tasks, at the speed of the physics.

It takes exactly the environments whose task it knows, as `gymnasium.make` builds them, and uses their own model and
data.
"""

from __future__ import annotations

import sys
from multiprocessing import parent_process
from typing import Any

import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from afedpg.compiled import say_if_compiling
from afedpg.messages import Floats, Moments
from afedpg.policy.mlp import MlpPolicy, Policy
from afedpg.sampling.environments import Environment, Environments, Live
from afedpg.sampling.native import closed_loop
from afedpg.sampling.native.cart_pole import CartPoleSampler
from afedpg.sampling.native.closed_loop import Acting, Buffers, Resets
from afedpg.sampling.native.compiled_sampler import CompiledSampler
from afedpg.sampling.native.simulation import Body, body_of
from afedpg.sampling.native.tasks import has_task
from afedpg.sampling.normalizer import scaling
from afedpg.sampling.spaces import BoxActions, DiscreteActions


def native_sampler(
    environments: Environments, policy: Policy, steps: int, whole_episodes: bool
) -> CompiledSampler | str:
    """The native sampler, compiled and ready, or the reason why this task cannot have it."""
    kind = _kind(environments, policy)
    if kind is None or not isinstance(policy, MlpPolicy):
        return "the compiled loops run MLP policies of one vector or one index"
    live = environments.of(0)
    body = kind.body(live.env)
    if isinstance(body, str):
        if has_task(type(live.env.unwrapped)) and parent_process() is None:  # workers need not repeat it
            print(f"the plain sampler is used, several times slower than the native one: {body}", file=sys.stderr)
        return body
    say_if_compiling(kind.loop)
    sampler = kind(environments, policy, steps, whole_episodes)
    try:
        sampler.warm_up(live, body)
    except NumbaError as error:
        return f"it does not compile ({' '.join(str(error).split())[:200]})"
    return sampler


def _kind(environments: Environments, policy: Policy) -> type[CompiledSampler] | None:
    actions = environments.actions
    if not isinstance(policy, MlpPolicy) or policy.image is not None:
        return None
    if policy.gaussian:
        return NativeSampler if isinstance(actions, BoxActions) else None
    return CartPoleSampler if isinstance(actions, DiscreteActions) else None


class NativeSampler(CompiledSampler):
    """MuJoCo tasks, with a Gaussian policy."""

    loop = closed_loop.roll_out

    @staticmethod
    def body(env: Environment) -> Body | str:
        return body_of(env)

    def room(self, capacity: int) -> tuple[NDArray[Any], NDArray[Any]]:
        shape = (capacity, self._environments.actions.size)
        return np.empty(shape, np.float32), np.empty(shape, np.float32)

    def acting(self, theta: Floats, statistics: Moments | None, live: Live, deterministic: bool = False) -> Acting:
        self._theta[:] = theta[: len(self._theta)]  # aligned; a3c's value parameters come after the policy's
        scale, bounds = scaling(statistics, int(self._sizes[0])), live.actions
        assert isinstance(bounds, BoxActions)
        return Acting(
            self._theta, self._network, deterministic, scale.mean, scale.deviation,
            bounds.middle, bounds.half, bounds.low, bounds.high, self._scratch,
        )  # fmt: skip

    def run(
        self, body: Body, acting: Acting, noise: np.random.Generator, resets: Resets, buffers: Buffers,
        progress: NDArray[np.int64], stop: int, whole_episodes: bool,
    ) -> None:  # fmt: skip
        task = body.task
        closed_loop.roll_out(
            task.observe, task.track, task.reward, task.terminated, body.world, body.simulation,
            acting, noise, resets, buffers, progress, stop, whole_episodes,
        )  # fmt: skip
