"""The compiled optimisation against a loop that reads like the textbook, in torch's float64 with torch's own Adam."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys
from numpy.typing import NDArray
from torch_reference import Net, exact, random_theta

from afedpg.agent.compute.kernels import Learner, optimize
from afedpg.agent.compute.local_steps import Adam
from afedpg.agent.compute.objectives import Clipped

ADAMS = (Adam(rate=3e-3, max_norm=0.5, epsilon=1e-5), Adam(rate=1e-2, max_norm=1.0, epsilon=1e-5))
MINIBATCH = 32


@dataclass(frozen=True)
class Rollout:
    policy: Net
    critic: Net
    learners: tuple[Learner, Learner]
    observations: NDArray[np.float32]
    actions: NDArray[Any]
    given: Clipped
    targets: NDArray[np.float64]
    passes: NDArray[np.int64]


def make(policy: Net, steps: int = 150, passes: int = 3, standardize: bool = True) -> Rollout:
    generator = np.random.default_rng(0)
    critic = Net((policy.sizes[0], 24, 13, 1), policy.tanh_layers)
    theta, observations = random_theta(policy, generator), generator.normal(size=(steps, policy.sizes[0]))
    x = exact(observations.astype(np.float32))
    with torch.no_grad():
        torch.manual_seed(0)
        actions = policy.distribution(exact(theta), x).sample()  # type: ignore[no-untyped-call]
        log_prob = policy.log_prob(exact(theta), x, actions).numpy()
    if policy.gaussian:
        actions = actions.float()
    given = Clipped(generator.normal(size=steps), log_prob, 0.2, 0.01, standardize)
    learners = Learner.start(theta), Learner.start(random_theta(critic, generator))
    order = np.stack([generator.permutation(steps) for _ in range(passes)])
    targets = 1 + generator.normal(size=steps)
    return Rollout(policy, critic, learners, x.numpy().astype(np.float32), actions.numpy(), given, targets, order)


def run(rollout: Rollout, chunk: int = 64, max_kl: float = 0.0) -> tuple[Learner, Learner, dict[str, float]]:
    return optimize(
        rollout.policy.policy(chunk), rollout.critic.critic(chunk), rollout.learners, ADAMS, rollout.observations,
        rollout.actions, rollout.given, rollout.targets, rollout.passes, MINIBATCH, max_kl,
    )  # fmt: skip


def textbook(rollout: Rollout, max_kl: float = 0.0) -> tuple[NDArray[Any], NDArray[Any], int, list[float]]:
    """theta of policy and critic, the policy's steps, and the KL estimates seen."""
    net, given = rollout.policy, rollout.given
    policy, critic = (exact(learner.theta).requires_grad_() for learner in rollout.learners)
    climb, descend = (
        torch.optim.Adam([theta], adam.rate, (adam.decay, adam.square_decay), adam.epsilon)
        for theta, adam in zip((policy, critic), ADAMS, strict=True)
    )
    x, a, y = exact(rollout.observations), exact(rollout.actions), exact(rollout.targets)
    steps, seen, stopped = 0, [], False
    for order in rollout.passes:
        for rows in np.split(order, range(MINIBATCH, len(order), MINIBATCH)):
            if not stopped:
                advantages = exact(given.advantages[rows])
                if given.standardize:
                    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
                before = exact(given.log_prob[rows])
                change = (net.log_prob(policy, x[rows], a[rows]) - before).detach()
                seen.append(float((change.exp() - 1 - change).mean()))
                stopped = 0 < max_kl < seen[-1]
            if not stopped:
                gain = net.clipped(policy, x[rows], a[rows], advantages, before, given.clip)
                loss = -gain - given.entropy * net.entropy(policy, x[rows]).mean()
                climb.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_([policy], ADAMS[0].max_norm)
                climb.step()
                steps += 1
            error = ((rollout.critic.outputs(critic, x[rows])[:, 0] - y[rows]) ** 2).mean()
            descend.zero_grad()
            error.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_([critic], ADAMS[1].max_norm)
            descend.step()
    return policy.detach().numpy(), critic.detach().numpy(), steps, seen


def assert_same_way(found: Learner, right: NDArray[Any], start: Learner) -> None:
    """Rounding may choose another side where a gradient is nearly zero, and Adam makes whole steps of that."""
    way = right - start.theta
    assert np.linalg.norm(found.theta - right) < 1e-3 * np.linalg.norm(way)


POLICIES = [
    Net((5, 24, 24, 3), True, gaussian=True),
    Net((5, 24, 24, 3), True, gaussian=True, squashed=True),
    Net((5, 20, 17, 4), True, gaussian=False),
    Net((5, 64, 3), False, gaussian=True),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("standardize", [True, False])
def test_against_the_textbook(policy: Net, standardize: bool) -> None:
    rollout = make(policy, standardize=standardize)
    policy_after, critic_after, steps, seen = textbook(rollout)
    found, critic, told = run(rollout)
    assert_same_way(found, policy_after, rollout.learners[0])
    assert_same_way(critic, critic_after, rollout.learners[1])
    assert (found.steps, critic.steps) == (steps, steps) == (15, 15)  # 150 rows: the fifth minibatch has 22
    assert told["kl"] == pytest.approx(np.mean(seen), rel=1e-3)
    assert told["last_kl"] == pytest.approx(seen[-1], rel=1e-3)


def test_the_policy_stops_where_it_is_too_far_away_and_the_critic_goes_on() -> None:
    rollout = make(POLICIES[0])
    _, _, _, seen = textbook(rollout)
    max_kl = float(np.mean(sorted(seen)[8:10]))
    policy_after, critic_after, steps, _ = textbook(rollout, max_kl)
    assert 0 < steps < 15
    found, critic, told = run(rollout, max_kl=max_kl)
    assert (found.steps, critic.steps) == (told["policy_steps"], told["critic_steps"]) == (steps, 15)
    assert told["last_kl"] > max_kl
    assert_same_way(found, policy_after, rollout.learners[0])
    assert_same_way(critic, critic_after, rollout.learners[1])


def test_two_calls_are_one() -> None:
    """All that is between two optimisations is in the learners."""
    rollout = make(POLICIES[0], passes=4)
    once = run(rollout)
    first = run(replace(rollout, passes=rollout.passes[:2]))
    twice = run(replace(rollout, passes=rollout.passes[2:], learners=first[:2]))
    for one, other in zip(once[:2], twice[:2], strict=True):
        for name in ("theta", "first", "second"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.steps == other.steps


def test_bits_do_not_depend_on_the_chunk() -> None:
    rollout = make(POLICIES[1])
    for one, other in zip(run(rollout, chunk=64)[:2], run(rollout, chunk=7)[:2], strict=True):
        np.testing.assert_array_equal(one.theta, other.theta)


def test_nothing_is_allocated_in_the_loop() -> None:
    _nrt_python.memsys_enable_stats()

    def allocated(passes: int) -> int:
        rollout = make(POLICIES[2], passes=passes)
        before = rtsys.get_allocation_stats().mi_alloc
        run(rollout)
        return int(rtsys.get_allocation_stats().mi_alloc - before)

    try:
        assert allocated(1) == allocated(6)
    finally:
        _nrt_python.memsys_disable_stats()


def test_padding_stays_zero() -> None:
    """A step's bits would otherwise depend on what an earlier one left there."""
    rollout = make(POLICIES[2])
    kernels, critic = rollout.policy.policy(64), rollout.critic.critic(64)
    optimize(
        kernels, critic, rollout.learners, ADAMS, rollout.observations,
        rollout.actions, rollout.given, rollout.targets, rollout.passes, MINIBATCH,
    )  # fmt: skip
    for used in (kernels, critic):
        for packed in used.memory[:5]:
            filled = np.zeros_like(packed)
            used.put(used.take(packed), filled)
            np.testing.assert_array_equal(packed, filled)


def test_rows_that_do_not_exist() -> None:
    rollout = make(POLICIES[0])
    for passes in (rollout.passes + 1, rollout.passes - 1):
        with pytest.raises(ValueError, match="passes from"):
            run(replace(rollout, passes=passes))
