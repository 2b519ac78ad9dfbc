"""A native rollout is Gymnasium's: observations, terminations, truncations to the bit, rewards within 1e-9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.messages import Moments

from .rolling import Judge, Pair, assert_same_rollout, assert_same_state

TASKS = [
    "Swimmer",
    "Hopper",
    "Walker2d",
    "Humanoid",
    "HalfCheetah",
    "Ant",
    "InvertedPendulum",
    "InvertedDoublePendulum",
]
EVERY = [f"{task}-v{version}" for task in TASKS for version in (4, 5)]
SHORT = {"max_episode_steps": 90}  # so that tasks that never terminate have episodes to end

RUNNER = {"forward_reward_weight": 0.7, "ctrl_cost_weight": 0.03, "reset_noise_scale": 0.2}
OPEN = {"exclude_current_positions_from_observation": False}
HEALTH = {"healthy_reward": 2.5, "terminate_when_unhealthy": False}
ARGUMENTS: list[tuple[str, dict[str, Any]]] = [
    *[(f"{task}-v{version}", RUNNER | OPEN) for task in ("Swimmer", "HalfCheetah") for version in (4, 5)],
    *[
        (f"{task}-v{version}", RUNNER | OPEN | arguments)
        for task in ("Hopper", "Walker2d", "Humanoid")
        for version in (4, 5)
        for arguments in (HEALTH, {"healthy_reward": 0.3, "healthy_z_range": (1.15, 1.45)})
    ],
    ("Hopper-v4", {"healthy_state_range": (-2.0, 2.0), "healthy_angle_range": (-0.05, 0.1)}),
    ("Hopper-v5", {"healthy_state_range": (-2.0, 2.0), "frame_skip": 2}),
    ("Walker2d-v5", {"frame_skip": 1, "healthy_angle_range": (-0.1, 0.1)}),
    ("Ant-v4", {"use_contact_forces": True, "contact_cost_weight": 0.01, "contact_force_range": (-0.5, 2.0)}),
    ("Ant-v4", HEALTH | OPEN | {"ctrl_cost_weight": 0.1}),
    ("Ant-v5", OPEN | {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}),
    ("Ant-v5", HEALTH | {"main_body": "front_left_leg", "forward_reward_weight": 3, "healthy_z_range": (0.4, 0.7)}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_force_range": (-3.0, 0.5)}),
    ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.1, 0.5)}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "include_qfrc_actuator_in_observation": False}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.15}),
    ("InvertedDoublePendulum-v5", {"reset_noise_scale": 0.3, "healthy_reward": 4.0}),
]


def judged(task: str, kwargs: dict[str, Any], rollouts: int = 3) -> int:
    """Episodes that ended while Gymnasium watched."""
    pair = Pair(task, kwargs, steps=120)
    state = pair.native.start(seed=5, agent_id=1)
    judge = Judge(task, kwargs, state)
    for _ in range(rollouts):
        changed, rollout, extra = pair.native.sample(1, state, pair.theta, None)
        judge.check(rollout, pair.native.given)
        state = state | changed
        assert extra == {}
    return judge.episodes


@pytest.mark.parametrize("task", EVERY)
def test_every_task_and_version(task: str) -> None:
    assert judged(task, SHORT) >= 3


@pytest.mark.parametrize(("task", "arguments"), ARGUMENTS)
def test_constructor_arguments(task: str, arguments: dict[str, Any]) -> None:
    assert judged(task, SHORT | arguments) >= 3


@pytest.mark.parametrize("task", EVERY)
def test_both_samplers_give_the_same_rollouts_and_states(task: str) -> None:
    pair = Pair(task, SHORT, steps=100)
    ours = theirs = pair.plain.start(seed=1, agent_id=2)
    size = pair.policy.observations
    moments = Moments(50.0, np.linspace(-1, 1, size), np.linspace(10, 90, size))
    for statistics in (None, moments, moments):
        changed, native, _ = pair.native.sample(2, ours, pair.theta, statistics)
        ours = ours | changed
        changed, plain, _ = pair.plain.sample(2, theirs, pair.theta, statistics)
        theirs = theirs | changed
        assert_same_rollout(native, plain)
        assert_same_state(ours, theirs)


@settings(max_examples=12)
@given(
    st.sampled_from(["Hopper-v4", "Swimmer-v5", "Humanoid-v4"]), st.lists(st.integers(1, 70), max_size=3),
    st.sampled_from(["relu", "tanh"]), st.sampled_from(["tanh", "linear"]), st.integers(0, 1000),
)  # fmt: skip
def test_both_samplers_give_the_same_bits_whatever_the_network(
    task: str, hidden: list[int], activation: str, mean: str, seed: int
) -> None:
    pair = Pair(task, SHORT, steps=100, hidden=tuple(hidden), activation=activation, mean=mean)
    noise = 0.3 * np.random.default_rng(seed).standard_normal(pair.theta.size)
    theta = (pair.theta + noise).astype(np.float32)  # means of all sizes, beyond the bounds as well
    state = pair.plain.start(seed, agent_id=0)
    changed, native, _ = pair.native.sample(0, state, theta, None)
    plain_changed, plain, _ = pair.plain.sample(0, state, theta, None)
    assert_same_rollout(native, plain)
    assert_same_state(state | changed, state | plain_changed)


def test_whole_episodes() -> None:
    pair = Pair("Hopper-v4", steps=60, whole_episodes=True)
    ours = theirs = pair.plain.start(seed=1, agent_id=0)
    for _ in range(4):
        changed, native, _ = pair.native.sample(0, ours, pair.theta, None)
        ours = ours | changed
        changed, plain, _ = pair.plain.sample(0, theirs, pair.theta, None)
        theirs = theirs | changed
        assert native.steps >= 60
        assert native.cut_steps.size == 0
        assert_same_rollout(native, plain)
        assert_same_state(ours, theirs)


def test_other_gravity_is_the_models_own() -> None:
    assert judged("Walker2d-v4", {"gravity": -3.7}) >= 3


def test_unlimited_episodes() -> None:
    pair = Pair("Swimmer-v4", {"max_episode_steps": -1}, steps=1500)
    _, rollout, _ = pair.native.sample(0, pair.native.start(0, 0), pair.theta, None)
    assert not rollout.truncated.any()
    assert rollout.lengths == ()


SITES = [
    *[(f"Hopper-v{version}", sites) for version in (4, 5) for sites in (
        "gravity:values=[1,0.4]", "friction:values=[1,0.2]", "wind:values=[0,40]", "length:values=[1,1.3]",
        "reward:weight=control,values=[1,50]", "reward:weight=healthy,values=[1,3]",
    )],
    ("Walker2d-v4", "length:values=[1,0.7]"), ("HalfCheetah-v4", "friction:values=[1,0.1]"),
    ("Swimmer-v4", "wind:values=[0,3]"), ("Swimmer-v5", "length:values=[1,1.5]"), ("Ant-v4", "gravity:values=[1,0.3]"),
    ("Humanoid-v4", "reward:values=[1,4]"), ("InvertedPendulum-v4", "length:values=[1,2]"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "sites"), SITES)
def test_a_site_is_the_same_to_both_samplers_and_another_than_the_task(task: str, sites: str) -> None:
    pair = Pair(task, SHORT, steps=120, sites=sites)
    seen = []
    for agent in (0, 1):  # the task itself, and the site
        ours = theirs = pair.native.start(seed=5, agent_id=0)
        for _ in range(3):
            found, native, _ = pair.native.sample(agent, ours, pair.theta, None)
            expected, plain, _ = pair.plain.sample(agent, theirs, pair.theta, None)
            assert_same_rollout(native, plain)
            assert_same_state(found, expected)
            ours, theirs = ours | found, theirs | expected
        seen.append(np.concatenate([native.raw, native.rewards[:, None]], axis=1))
    assert not np.array_equal(*seen)
