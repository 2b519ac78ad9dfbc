"""Policies of one's own that are not what they must be: one line that names make_policy, and never noise."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from gymnasium import spaces

from afedpg import Own, load_policy, recompute, train
from afedpg.errors import AfedpgError, BrokenPart, ConfigError
from afedpg.export.onnx_file import to_onnx
from afedpg.export.policy_file import read_policy
from afedpg.policy.own import ModulePolicy

POLE = {"agents": 2, "iterations": 2, "steps": 32, "max_episode_steps": 20, "evaluate_episodes": 1}
SEEN, TWO, BOX = spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2, 1))
DIALS = spaces.MultiDiscrete([3, 2])


class Net(torch.nn.Module):
    layers = ()

    def __init__(self, observations, actions):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), *(make() for make in self.layers), torch.nn.Linear(8, 2))

    def log_prob(self, rows, actions):
        return self.net(rows).log_softmax(-1).gather(-1, actions[:, None])[:, 0]

    def sample(self, rows, generator):
        return torch.multinomial(self.net(rows).softmax(-1), 1, generator=generator)[:, 0]

    def mode(self, rows):
        return self.net(rows).argmax(-1)


class Dropping(Net):
    layers = (torch.nn.Tanh, torch.nn.Dropout)


def odd(**parts):
    return type("Odd", (Net,), parts)


def refused(kind=AfedpgError, **settings):
    with pytest.raises(kind) as refusal:
        train("CartPole-v1", **POLE, **settings)
    assert "\n" not in str(refusal.value)
    assert "fix the environment" not in str(refusal.value)
    return str(refusal.value)


def log_prob_as(change):
    return odd(log_prob=lambda self, rows, actions: change(Net.log_prob(self, rows, actions)))


@pytest.mark.parametrize(
    "settings",
    [{"estimator": "gae"}, {"estimator": "reinforce"}, {"estimator": "natural"}, {"method": "afedppo"}],
    ids=str,
)
@pytest.mark.parametrize(
    ("change", "came"),
    [
        (lambda row: row[:, None], r"float32 of shape \[\d+, 1\]"),
        (lambda row: row.mean(), r"float32 -0\.\d+"),
        (lambda row: row[1:], r"float32 of shape \[\d+\]"),
        (lambda row: 0.0, "a float"),
    ],
    ids=["column", "scalar", "fewer", "number"],
)
def test_log_probabilities_are_one_row(settings, change, came):
    """A column times a row of weights is a square, whose sum is noise."""
    line = refused(BrokenPart, make_policy=log_prob_as(change), **settings)
    said = rf"make_policy: Odd's log_prob gave {came} for \d+ observations; return one number for each, \[n\]"
    assert re.match(said, line)


@pytest.mark.parametrize("settings", [{}, {"method": "afedppo"}], ids=str)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_log_probabilities_that_are_not_finite_are_no_gradients(settings, number):
    line = refused(make_policy=log_prob_as(lambda row: row * number), **settings)
    assert "reports in a row refused" in line
    assert "not finite" in line


def test_log_probabilities_depend_on_theta():
    line = refused(BrokenPart, make_policy=log_prob_as(lambda row: row.detach()))
    assert line.startswith("make_policy: Odd's log_prob does not depend on the parameters")


INDEX, REAL = "whole numbers, [n], that are indices from 0, for Discrete(2)", "finite real numbers, [n, 2], for Box"
ANSWERS = [
    (TWO, torch.tensor([2]), "int64 [2]", INDEX),
    (TWO, torch.tensor([-1]), "int64 [-1]", INDEX),
    (TWO, torch.tensor([[1]]), "int64 [[1]]", INDEX),
    (TWO, torch.tensor(1), "int64 1", INDEX),
    (TWO, torch.tensor([[0.5, 0.25]]), "float32 [[0.5, 0.25]]", INDEX),
    (TWO, torch.tensor([0.75]), "float32 [0.75]", INDEX),
    (TWO, torch.tensor([1], dtype=torch.complex64), "complex64 [(1+0j)]", INDEX),
    (TWO, 1, "a int", INDEX),
    (TWO, None, "a NoneType", INDEX),
    (BOX, torch.tensor([0.5]), "float32 [0.5]", REAL),
    (BOX, torch.zeros(1, 2, 1), "float32 [[[0.0], [0.0]]]", REAL),
    (BOX, torch.tensor([[0.0, torch.nan]]), "float32 [[0.0, nan]]", REAL),
    (BOX, torch.tensor([[1e300, 0.0]], dtype=torch.float64), "float64 [[1e+300, 0.0]]", REAL),
    (BOX, torch.tensor([[1, 0]]), "int64 [[1, 0]]", REAL),
    (BOX, torch.zeros(1, 2).to_sparse(), "a float32 tensor that is not a dense one on the CPU", REAL),
    (BOX, torch.zeros(1, 2, device="meta"), "a float32 tensor that is not a dense one on the CPU", REAL),
    (TWO, torch.ones(1, dtype=torch.int64).to_sparse(), "a int64 tensor that is not a dense one on the CPU", INDEX),
    (DIALS, torch.tensor([1]), "int64 [1]", "whole numbers, [n, 2], that are indices from 0, for MultiDiscrete([3 2])"),
    (DIALS, torch.tensor([[0, 2]]), "int64 [[0, 2]]", "for MultiDiscrete([3 2])"),
    (spaces.MultiBinary(6), torch.full((1, 6), 2), "int64 of shape [1, 6]", "for MultiBinary(6)"),
]  # fmt: skip


@pytest.mark.parametrize("method", ["sample", "mode"])
@pytest.mark.parametrize(("space", "answer", "came", "wanted"), ANSWERS, ids=[f"{row[0]} {row[2]}" for row in ANSWERS])
def test_an_action_that_is_none_names_the_policy(method, space, answer, came, wanted):
    policy = ModulePolicy(odd(**{method: lambda self, *given: answer})(SEEN, space), space)
    actor = policy.actor(np.zeros(policy.layout.size, np.float32))
    given = (np.zeros(4, np.float32), np.random.default_rng(0))
    with pytest.raises(BrokenPart) as refusal:
        actor.sample(*given) if method == "sample" else actor.mode(given[0])
    line = str(refusal.value)
    assert line.startswith(f"make_policy: Odd's {method} gave {came} for 1 observation; return ")
    assert wanted in line


@pytest.mark.parametrize(
    ("space", "answer", "action"),
    [
        (TWO, torch.tensor([True]), 1),
        (TWO, torch.tensor([1], dtype=torch.int8), 1),
        (BOX, torch.tensor([[3.0, -3.0]], dtype=torch.float64), [3.0, -3.0]),
        (BOX, torch.tensor([[0.5, -0.5]], dtype=torch.bfloat16), [0.5, -0.5]),
        (DIALS, torch.tensor([[2, 1]]), [2, 1]),
        (spaces.MultiBinary((1, 2)), torch.tensor([[True, False]]), [1, 0]),
    ],
)
def test_an_action_of_any_type_that_holds_it_is_taken(space, answer, action):
    policy = ModulePolicy(odd(mode=lambda self, rows: answer)(SEEN, space), space)
    np.testing.assert_array_equal(
        policy.actor(np.zeros(policy.layout.size, np.float32)).mode(np.zeros(4, np.float32)), action
    )


@pytest.mark.parametrize(
    ("method", "answer"),
    [("sample", lambda self, rows, _: torch.tensor([7])), ("mode", lambda self, rows: self.net(rows))],
)
def test_a_run_says_so_too(method, answer):
    assert refused(BrokenPart, make_policy=odd(**{method: answer})).startswith(f"make_policy: Odd's {method} gave ")


def fail():
    raise RuntimeError("shapes differ:\n  8 and 4\n")


def test_what_fails_in_a_policy_is_one_line_with_its_place():
    line = refused(BrokenPart, make_policy=odd(mode=lambda self, rows: self.nets(rows)))
    assert re.match(r"make_policy: Odd's mode raised AttributeError: .*nets.*test_own_policies\.py, line \d+\)", line)
    line = refused(BrokenPart, make_policy=odd(mode=lambda self, rows: fail()))
    assert line.startswith("make_policy: Odd's mode raised RuntimeError: shapes differ: 8 and 4 (")
    line = refused(BrokenPart, make_policy=lambda observations: Net(observations, TWO))
    assert re.match(r"make_policy: <lambda> raised TypeError: .*takes 1 positional argument but 2 were given$", line)


def batch_norm():
    return torch.nn.BatchNorm1d(8)


@pytest.mark.parametrize(
    ("make_policy", "says"),
    [
        (
            "MlpPolicy",
            "make_policy: 'MlpPolicy' makes no policy; give the function that makes one, (observation_space,",
        ),
        (Net(SEEN, TWO), "make_policy: a Net makes no policy; give the function that makes one"),
        (lambda *given: None, "make_policy: it returned a NoneType; return a torch.nn.Module with log_prob, sample"),
        (lambda *given: Net, "make_policy: it returned a type; return a torch.nn.Module"),
        (lambda *given: torch.nn.Linear(2, 2), "make_policy: Linear lacks log_prob, sample, mode"),
        (
            odd(parameters=lambda self: iter(()), named_parameters=lambda self: iter(())),
            "make_policy: Odd has no param",
        ),
        (
            lambda *given: Net(*given).requires_grad_(False),
            "make_policy: Net's net.0.weight is not to be trained; keep",
        ),
        (
            odd(layers=(lambda: torch.nn.LazyLinear(8),)),
            "make_policy: Odd's net.1.weight has no shape yet; give its layer the number of its inputs",
        ),
        (odd(layers=(batch_norm,)), "make_policy: Odd's net.1 (BatchNorm1d) needs statistics of training"),
        (
            odd(layers=(lambda: torch.nn.BatchNorm1d(8, track_running_stats=False),)),
            "make_policy: Odd's net.1 (BatchNorm1d) needs statistics of training",
        ),
        (
            odd(layers=(lambda: torch.nn.InstanceNorm1d(8, track_running_stats=True),)),
            "make_policy: Odd's net.1 (InstanceNorm1d) needs statistics of training",
        ),
    ],
)
def test_what_is_no_policy_is_refused_before_anything_is_computed(tmp_path, make_policy, says):
    assert refused(ConfigError, make_policy=make_policy, out=tmp_path / "run").startswith(says)
    assert not (tmp_path / "run").exists()


def test_layers_without_statistics_and_buffers_are_taken():
    layers = (lambda: torch.nn.LayerNorm(8), lambda: torch.nn.GroupNorm(2, 8))
    module = odd(layers=layers)(SEEN, TWO)
    module.register_buffer("scale", torch.ones(4))
    assert [name for name, _ in ModulePolicy(module, TWO).layout.shapes if "scale" in name] == []


def test_a_module_whose_train_returns_nothing_is_taken():
    """torch's own returns the module, which who writes another easily forgets."""
    policy = ModulePolicy(odd(train=lambda self, mode=True: None)(SEEN, TWO), TWO)
    assert not any(part.training for part in policy._module.modules())
    assert policy.actor(np.ones(policy.layout.size, np.float32)).mode(np.zeros(4, np.float32)) == 0


def test_dropout_leaves_out_nothing(tmp_path):
    """Its draws would be of no agent's stream: no two runs the same, and other actions than their log-probabilities."""
    own = Own(make_policy=Dropping)
    runs = [train("CartPole-v1", **POLE, make_policy=Dropping, out=tmp_path / str(i)) for i in range(2)]
    assert runs[0].sha256 == runs[1].sha256
    assert recompute(tmp_path / "0", own).agrees
    policy = load_policy(tmp_path / "0", make_policy=Dropping)
    rows = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    first = policy.predict(rows, deterministic=True)[0]
    assert all(np.array_equal(first, policy.predict(rows, deterministic=True)[0]) for _ in range(5))


def test_a_graph_is_not_written_of_what_is_no_action(tmp_path):
    pytest.importorskip("onnx")
    train("CartPole-v1", **POLE, make_policy=Net, out=tmp_path / "run")
    logits = odd(mode=lambda self, rows: self.net(rows))
    with pytest.raises(BrokenPart, match="make_policy: Odd's mode gave float32"):
        to_onnx(read_policy(tmp_path / "run"), {}, "1", logits)
