"""An agent's whole optimisation of the clipped objective (PPO), compiled: no Python between two minibatches.

    for every pass, for every minibatch of the pass's shuffled rows:
        policy    Adam uphill on the clipped objective and the entropy bonus, until KL(old || new) is beyond `max_kl`
        critic    Adam downhill on (V(s) - y)^2

Each network has its own Adam and its own bound on the gradient's norm. Where the policy stops, before the step that
found it too far away, the critic goes on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.compute.elementwise import adam, norm
from afedpg.agent.compute.network import Memory, Shape, Table
from afedpg.agent.compute.objectives import Clipped, Row, clipped_gradient, value_gradient
from afedpg.compiled import fast_jit, inner_jit

# What `local_steps` says about itself, in this order: sums over the policy's or the critic's minibatches, but for the
# last three.
STATISTICS = ("objective", "kl", "clipped", "entropy", "value_loss", "policy_steps", "critic_steps", "last_kl")


class Adam(NamedTuple):
    """How far a step goes. A gradient whose norm is beyond `max_norm` is shortened to it; 0: never."""

    rate: float
    max_norm: float = 0.0
    decay: float = 0.9
    square_decay: float = 0.999
    epsilon: float = 1e-8


@inner_jit
def adam_step(memory: Memory, steps: int, first_steps: int, how: Adam, sign: float) -> None:
    """Moves the packed weights: sign 1 downhill, -1 uphill. Both counts begin at 1."""
    factor = sign
    if how.max_norm > 0:
        length = norm(memory.gradient)
        if length > how.max_norm:
            factor = sign * how.max_norm / length
    adam(
        memory.weights, memory.gradient, memory.first, memory.second, steps, first_steps, factor, how.rate,
        how.decay, how.square_decay, how.epsilon,
    )  # fmt: skip


@fast_jit
def critic_steps(
    critic: Shape, memory: Memory, how: Adam, observations: Table, targets: Row,
    passes: NDArray[np.int64], minibatches: int, steps: int,
) -> None:  # fmt: skip
    """The critic alone, in so many minibatches per pass; `steps` are those before."""
    for epoch in range(passes.shape[0]):
        order = passes[epoch]
        for n in range(minibatches):
            begin, end = n * order.size // minibatches, (n + 1) * order.size // minibatches
            value_gradient(critic, memory, observations, targets, order, begin, end)
            steps += 1
            adam_step(memory, steps, steps, how, 1.0)


@fast_jit
def local_steps(
    policy: Shape, policy_memory: Memory, policy_adam: Adam, critic: Shape, critic_memory: Memory, critic_adam: Adam,
    observations: Table, actions: Table, given: Clipped, targets: Row,
    passes: NDArray[np.int64], minibatch: int, max_kl: float, steps: NDArray[np.int64], found: Row,
) -> None:  # fmt: skip
    """`passes` [epochs, T]: the order of the rows in each; `steps` [4]: Adam's counts so far, of the second moments of
    policy and critic, then of the first.
    """
    stopped = False
    for i in range(found.size):
        found[i] = 0.0
    for epoch in range(passes.shape[0]):
        order = passes[epoch]
        for begin in range(0, order.size, minibatch):
            end = min(begin + minibatch, order.size)
            if not stopped:
                gain, kl, outside, entropy = clipped_gradient(
                    policy, policy_memory, observations, actions, given, order, begin, end
                )
                found[7] = kl
                stopped = max_kl > 0 and kl > max_kl
            if not stopped:
                steps[0] += 1
                steps[2] += 1
                adam_step(policy_memory, steps[0], steps[2], policy_adam, -1.0)
                found[0] += gain
                found[1] += kl
                found[2] += outside
                found[3] += entropy
                found[5] += 1
            steps[1] += 1
            steps[3] += 1
            found[4] += value_gradient(critic, critic_memory, observations, targets, order, begin, end)
            found[6] += 1
            adam_step(critic_memory, steps[1], steps[3], critic_adam, 1.0)
