"""A saved policy acts as it did, fits Stable-Baselines3's tools, and is refused where it does not belong."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Walk
from gymnasium import spaces

from afedpg.agent.normalizer import scaling
from afedpg.agent.policy_file import PolicyFile, contents, load_policy, read_policy
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Moments
from afedpg.record import tensors


class Mixed(Walk):
    """A Dict observation."""

    observation_space = spaces.Dict({"where": spaces.Box(-9, 9, (2,), np.float64), "kind": spaces.Discrete(3)})

    def reset(self, *, seed=None, options=None):
        state, info = super().reset(seed=seed)
        return {"where": state.copy(), "kind": np.int64(1)}, info

    def step(self, action):
        state, *rest = super().step(action)
        return {"where": state.copy(), "kind": np.int64(self.steps % 3)}, *rest


def saved(folder, task, make_env=None):
    work = EnvironmentWorkload(from_settings({"task": task, "hidden": (8, 8), "sampler": "gymnasium"}), make_env)
    theta = work.initial_theta() + 0.3 * np.random.default_rng(0).standard_normal(work.parameters)
    size = work.environments.observations.size
    statistics = Moments(50.0, np.linspace(-1, 1, size), np.linspace(20, 60, size))
    file = PolicyFile(
        task, {}, work.policy.describe(), work.environments.observations.space, work.environments.actions.space,
        work.policy.layout, theta.astype(np.float32), statistics,
    )  # fmt: skip
    tensors.write(folder / "policy.safetensors", *contents(file))
    return work, file


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_a_loaded_policy_acts_as_the_trained_one(tmp_path, task):
    work, file = saved(tmp_path, task)
    loaded = load_policy(tmp_path, task=task)
    live, actor, scale = work.environments.of(0), work.policy.actor(file.theta), scaling(file.statistics)
    env = gymnasium.make(task)
    observation, _ = env.reset(seed=0)
    for _ in range(20):
        expected = live.actions.to_environment(actor.mode(scale(live.observations.flatten(observation))))
        action = loaded.act(observation)
        np.testing.assert_array_equal(action, expected)
        assert env.action_space.contains(action)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_stable_baselines_evaluates_it(tmp_path, task):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    vector = pytest.importorskip("stable_baselines3.common.env_util")
    saved(tmp_path, task)
    loaded = load_policy(tmp_path)
    for env in (vector.make_vec_env(task, n_envs=2, seed=0), vector.make_vec_env(task, n_envs=1, seed=0)):
        mean, deviation = evaluation.evaluate_policy(loaded, env, n_eval_episodes=2)
        assert np.isfinite(mean)
        assert np.isfinite(deviation)


def test_predict_takes_one_observation_or_many(tmp_path):
    saved(tmp_path, "Pendulum-v1")
    loaded = load_policy(tmp_path)
    many = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    actions, state = loaded.predict(many, None, np.ones(5, bool), deterministic=True)
    assert state is None
    assert actions.shape == (5, 1)
    np.testing.assert_array_equal(actions[2], loaded.predict(many[2])[0])
    noisy = np.array([loaded.predict(many[2], deterministic=False)[0] for _ in range(10)])
    assert noisy.std() > 0
    with pytest.raises(ConfigError, match="shape"):
        loaded.predict(np.zeros(4))


def test_dict_observations(tmp_path):
    saved(tmp_path, "mixed", lambda agent: Mixed())
    loaded = load_policy(tmp_path)
    many = {"where": np.zeros((4, 2)), "kind": np.array([0, 1, 2, 1])}
    actions, _ = loaded.predict(many)
    assert actions.shape == (4,)
    assert loaded.predict({"where": np.zeros(2), "kind": np.int64(2)})[0] == actions[2]


def test_the_file_says_everything(tmp_path):
    _, file = saved(tmp_path, "CartPole-v1")
    again = read_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(again.theta, file.theta)
    np.testing.assert_array_equal(again.statistics.m2, file.statistics.m2)
    plain = ("task", "env_kwargs", "policy", "layout", "observation_space", "action_space")
    assert [getattr(again, name) for name in plain] == [getattr(file, name) for name in plain]
    tensors.write(tmp_path / "policy.safetensors", *contents(replace(file, statistics=None)))
    assert read_policy(tmp_path).statistics is None


def test_a_policy_of_ones_own_is_read_but_not_run(tmp_path):
    _, file = saved(tmp_path, "CartPole-v1")
    own = replace(file, policy={"kind": "own", "module": "Mine"})
    tensors.write(tmp_path / "policy.safetensors", *contents(own))
    np.testing.assert_array_equal(read_policy(tmp_path).theta, file.theta)
    with pytest.raises(ConfigError, match="Mine"):
        load_policy(tmp_path)


def test_what_does_not_belong_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        load_policy(tmp_path)
    saved(tmp_path, "CartPole-v1")
    with pytest.raises(ConfigError, match="trained on CartPole-v1, not on Hopper-v4"):
        load_policy(tmp_path, task="Hopper-v4")
    path = tmp_path / "policy.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-8] + bytes(8))
    with pytest.raises(AfedpgError, match="damaged"):
        load_policy(tmp_path)
    for rubbish in (b"", b"not a policy", content[:100]):
        path.write_bytes(rubbish)
        with pytest.raises(AfedpgError, match="damaged"):
            load_policy(tmp_path)
