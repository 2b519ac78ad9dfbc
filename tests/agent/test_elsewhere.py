"""A policy in environments that it was not trained in, and policies of one's own after their run."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from afedpg import Own, evaluate_run, load_policy, replay, resume, train
from afedpg.cli import main
from afedpg.errors import ConfigError

SMALL = {"agents": 2, "iterations": 2, "steps": 64, "evaluate_episodes": 2, "workers": 1}
RESIDUAL = """
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, observations, actions, width=8):
        super().__init__()
        self.skip = nn.Linear(observations, actions)
        self.deep = nn.Sequential(nn.Linear(observations, width), nn.Tanh(), nn.Linear(width, actions))

    def _logits(self, observations):
        return self.skip(observations) + self.deep(observations)

    def log_prob(self, observations, actions):
        return torch.log_softmax(self._logits(observations), -1).gather(-1, actions[:, None])[:, 0]

    def sample(self, observations, generator):
        return torch.multinomial(torch.softmax(self._logits(observations), -1), 1, generator=generator)[:, 0]

    def mode(self, observations):
        return self._logits(observations).argmax(-1)


def make_residual(observation_space, action_space):
    return Residual(observation_space.shape[0], int(action_space.n))


def make_wider(observation_space, action_space):
    return Residual(observation_space.shape[0], int(action_space.n), 16)
"""


class Worth(CartPoleEnv):
    """A pole whose every step is worth something else, so that an evaluation says where it was made."""

    def __init__(self, worth=1.0, **settings):
        super().__init__(**settings)
        self.worth = worth

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * self.worth, *rest


gymnasium.register("Worth-v0", entry_point=Worth, max_episode_steps=30)


@pytest.fixture(scope="module")
def pole(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("elsewhere") / "run"
    train("Worth-v0", **SMALL, out=out)
    return out


def means(told):
    return {evaluation.environment: evaluation.mean for evaluation in told}


def test_other_arguments_and_another_task(pole):
    here = means(evaluate_run(pole, 3, "sampled"))[""]
    assert means(evaluate_run(pole, 3, "sampled", env_kwargs={"worth": 10.0})) == {"": 10 * here}
    assert means(evaluate_run(pole, 3, "sampled", task="Worth-v0", env_kwargs={"worth": -1.0})) == {"": -here}
    assert means(evaluate_run(pole, 3, "sampled", task="CartPole-v1"))[""] > 0


def test_each_site_by_itself_and_more_of_them_than_agents(pole):
    sites = {"agents": {str(site): {"worth": float(site + 1)} for site in range(4)}}
    told = means(evaluate_run(pole, 3, "sampled", env_kwargs=sites))
    assert list(told) == [f"agent {site}" for site in range(4)]
    assert all(np.sign(mean) == 1 for mean in told.values())
    made = means(evaluate_run(pole, 3, "sampled", make_env=lambda site: gymnasium.make("Worth-v0", worth=-1.0)))
    assert list(made) == ["agent 0", "agent 1"]
    assert max(made.values()) < 0


def test_the_command_line_takes_them(pole, capsys, tmp_path):
    (tmp_path / "sites.toml").write_text("[agents.0]\nworth = 2.0\n[agents.2]\nworth = 3.0\n")
    line = ["evaluate", str(pole), "--episodes", "2", "--kind", "sampled", "--json"]
    for more, where in (
        (["--env-kwargs", "worth=2.0"], [""]),
        (["--task", "CartPole-v1"], [""]),
        (["--env-kwargs", str(tmp_path / "sites.toml")], ["agent 0", "agent 1", "agent 2"]),
    ):
        assert main([*line, *more]) == 0
        assert [row["environment"] for row in json.loads(capsys.readouterr().out)] == where


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({"task": "Pendulum-v1"}, r"task: Pendulum-v1 has observations Box.* which the policy of .* was not made for"),
        ({"task": "Acrobot-v1"}, r"task: Acrobot-v1 has observations Box.* which the policy of .* was not made for"),
        ({"task": "quadratic"}, "task: quadratic is a synthetic problem; name a Gymnasium task"),
        ({"task": "Nowhere-v0"}, "task: Nowhere-v0 cannot be made"),
        ({"env_kwargs": {"wings": 2}}, "env_kwargs: Worth-v0 does not take"),
        ({"env_kwargs": {"agents": {"99999999999999": {}}}}, "env_kwargs: agents.99999999999999: sites are numbered"),
        ({"env_kwargs": [1]}, r"env_kwargs: \[1\] is not of type dict"),
        ({"env_kwargs": {"agents": {"\u00b2": {}}}}, "env_kwargs: there is no agent \u00b2"),
        ({"env_kwargs": {"agents": {"\u0663": {}}}}, "env_kwargs: there is no agent \u0663; agents are 0 to 1"),
        ({"env_kwargs": {"agents": {"9" * 5000: {}}}}, "env_kwargs: there is no agent 9{32}; agents are 0 to 1$"),
        ({"seed": "3"}, "seed: '3' is not of type int"),
        ({"kind": "determ"}, "kind: unknown 'determ'; choose from both, sampled, deterministic"),
        ({"kind": "Deterministic"}, "kind: unknown 'Deterministic'; choose from both, sampled, deterministic"),
        ({"kind": "SAMPLED"}, "kind: unknown 'SAMPLED'; choose from both, sampled, deterministic"),
        ({"kind": ["both"]}, r"kind: unknown '\['both'\]'; choose from"),
    ],
)
def test_what_does_not_fit_is_named(pole, where, line):
    with pytest.raises(ConfigError, match=line):
        evaluate_run(pole, 1, **where)


@pytest.mark.parametrize("episodes", ["2", 2.5, True])
def test_episodes_are_counted_in_whole_numbers(pole, episodes):
    with pytest.raises(ConfigError, match=f"episodes: {episodes!r} is not of type int"):
        evaluate_run(pole, episodes)


def test_what_is_no_path_is_named(pole):
    for read, name in ((load_policy, "policy"), (evaluate_run, "run"), (resume, "run"), (replay, "run")):
        with pytest.raises(ConfigError, match=f"{name}: None is no path"):
            read(None)
    with pytest.raises(ConfigError, match=r"out: .* has a NUL in it"):
        train("quadratic", iterations=1, out="a\0b")
    with pytest.raises(ConfigError, match="out: 5 is no path"):
        train("quadratic", iterations=1, out=5)

    class OfBytes(PathLike):
        def __fspath__(self):
            return b"run"

    with pytest.raises(ConfigError, match=r"out: .*OfBytes object at .* is no path"):
        train("quadratic", iterations=1, out=OfBytes())


@pytest.mark.parametrize("workers", ["x", 2.5])
def test_workers_are_counted_in_whole_numbers(workers):
    with pytest.raises(ConfigError, match=f"workers: {workers!r} is not of type int"):
        train("quadratic", iterations=1, workers=workers)


def test_a_synthetic_problem_has_no_elsewhere(tmp_path):
    train("quadratic", iterations=2, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="task: quadratic is a synthetic problem, which has no other environment"):
        evaluate_run(tmp_path / "run", task="CartPole-v1")


def test_a_policy_of_ones_own_is_loaded_evaluated_and_exported_with_its_code(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("residual_net.py").write_text(RESIDUAL)
    monkeypatch.syspath_prepend(tmp_path)
    import residual_net

    result = train("CartPole-v1", **SMALL, make_policy=residual_net.make_residual, out="run")
    observation = np.array([0.0, 0.1, 0.0, -0.1], np.float32)
    loaded = load_policy("run", make_policy=residual_net.make_residual)
    same = [policy.act(observation, deterministic=True) for policy in (result.policy, loaded)]
    assert same[0] == same[1]
    with pytest.raises(ConfigError, match=r"policy: Residual is a module of your own.*make_policy=.*--policy FILE"):
        load_policy("run")
    with pytest.raises(ConfigError, match="policy: the module made has other parameters than the Residual of the run"):
        load_policy("run", make_policy=residual_net.make_wider)
    own = Own(make_policy=residual_net.make_residual)
    expected = [evaluation.mean for evaluation in evaluate_run("run", 3, own=own)]
    assert main(["evaluate", "run", "--episodes", "3", "--json", "--policy", "residual_net.py:make_residual"]) == 0
    assert [row["mean"] for row in json.loads(capsys.readouterr().out)] == expected
    assert main(["evaluate", "run", "--episodes", "3"]) == 2
    told = capsys.readouterr().err
    assert "own: this run was made with own parts: make_policy" in told
    assert told.endswith("use Python and Own(...), or name the policy's function: --policy FILE.py:NAME\n")
    assert main(["export", "run", "run.onnx", "--policy", "residual_net.py:make_residual"]) == 0
    assert main(["export", "run", "run.onnx"]) == 2
    assert "--policy FILE.py:NAME" in capsys.readouterr().err
    for text in ("make_residual", "residual_net:make_residual"):
        assert main(["export", "run", "run.onnx", "--policy", text]) == 2
        assert f"policy: '{text}' is not like FILE.py:NAME" in capsys.readouterr().err
