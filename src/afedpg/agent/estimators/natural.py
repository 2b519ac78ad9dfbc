"""The natural gradient: the direction that gains most per KL divergence of the policy, not per length of theta.

g = gradient with generalized advantages, F = Fisher information of the policy, averaged over the rollout's states
(F + damping I) s = g      by conjugate gradient, which needs products F v alone
contribution  sqrt(2 kl / g.s) s, along which the policy moves by a KL divergence of about kl
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from afedpg.agent.estimators.estimator import Tools
from afedpg.agent.estimators.gae import Gae
from afedpg.agent.estimators.gradient import advantage_gradient, inputs
from afedpg.config import option
from afedpg.messages import AgentState, Contribution, Task, Vector
from afedpg.policy.mlp import MlpPolicy, joined
from afedpg.sampling.rollout import Rollout

if TYPE_CHECKING:
    from torch import Tensor

Product = Callable[[Vector], NDArray[Any]]


@dataclass(frozen=True)
class Natural(Gae):
    """F^-1 grad log pi(a_t|s_t) A_t by conjugate gradient, as long as a KL divergence allows."""

    iterations: int = option(10, "of conjugate gradient", at_least=1, at_most=10_000)
    damping: float = option(0.1, "added to the Fisher information's diagonal", at_least=0, at_most=1e6)
    every: int = option(2, "the Fisher information is averaged over every n-th state of the rollout", at_least=1)
    kl: float = option(0.01, "divergence of the policy that a contribution is as long as", above=0, at_most=1e3)

    def estimate(
        self, tools: Tools, state: AgentState, task: Task, rollout: Rollout
    ) -> tuple[AgentState, Contribution]:
        fitted, advantages = self.advantages(tools, state, rollout)
        device, kernels = tools.settings.device, tools.kernels
        uphill = advantage_gradient(tools.policy, task.theta, rollout, advantages, device, kernels)
        product = fisher(tools, task.theta, rollout, self.every)
        direction = solve(product, uphill, self.iterations, self.damping)
        gain = _dot(uphill.astype(np.float64), direction)
        length = math.sqrt(2 * self.kl / gain) if gain > 0 else 0.0
        return fitted, Contribution((length * direction).astype(uphill.dtype))


def solve(product: Product, wanted: NDArray[Any], iterations: int, damping: float) -> Vector:
    """s with (F + damping I) s = wanted, nearly: conjugate gradient from zero, in float64 but for F v."""
    found = np.zeros(wanted.size)
    rest = wanted.astype(np.float64)
    along, square = rest.copy(), _dot(rest, rest)
    for _ in range(iterations):
        curved = product(along) + damping * along
        curvature = _dot(along, curved)
        if not curvature > 0:  # nothing is left to be solved, but for rounding
            break
        found += square / curvature * along
        rest -= square / curvature * curved
        before, square = square, _dot(rest, rest)
        along = rest + square / before * along
    return found


def _dot(one: Vector, other: Vector) -> float:
    """Without BLAS, whose last bits change with its threads."""
    return float((one * other).sum())


def fisher(tools: Tools, theta: NDArray[Any], rollout: Rollout, every: int = 1) -> Product:
    """v -> F v, over every n-th state.

    A policy of one's own tells its log_prob alone: F is then the mean of its gradients' outer products.
    """
    seen, done = rollout.observations[::every].copy(), rollout.actions[::every].copy()
    kernels = tools.kernels
    if kernels is not None:
        return lambda v: kernels.fisher_product(theta, seen, v)
    states = replace(rollout, observations=seen, actions=done)
    tensors, observations, actions = inputs(tools.policy, theta, states, tools.settings.device)
    if isinstance(tools.policy, MlpPolicy):
        outputs, metric = tools.policy.fisher(tensors, observations)
    else:
        outputs, metric = tools.policy.log_prob(tensors, observations, actions), lambda slopes: slopes
    return _curvature(outputs, metric, tensors, len(seen))


def _curvature(outputs: Tensor, metric: Callable[[Tensor], Tensor], tensors: dict[str, Tensor], count: int) -> Product:
    """v -> J^T metric(J v) / count, J the derivative of the outputs by theta: J^T u is linear in u, so its derivative
    by u along v is J v. Two passes backward per product, over one graph.
    """
    import torch

    leaves = list(tensors.values())
    u = torch.zeros_like(outputs, requires_grad=True)
    parts = torch.autograd.grad(outputs, leaves, u, create_graph=True, allow_unused=True)

    def product(vector: Vector) -> NDArray[Any]:
        pairs, at = [], 0
        for leaf, part in zip(leaves, parts, strict=True):
            piece = torch.from_numpy(vector[at : at + leaf.numel()]).to(leaf.device, leaf.dtype)
            at += leaf.numel()
            if part is not None:
                pairs.append((part.reshape(-1) * piece).sum())
        slopes = torch.autograd.grad(torch.stack(pairs).sum(), u, retain_graph=True)[0]
        found = torch.autograd.grad(outputs, leaves, metric(slopes) / count, retain_graph=True, allow_unused=True)
        return joined(found, tensors).detach().cpu().numpy()

    return product
