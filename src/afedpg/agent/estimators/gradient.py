"""Gradients of the expected return, uphill, from one agent's rollout.

All of them are sum_t w_t grad log pi(a_t | s_t); they differ in the weights w_t. With `kernels` native code
computes that sum, in float32; otherwise torch does, in theta's own precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.estimators.advantage import Row, bootstrapped_returns, returns_from_start
from afedpg.policy.mlp import MlpPolicy, Policy, gradient_of, leaves, to_torch
from afedpg.sampling.rollout import Rollout

if TYPE_CHECKING:
    from torch import Tensor

    from afedpg.agent.compute.kernels import PolicyKernels


def reinforce(
    policy: Policy, theta: NDArray[Any], rollout: Rollout, gamma: float, device: str = "cpu",
    kernels: PolicyKernels | None = None,
) -> NDArray[Any]:  # fmt: skip
    """(es_gradient): sum_t grad log pi(a_t|s_t) sum_{h>=t} gamma^h r_h, averaged over the rollout's whole episodes."""
    episodes = int((rollout.terminated | rollout.truncated).sum())
    return weighted_score(policy, theta, rollout, returns_from_start(rollout, gamma) / episodes, device, kernels)


def advantage_gradient(
    policy: Policy, theta: NDArray[Any], rollout: Rollout, advantages: Row, device: str = "cpu",
    kernels: PolicyKernels | None = None,
) -> NDArray[Any]:  # fmt: skip
    """grad log pi(a_t|s_t) A_t, averaged over the rollout's steps."""
    return weighted_score(policy, theta, rollout, advantages / rollout.steps, device, kernels)


def weighted_score(
    policy: Policy, theta: NDArray[Any], rollout: Rollout, weights: Row, device: str = "cpu",
    kernels: PolicyKernels | None = None,
) -> NDArray[Any]:  # fmt: skip
    """sum_t w_t grad log pi(a_t|s_t): one forward and one backward pass over all steps."""
    if kernels is not None:
        return kernels.score_gradient(theta, rollout.observations, rollout.actions, weights)
    tensors, observations, actions = inputs(policy, theta, rollout, device)
    log_prob = policy.log_prob(tensors, observations, actions)
    weighted = log_prob * to_torch(weights, log_prob.dtype, device)
    return gradient_of(weighted.sum(), tensors).cpu().numpy()


def log_probs(
    policy: Policy, theta: NDArray[Any], rollout: Rollout, device: str = "cpu", kernels: PolicyKernels | None = None
) -> Row:
    """log pi(a_t|s_t), [T]."""
    if kernels is not None:
        return kernels.log_prob(theta, rollout.observations, rollout.actions)
    import torch

    with torch.no_grad():
        tensors, observations, actions = inputs(policy, theta, rollout, device)
        found = policy.log_prob(tensors, observations, actions)
    row: Row = found.cpu().numpy().astype(np.float64)
    return row


def a3c(
    policy: MlpPolicy, theta: NDArray[Any], rollout: Rollout, gamma: float, entropy: float, value_weight: float,
    device: str = "cpu",
) -> NDArray[Any]:  # fmt: skip
    """Uphill on the segment's mean of log pi(a_t|s_t) (R_t - V(s_t)) + entropy H(s_t) - value_weight (R_t - V(s_t))^2.

    R_t is the n-step return: discounted rewards to the segment's or the episode's end, and V of what came after unless
    it terminated. theta holds policy and value parameters.
    """
    import torch

    tensors, observations, actions = inputs(policy, theta, rollout, device)
    after = to_torch(rollout.cut_observations, observations.dtype, device)
    values = policy.values(tensors, torch.cat([observations, after]))
    cut_values = values[rollout.steps :].detach().cpu().numpy().astype(np.float64)
    returns = to_torch(bootstrapped_returns(rollout, cut_values, gamma), observations.dtype, device)
    error = returns - values[: rollout.steps]
    gain = policy.log_prob(tensors, observations, actions) * error.detach()
    gain = gain + entropy * policy.entropy(tensors, observations) - value_weight * error * error
    return gradient_of(gain.mean(), tensors).cpu().numpy()


def inputs(
    policy: Policy, theta: NDArray[Any], rollout: Rollout, device: str
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    import torch

    dtype = torch.float64 if theta.dtype == np.float64 else torch.float32
    tensors = leaves(policy.layout, to_torch(theta, dtype, device))
    whole = np.issubdtype(rollout.actions.dtype, np.integer)
    actions = to_torch(rollout.actions, torch.int64 if whole else dtype, device)
    return tensors, to_torch(rollout.observations, dtype, device), actions
