"""The exported graph acts as the loaded policy does, on every space a policy can have."""

import json
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch
from gymnasium import spaces

from afedpg import train
from afedpg.cli import main
from afedpg.errors import AfedpgError, ConfigError
from afedpg.export.onnx_file import to_onnx
from afedpg.export.policy_file import LoadedPolicy, PolicyFile, load_policy, sha256_of
from afedpg.messages import Moments
from afedpg.policy.mlp import MlpPolicy
from afedpg.policy.own import ModulePolicy
from afedpg.sampling.spaces import actions_of, choices_of, observations_of

BOX = spaces.Box(-9, 9, (4,), np.float64)
OBSERVATIONS = {
    "box": BOX,
    "float32 matrix": spaces.Box(-9, 9, (2, 3), np.float32),
    "whole numbers": spaces.Box(0, 200, (5,), np.uint8),
    "discrete": spaces.Discrete(6, start=3),
    "multidiscrete": spaces.MultiDiscrete([3, 5, 2], start=[1, 0, -4]),
    "multidiscrete matrix": spaces.MultiDiscrete([[3, 5], [2, 4]]),
    "multibinary": spaces.MultiBinary(7),
    "dict": spaces.Dict({"z": BOX, "a": spaces.Discrete(3), "in": spaces.Dict({"b": spaces.MultiBinary((2, 2))})}),
    "picture": spaces.Box(0, 255, (9, 11, 3), np.uint8),
    "large pictures": spaces.Box(0, 255, (2, 40, 36, 3), np.uint8),
    "channels first": spaces.Box(0, 200, (2, 12, 12), np.uint8),
    "tuple": spaces.Tuple([spaces.Discrete(2), spaces.Tuple([BOX, spaces.MultiDiscrete([2, 3])])]),
}
ACTIONS = {
    "box": spaces.Box(np.array([-1, 0, 5], np.float32), np.array([1, 0.3, 9], np.float32)),
    "float64 matrix": spaces.Box(-2, 3, (2, 2), np.float64),
    "discrete": spaces.Discrete(5, start=-2),
    "multidiscrete": spaces.MultiDiscrete([[3, 5], [2, 4]], start=[[1, 0], [-4, 2]]),
    "multibinary": spaces.MultiBinary((2, 3)),
}


def file_of(observation_space, action_space, hidden=(16, 16), scaled=True, value_hidden=None, **kinds):
    observations, actions = observations_of(observation_space), actions_of(action_space)
    gaussian = isinstance(action_space, spaces.Box)
    kinds |= {"choices": choices_of(actions), "image": observations.image}
    scaled = scaled and observations.image is None
    policy = MlpPolicy(observations.size, actions.size, gaussian, hidden, 0.0, value_hidden, **kinds)
    draws = np.random.default_rng(1)
    noise = 0.3 if observations.image is None else 0.02  # through convolutions it grows
    theta = policy.initial_theta(draws) + noise * draws.standard_normal(policy.layout.size)
    size = observations.size
    statistics = Moments(50.0, np.linspace(-1, 1, size), np.linspace(0.1, 60, size)) if scaled else None
    return PolicyFile(
        "task", {"a": 1}, policy.describe(), observation_space, action_space, policy.layout, theta.astype(np.float32),
        statistics,
    )  # fmt: skip


def leaves(space, observation, name="observation"):
    if isinstance(space, spaces.Dict):
        return {k: v for key, part in space.items() for k, v in leaves(part, observation[key], f"{name}.{key}").items()}
    if isinstance(space, spaces.Tuple):
        parts = enumerate(space)
        return {k: v for key, part in parts for k, v in leaves(part, observation[key], f"{name}.{key}").items()}
    return {name: np.asarray(observation, space.dtype)}


def actions_in_onnx(model, space, observations):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows = [leaves(space, observation) for observation in observations]
    return session.run(None, {name: np.stack([row[name] for row in rows]) for name in rows[0]})[0]


def assert_same(file, observations):
    loaded = LoadedPolicy(file)
    expected = np.stack([loaded.act(observation) for observation in observations])
    given = actions_in_onnx(to_onnx(file, {}, "1.2"), file.observation_space, observations)
    assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0  # a policy that always does the same would show nothing
    for action in given[:50]:
        assert file.action_space.contains(action)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("actions", ACTIONS)
def test_a_thousand_observations_give_the_same_actions(actions, scaled):
    draws = np.random.default_rng(0)
    observations = list(BOX.low + (BOX.high - BOX.low) * draws.random((1000, 4)))
    observations[:2] = [np.full(4, 1e9), np.full(4, -1e9)]  # clipped where they are scaled
    assert_same(file_of(BOX, ACTIONS[actions], scaled=scaled), observations if scaled else observations[2:])


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_observation_space(name):
    space = OBSERVATIONS[name]
    space.seed(0)
    assert_same(file_of(space, ACTIONS["box"]), [space.sample() for _ in range(200)])


@pytest.mark.parametrize("settings", [{"hidden": ()}, {"hidden": (300,)}, {"value_hidden": (8,)}])
def test_every_network(settings):
    BOX.seed(0)
    assert_same(file_of(BOX, ACTIONS["discrete"], **settings), [BOX.sample() for _ in range(200)])


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize(("activation", "mean"), [("tanh", "tanh"), ("relu", "linear"), ("tanh", "linear")])
def test_every_activation_and_mean(activation, mean, actions):
    """A linear mean of this theta is often beyond the bounds."""
    BOX.seed(0)
    file = file_of(BOX, ACTIONS[actions], activation=activation, mean=mean)
    assert_same(file, [BOX.sample() for _ in range(200)])


def test_the_model_says_what_it_is():
    file = file_of(BOX, ACTIONS["discrete"])
    model = to_onnx(file, {"afedpg": "1.2", "numpy": "2"}, "1.3")
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert (said["task"], json.loads(said["env_kwargs"])) == ("task", {"a": 1})
    assert said["sha256"] == sha256_of(file.theta)
    assert json.loads(said["action_space"]) == {"kind": "discrete", "n": 5, "start": -2}
    assert json.loads(said["versions"]) == {"afedpg": "1.2", "numpy": "2"}
    assert (model.producer_name, model.producer_version) == ("afedpg", "1.3")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_exports_a_run(folder, capsys):
    train("CartPole-v1", agents=2, iterations=2, steps=64, hidden=(8,), evaluate_episodes=1, out="run")
    assert main(["export", "run", "--to", "onnx", "policy.onnx", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    loaded = load_policy("run")
    assert (said["inputs"], said["sha256"]) == (["observation"], sha256_of(loaded.file.theta))
    loaded.observation_space.seed(0)
    observations = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
    given = session.run(["action"], {"observation": observations})[0]
    np.testing.assert_array_equal(given, [loaded.act(row, deterministic=True) for row in observations])


def refused(capsys, *arguments):
    code = main(list(arguments))
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return code, said.err


def test_what_cannot_be_exported_is_one_line(folder, capsys, monkeypatch):
    train("quadratic", agents=2, iterations=2, out="quadratic")
    assert refused(capsys, "export", "quadratic", "out.onnx")[1].startswith("afedpg: run: quadratic is a synthetic")
    train("CartPole-v1", agents=1, iterations=1, steps=16, hidden=(4,), evaluate_episodes=1, out="run")
    code, line = refused(capsys, "export", "run", "--to", "torchscript", "out.pt")
    assert (code, line) == (2, "afedpg: to: unknown 'torchscript'; choose from onnx\n")
    code, line = refused(capsys, "export", "run", "nowhere/out.onnx")  # as of `evaluate --video nowhere/out.gif`
    assert (code, line) == (2, "afedpg: file: there is no folder nowhere\n")
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, line = refused(capsys, "export", "run", "out.onnx")
    assert (code, "pip install 'afedpg[onnx]'" in line) == (1, True)
    assert not list(folder.glob("out.*"))


def test_a_module_of_ones_own_needs_its_code():
    file = file_of(BOX, ACTIONS["discrete"])
    file.policy.update(kind="own", module="Mine")
    with pytest.raises(ConfigError, match=r"Mine is a module of your own.*--policy FILE.py:NAME"):
        to_onnx(file, {}, "1.2")


class Own(torch.nn.Module):
    """A module with layers that no MLP of this program has."""

    def __init__(self, inputs, outputs, gaussian, choices=()):
        super().__init__()
        self.wide, self.out = torch.nn.Linear(inputs, 8), torch.nn.Linear(8, outputs)
        self.gaussian, self.choices = gaussian, choices

    def _output(self, rows):
        return self.out(torch.nn.functional.gelu(self.wide(rows)))

    def log_prob(self, rows, actions):
        return self._output(rows).sum(-1)

    def sample(self, rows, generator):
        return self.mode(rows)

    def mode(self, rows):
        if self.choices:
            return torch.stack([part.argmax(-1) for part in self._output(rows).split(self.choices, -1)], -1)
        return torch.sin(self._output(rows)) if self.gaussian else self._output(rows).argmax(-1)


def make_own(observations, actions):
    found = actions_of(actions)
    choices = choices_of(found)
    return Own(observations_of(observations).size, found.size, isinstance(actions, spaces.Box), choices)


@pytest.mark.parametrize("actions", ACTIONS)
@pytest.mark.parametrize("observations", ["box", "dict"])
def test_a_module_of_ones_own_acts_in_the_graph_as_it_does_here(observations, actions):
    space = OBSERVATIONS[observations]
    like = file_of(space, ACTIONS[actions])
    made = ModulePolicy(make_own(space, ACTIONS[actions]), ACTIONS[actions])
    theta = (0.3 * np.random.default_rng(0).standard_normal(made.layout.size)).astype(np.float32)
    file = replace(like, policy=made.describe(), layout=made.layout, theta=theta)
    space.seed(0)
    rows = [space.sample() for _ in range(200)]
    loaded = LoadedPolicy(file, make_policy=make_own)
    expected = np.stack([loaded.act(row) for row in rows])
    given = actions_in_onnx(to_onnx(file, {}, "1.2", make_own), space, rows)
    assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
    assert np.ptp(expected, axis=0).max() > 0


@pytest.mark.parametrize(
    "train",
    [
        lambda self, mode=True: torch.nn.Module.train(self, True),
        lambda self, batches: [self(batch) for batch in batches],
        lambda self, mode=True: None,
    ],
    ids=["stays", "of batches", "nothing"],
)
def test_a_module_whose_train_is_its_own_has_no_dropout_in_the_graph(train):
    class Mine(Own):
        def __init__(self, *given):
            super().__init__(*given)
            self.drop = torch.nn.Dropout(0.5)

        def _output(self, rows):
            return self.out(self.drop(self.wide(rows)))

    Mine.train = train
    made = ModulePolicy(Mine(4, 5, False), ACTIONS["discrete"])
    theta = np.random.default_rng(0).standard_normal(made.layout.size).astype(np.float32)
    file = replace(file_of(BOX, ACTIONS["discrete"]), policy=made.describe(), layout=made.layout, theta=theta)
    model = to_onnx(file, {}, "1.2", lambda observations, actions: Mine(4, 5, False))
    assert "Dropout" not in {node.op_type for node in model.graph.node}


def test_what_torch_cannot_export_is_one_line():
    class Odd(Own):
        def mode(self, rows):
            return torch.linalg.eigvals(rows[:, None] * rows[:, :, None]).real[:, 0].long()

    file = file_of(BOX, ACTIONS["discrete"])
    made = ModulePolicy(Odd(4, 5, False), ACTIONS["discrete"])
    file = replace(file, policy=made.describe(), layout=made.layout, theta=np.zeros(made.layout.size, np.float32))
    with pytest.raises(AfedpgError, match=r"^policy: torch cannot export Odd: .*$"):
        to_onnx(file, {}, "1.2", lambda observations, actions: Odd(4, 5, False))
