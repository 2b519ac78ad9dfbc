"""An agent can go on anywhere: the native sampler brings its environment back to mid-episode exactly."""

from __future__ import annotations

import numpy as np
import pytest

from afedpg.messages import AgentState

from .rolling import Pair, assert_same_rollout, assert_same_state


@pytest.mark.parametrize("task", ["Humanoid-v4", "Humanoid-v5", "Ant-v4", "Ant-v5", "Swimmer-v4", "Hopper-v5"])
def test_another_process_goes_on_bit_for_bit(task: str) -> None:
    here, there = Pair(task, steps=37), Pair(task, steps=37)
    state = here.native.start(seed=4, agent_id=0)
    for _ in range(3):
        changed, rollout, _ = here.native.sample(0, state, here.theta, None)
        # the same work from the same state, where that agent's environment has never been
        again, moved, extra = there.native.sample(0, state, there.theta, None)
        assert extra == {}
        assert_same_rollout(moved, rollout)
        assert_same_state(again, changed)
        state = state | changed
        there = Pair(task, steps=37)


def test_the_same_work_twice() -> None:
    pair = Pair("Ant-v5", steps=50)
    start = pair.native.start(seed=0, agent_id=0)
    state = start | pair.native.sample(0, start, pair.theta, None)[0]
    once, _, _ = pair.native.sample(0, state, pair.theta, None)
    twice, _, _ = pair.native.sample(0, state, pair.theta, None)
    assert_same_state(once, twice)


def test_states_are_replaced_never_written_to() -> None:
    pair = Pair("Hopper-v4", steps=30)
    state = pair.native.start(seed=0, agent_id=0)
    for _ in range(4):
        before = {name: array.copy() for name, array in state.items()}
        changed, _, _ = pair.native.sample(0, state, pair.theta, None)
        assert_same_state(state, before)
        state = state | changed
    kept = {name: array.copy() for name, array in state.items()}
    pair.native.sample(0, state, pair.theta, None)
    assert_same_state(state, kept)


def test_many_agents_in_few_environments() -> None:
    crowded, roomy = Pair("Walker2d-v4", steps=25, limit=1), Pair("Walker2d-v4", steps=25)
    states: dict[str, dict[int, AgentState]] = {"crowded": {}, "roomy": {}}
    for name, pair in (("crowded", crowded), ("roomy", roomy)):
        for agent in range(3):
            states[name][agent] = pair.native.start(seed=9, agent_id=agent)
        for _ in range(3):
            for agent in range(3):
                changed, _, _ = pair.native.sample(agent, states[name][agent], pair.theta, None)
                states[name][agent] = states[name][agent] | changed
    for agent in range(3):
        assert_same_state(states["crowded"][agent], states["roomy"][agent])


def test_the_plain_sampler_takes_over_and_hands_back() -> None:
    pair = Pair("Humanoid-v4", steps=20)
    mixed = native = pair.native.start(seed=2, agent_id=0)
    for turn in range(4):
        native = native | pair.native.sample(0, native, pair.theta, None)[0]
        sampler = pair.plain if turn % 2 else pair.native
        mixed = mixed | sampler.sample(0, mixed, pair.theta, None)[0]
        assert_same_state(mixed, native)


def test_what_cannot_be_replayed_restarts_and_says_so() -> None:
    pair = Pair("Swimmer-v4", steps=20)
    start = pair.native.start(seed=2, agent_id=0)
    state = start | pair.native.sample(0, start, pair.theta, None)[0]
    other_world = state | {"episode_observation": state["episode_observation"] + 1e-15}
    changed, rollout, extra = pair.native.sample(0, other_world, pair.theta, None)
    assert extra == {"restarted": 1.0}
    assert rollout.steps == 20
    assert len(changed["episode_actions"]) == 20  # of the new episode alone
    assert np.isfinite(changed["episode_return"]).all()
