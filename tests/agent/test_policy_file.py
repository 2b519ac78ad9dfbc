"""A saved policy acts as it did, fits Stable-Baselines3's tools, and is refused where it does not belong."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Walk
from gymnasium import spaces

from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.export.policy_file import PolicyFile, contents, load_policy, read_policy, sha256_of
from afedpg.messages import Moments
from afedpg.params import Layout
from afedpg.policy.acting import MlpActor
from afedpg.record import tensors
from afedpg.sampling.normalizer import scaling


class Mixed(Walk):
    """A Dict observation."""

    observation_space = spaces.Dict({"where": spaces.Box(-9, 9, (2,), np.float64), "kind": spaces.Discrete(3)})

    def reset(self, *, seed=None, options=None):
        state, info = super().reset(seed=seed)
        return {"where": state.copy(), "kind": np.int64(1)}, info

    def step(self, action):
        state, *rest = super().step(action)
        return {"where": state.copy(), "kind": np.int64(self.steps % 3)}, *rest


def saved(folder, task, make_env=None, **more):
    settings = {"task": task, "hidden": (8, 8), "sampler": "gymnasium"} | more
    work = EnvironmentWorkload(from_settings(settings), make_env)
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
    live, actor = work.environments.of(0), work.policy.actor(file.theta)
    scale = scaling(file.statistics, live.observations.size)
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


@pytest.mark.parametrize("task", ["Pendulum-v1", "CartPole-v1"])
def test_of_no_observations_there_are_no_actions_of_the_same_kind(tmp_path, task):
    saved(tmp_path, task)
    loaded = load_policy(tmp_path)
    rows = np.zeros((3, *loaded.observation_space.shape), np.float32)
    some, none = (loaded.predict(rows[:count])[0] for count in (3, 0))
    assert none.dtype == some.dtype == loaded.action_space.dtype
    assert none.shape == (0, *some.shape[1:])


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


@pytest.mark.parametrize("task", ["Pendulum-v1", "CartPole-v1"])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("mean", ["tanh", "linear"])
def test_activation_and_mean_come_back_with_the_file(tmp_path, task, activation, mean):
    workload, file = saved(tmp_path, task, activation=activation, mean=mean)
    loaded = load_policy(tmp_path)
    assert (loaded.file.policy["activation"], loaded.file.policy["mean"]) == (activation, mean)
    actor, scale = workload.policy.actor(file.theta), scaling(file.statistics, loaded._observations.size)
    for row in np.random.default_rng(0).standard_normal((50, loaded._observations.size)):
        np.testing.assert_array_equal(loaded.act(row), loaded._actions.to_environment(actor.mode(scale(row))))


def test_files_that_say_neither_activation_nor_mean_are_relu_and_tanh(tmp_path):
    """As all files before these settings; and a file of the usual ones is readable for programs before them."""
    _, file = saved(tmp_path, "Pendulum-v1")
    arrays, metadata = contents(file)
    assert metadata["format"] == "afedpg-policy-1"
    rows, now = np.random.default_rng(0).standard_normal((20, 3)), load_policy(tmp_path)
    older = {key: value for key, value in file.policy.items() if key not in ("activation", "mean")}
    tensors.write(tmp_path / "policy.safetensors", arrays, metadata | {"policy": json.dumps(older)})
    before = load_policy(tmp_path)
    np.testing.assert_array_equal(before.predict(rows)[0], now.predict(rows)[0])
    for kinds in ({"activation": "tanh"}, {"mean": "linear"}):
        assert contents(replace(file, policy=file.policy | kinds))[1]["format"] == "afedpg-policy-2"


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


WRONG_FOR_A_VECTOR = [
    [0.5], [], 0.5, None, "abc", ["a", "b", "c"], np.ones(6), np.zeros(1_000_000), np.zeros((2, 3)), np.zeros((3, 1)),
    {"where": np.zeros(3)}, [[1.0], [1.0, 2.0]], [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0],
]  # fmt: skip
WRONG_FOR_A_DICT = [
    np.zeros(5), {}, {"where": np.zeros(2)}, {"where": np.zeros(3), "kind": 1}, {"where": np.zeros(2), "kind": 3},
    {"where": np.zeros(2), "kind": -1}, {"where": np.zeros(2), "kind": [1, 2]}, {"where": np.zeros(2), "kind": "red"},
    {"where": np.zeros((2, 2)), "kind": [1, 2]},
]  # fmt: skip


@pytest.mark.parametrize("deterministic", [True, False])
def test_act_takes_one_observation_of_its_space_and_nothing_else(tmp_path, deterministic):
    saved(tmp_path, "Pendulum-v1")
    vector = load_policy(tmp_path)
    saved(tmp_path, "mixed", lambda agent: Mixed())
    mixed = load_policy(tmp_path)
    assert vector.act([0.5, 0.1, -1.0], deterministic).shape == (1,)
    assert mixed.act({"where": [0.5, 0.1], "kind": 2, "more": 0}, deterministic) in (0, 1)
    for policy, wrong in [(vector, WRONG_FOR_A_VECTOR), (mixed, WRONG_FOR_A_DICT)]:
        for observation in wrong:
            with pytest.raises(ConfigError, match=r"^policy: .*observation") as refusal:
                policy.act(observation, deterministic)
            assert "\n" not in str(refusal.value)


def test_compiled_code_is_never_given_arrays_of_another_size():
    """It does not look where an array ends; so the three places that call it do."""
    statistics = Moments(50.0, np.zeros(1), np.ones(1))
    with pytest.raises(AfedpgError, match="an observation has 4 numbers"):
        scaling(statistics, 4)
    with pytest.raises(AfedpgError, match="an observation has 4 numbers, not 5"):
        scaling(None, 4)(np.zeros(5))
    actor = MlpActor(np.zeros(4 * 2 + 2, np.float32), (4, 2), gaussian=False)
    for act in (actor.mode, lambda row: actor.sample(row, np.random.default_rng(0))):
        with pytest.raises(AfedpgError, match="an observation has 4 numbers, not 1"):
            act(np.zeros(1, np.float32))
    with pytest.raises(AfedpgError, match="theta has 1 numbers, these layers need 10"):
        MlpActor(np.zeros(1, np.float32), (4, 2), gaussian=False)


def spoiled(arrays, metadata):
    """Every way to make a file whose parts are of different sizes, or no parts at all."""
    mean, m2 = "observation_statistics.mean", "observation_statistics.m2"
    policy, layout = json.loads(metadata["policy"]), json.loads(metadata["layout"])
    box = json.loads(metadata["observation_space"])
    yield arrays | {mean: np.zeros(1), m2: np.ones(1)}, metadata
    yield arrays | {m2: np.ones(1)}, metadata
    yield arrays | {mean: np.zeros((2, 2))}, metadata
    yield arrays | {mean: np.full(4, np.nan)}, metadata
    yield arrays | {m2: np.array([1.0, 1.0, -1.0, 1.0])}, metadata
    stretched = Layout(tuple((name, tuple(shape)) for name, shape in layout)).flatten(
        arrays | {"layer0.bias": np.zeros(8, np.float32)}
    )
    yield arrays | {"layer0.bias": np.zeros(1, np.float32)}, metadata | {"sha256": sha256_of(stretched)}
    yield {name: array for name, array in arrays.items() if name != "layer1.weight"}, metadata
    for count in ("nan", "inf", "-1.0", "many"):
        yield arrays, metadata | {"observation_count": count}
    for key, values in {
        "observations": (3, 5, 10**12, -1, "4", None), "actions": (1, 3, None), "gaussian": (True, "no"),
        "hidden": ([], [8], [8, 8, 8], [4, 16], [8.5, 8], None, "88", [10**12, 8]), "value_hidden": ([8], 3),
        "activation": ("gelu", None, 1), "mean": ("relu", None, ["tanh"]),
    }.items():  # fmt: skip
        for value in values:
            yield arrays, metadata | {"policy": json.dumps(policy | {key: value})}
    for other in ([], layout[:-1], layout + layout[:1], [["layer0.weight", [10**12]]], [["layer0.weight", [-4, -8]]]):
        yield arrays, metadata | {"layout": json.dumps(other)}
    for change in (
        {"shape": [3]},
        {"shape": [-1]},
        {"low": [0.0, 0.0]},
        {"dtype": "object"},
        {"kind": 7},
        {"low": "x"},
    ):
        yield arrays, metadata | {"observation_space": json.dumps(box | change)}
    yield arrays, metadata | {"observation_space": json.dumps({"kind": "discrete", "n": 10**12, "start": 0})}
    yield arrays, metadata | {"observation_space": "[" * 5000 + "]" * 5000}
    for space in ({"kind": "discrete", "n": 3, "start": 0}, {"kind": "discrete", "n": -1, "start": 0}, [], None):
        yield arrays, metadata | {"action_space": json.dumps(space)}


def test_a_file_whose_parts_do_not_fit_together_is_refused(tmp_path):
    _, file = saved(tmp_path, "CartPole-v1")
    for arrays, metadata in spoiled(*contents(file)):
        tensors.write(tmp_path / "policy.safetensors", arrays, metadata)
        with pytest.raises(AfedpgError, match=r"^policy: ") as refusal:
            read_policy(tmp_path)
        assert "\n" not in str(refusal.value)
