"""CartPole in compiled code is Gymnasium's, to the bit; where it is not, it is not used."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.agent.attacks import worlds
from afedpg.messages import Moments
from afedpg.sampling.environments import MakeEnv, make_environment
from afedpg.sampling.native import cart_pole

from .rolling import Judge, Pair, assert_same_rollout, assert_same_state

TASK = "CartPole-v1"
MOMENTS = Moments(50.0, np.array([0.1, 0.0, -0.02, 0.3]), np.array([4.0, 30.0, 0.5, 60.0]))


def same(pair: Pair, rollouts: int = 4, seed: int = 1) -> int:
    """Episodes that ended in both samplers' rollouts, which are the same."""
    ours = theirs = pair.plain.start(seed, agent_id=2)
    ended = 0
    for statistics in (None, *[MOMENTS] * (rollouts - 1)):
        changed, native, extra = pair.native.sample(2, ours, pair.theta, statistics)
        ours = ours | changed
        changed, plain, _ = pair.plain.sample(2, theirs, pair.theta, statistics)
        theirs = theirs | changed
        assert_same_rollout(native, plain)
        assert_same_state(ours, theirs)
        assert native.rewards.tobytes() == plain.rewards.tobytes()
        assert extra == {}
        ended += len(native.returns)
    return ended


@pytest.mark.parametrize(
    "kwargs", [{}, {"max_episode_steps": 11}, {"sutton_barto_reward": True}, {"max_episode_steps": 15}]
)
@pytest.mark.parametrize("whole_episodes", [False, True])
def test_both_samplers_give_the_same_rollouts_and_states(kwargs: dict[str, Any], whole_episodes: bool) -> None:
    steps = 60 if kwargs.get("max_episode_steps") or not whole_episodes else 500
    assert same(Pair(TASK, kwargs, steps, whole_episodes)) >= 8


@pytest.mark.parametrize("sites", ["gravity:low=0.5,high=3", "length:low=0.3,high=2"])
def test_sites_have_numbers_of_their_own(sites: str) -> None:
    pair = Pair(TASK, steps=100, sites=sites)
    assert same(pair) >= 4
    usual = Pair(TASK, steps=100)
    state = usual.native.start(1, 2)
    here, there = (one.native.sample(2, state, one.theta, None)[1].raw.copy() for one in (pair, usual))
    assert not np.array_equal(here, there)


def changed(**values: Any) -> MakeEnv:
    def make(agent_id: int) -> gymnasium.Env[Any, Any]:
        env = make_environment(TASK, {})
        for name, value in values.items():
            setattr(env.unwrapped, name, value)
        return env

    return make


@pytest.mark.parametrize(
    "values", [{"kinematics_integrator": "semi-implicit euler"}, {"x_threshold": 0.2}, {"force_mag": 3.0, "tau": 0.05}]
)
def test_whatever_the_environment_was_changed_to(values: dict[str, Any]) -> None:
    assert same(Pair(TASK, steps=100, make_env=changed(**values))) >= 3


WORLDS = [worlds.RewardFlip(), worlds.RandomActions(), worlds.ObservationNoise(), worlds.ObservationNoise(0.01)]


@pytest.mark.parametrize("world", WORLDS)
def test_a_liars_world_is_compiled_as_well(world: worlds.World) -> None:
    """Also where it goes on in another process."""
    pair = Pair(TASK, steps=100, make_env=lambda agent_id: world.environment(make_environment(TASK, {})))
    assert same(pair) >= 4
    state = pair.plain.start(1, agent_id=0)
    honest = Pair(TASK, steps=100)
    for _ in range(3):
        changed, rollout, extra = pair.plain.sample(0, state, pair.theta, None)
        fresh = Pair(TASK, steps=100, make_env=lambda agent_id: world.environment(make_environment(TASK, {})))
        again, moved, extra = fresh.native.sample(0, state, fresh.theta, None)
        assert extra == {}
        assert_same_rollout(moved, rollout)
        assert_same_state(again, changed)
        _, other, _ = honest.plain.sample(0, state, honest.theta, None)
        assert not (np.array_equal(other.raw, rollout.raw) and np.array_equal(other.rewards, rollout.rewards))
        state = state | changed


def test_a_world_without_an_end_is_refused() -> None:
    env = worlds.ObservationNoise().environment(make_environment(TASK, {}).unwrapped)
    assert "endless" in str(cart_pole.cart_of(env))


def test_gymnasium_itself_is_the_judge() -> None:
    pair = Pair(TASK, steps=120)
    state = pair.native.start(seed=5, agent_id=1)
    judge = Judge(TASK, {}, state)
    for _ in range(3):
        changed, rollout, _ = pair.native.sample(1, state, pair.theta, None)
        judge.check(rollout, pair.native.given)
        state = state | changed
    assert judge.episodes >= 5


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 70), max_size=3), st.sampled_from(["relu", "tanh"]), st.integers(0, 1000))
def test_the_same_bits_whatever_the_network(hidden: list[int], activation: str, seed: int) -> None:
    pair = Pair(TASK, steps=100, hidden=tuple(hidden), activation=activation)
    noise = 0.5 * np.random.default_rng(seed).standard_normal(pair.theta.size)
    pair.theta = (pair.theta + noise).astype(np.float32)
    same(pair, 2, seed)


def test_another_process_goes_on_bit_for_bit_and_so_does_the_plain_sampler() -> None:
    here = Pair(TASK, steps=37)
    state = here.native.start(seed=4, agent_id=0)
    for _ in range(4):
        changed, rollout, _ = here.native.sample(0, state, here.theta, None)
        fresh = Pair(TASK, steps=37)
        for there in (fresh.native, fresh.plain, here.plain):
            again, moved, extra = there.sample(0, state, fresh.theta, None)
            assert extra == {}
            assert_same_rollout(moved, rollout)
            assert_same_state(again, changed)
        state = state | changed


def test_the_same_work_twice() -> None:
    pair = Pair(TASK, steps=50)
    start = pair.native.start(seed=0, agent_id=0)
    state = start | pair.native.sample(0, start, pair.theta, None)[0]
    once, twice = (pair.native.sample(0, state, pair.theta, None)[0] for _ in range(2))
    assert_same_state(once, twice)


def test_what_cannot_be_replayed_restarts_and_says_so() -> None:
    pair = Pair(TASK, steps=20)
    start = pair.native.start(seed=2, agent_id=0)
    state = start | pair.native.sample(0, start, pair.theta, None)[0]
    other_world = state | {"episode_observation": state["episode_observation"] + 1e-15}
    _, rollout, extra = pair.native.sample(0, other_world, pair.theta, None)
    assert (extra, rollout.steps) == ({"restarted": 1.0}, 20)


def test_what_is_no_cartpole_is_refused() -> None:
    env = make_environment(TASK, {})
    assert cart_pole.cart_of(gymnasium.wrappers.ClipReward(env, -1, 1)) == "it is wrapped in ClipReward"

    class CartPoleEnv(type(env.unwrapped)):  # type: ignore[misc]
        pass

    assert "no compiled task is known for" in str(cart_pole.cart_of(CartPoleEnv()))
    assert isinstance(cart_pole.cart_of(env), cart_pole.Cart)


def test_numbers_that_are_rounded_otherwise_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = type(make_environment(TASK, {}).unwrapped)

    class Other(kind):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            answer = super().step(action)
            self.state[3] = np.nextafter(self.state[3], np.inf)
            return answer

    assert cart_pole._difference(kind) == ""
    assert cart_pole._difference(Other) == "CartPole's numbers are not rounded here as in Gymnasium"
    monkeypatch.setattr(cart_pole, "_difference", lambda kind: "another processor")
    assert cart_pole.cart_of(make_environment(TASK, {})) == "another processor"
