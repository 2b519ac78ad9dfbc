"""`afedpg check TASK`: what it says of tasks whose nature is known."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from afedpg.cli import main
from afedpg.runs import check
from afedpg.runs.check import check_task


class Odd(gymnasium.Env):
    """Goes wrong in the way that is named."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, how="not"):
        self.how, self.total = how, 0
        if how == "unbounded":
            self.action_space = spaces.Box(-np.inf, np.inf, (1,))
        if how == "wide":
            self.action_space = spaces.Box(-1e6, 1e6, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=None if self.how == "forgetful" and self.total else seed)
        return self._look(), {}

    def step(self, action):
        self.total += 1
        if self.how == "raises" and self.total == 31:
            raise RuntimeError("the wheel\ncame off")
        return self._look(), 0.0, self.total % 10 == 0, self.how == "truncates" and self.total % 25 == 0, {}

    def _look(self):
        drawn = self.np_random.uniform(-1.0, 1.0, 2)
        if self.how == "constant":
            drawn[1] = 0.5
        return np.float32(3.0 * drawn if self.how == "outside" else drawn)


gymnasium.register("Odd-v0", entry_point=Odd, max_episode_steps=20)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(capsys, *words):
    assert main(["check", *words, "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    return json.loads(line)


def test_cartpole_is_as_gymnasium_describes_it(capsys):
    seen = found(capsys, "CartPole-v1")
    assert (seen["observations"], seen["action_space"], seen["time_limit"]) == (4, "Discrete(2)", 500)
    assert (seen["lowest_reward"], seen["highest_reward"]) == (1.0, 1.0)
    assert (seen["native"], seen["deterministic"], seen["warnings"]) == (True, True, [])
    assert seen["terminated"] > 0 == seen["truncated"]
    assert seen["mean_length"] == seen["mean_return"] > 1  # a reward of 1 for every step
    assert seen["policy"] == "categorical MLP, 4-64-64-2"
    assert seen["steps"] == 1000
    assert seen["steps_per_second"] > 0


def test_hopper_has_the_native_sampler(capsys):
    seen = found(capsys, "Hopper-v4")
    assert (seen["native"], seen["why_not_native"], seen["deterministic"]) == (True, "", True)
    assert (seen["policy"], seen["time_limit"]) == ("Gaussian MLP, 11-64-64-3", 1000)


def test_people_are_told_in_ten_lines_and_one_per_warning(capsys):
    assert main(["check", "CliffWalking-v1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert "time limit     none known" in lines
    assert "deterministic  yes" in lines
    assert lines[-1].startswith("warning: no time limit is known: an evaluation's episode is cut after 10,000 steps")
    assert any(line.startswith("rewards        -100 to -1") for line in lines)


def test_a_limit_that_is_set_is_found(capsys):
    seen = found(capsys, "CliffWalking-v1", "--max-episode-steps", "50")
    assert (seen["time_limit"], seen["truncated"] + seen["terminated"] >= 20, seen["warnings"]) == (50, True, [])


def test_an_environment_with_a_limit_of_its_own_needs_no_other():
    seen = check_task("odd", make_env=lambda agent: Odd("truncates"))
    assert (seen.time_limit, seen.truncated > 0, len(seen.warnings)) == (None, True, 1)  # that every reward is 0


WARNINGS = {
    "forgetful": "the same seed and actions gave something else at step",
    "constant": "1 of the observation's 2 numbers never changed",
    "outside": "observations leave their space's bounds, first at step",
    "wide": "actions reach 1e+06",
}


@pytest.mark.parametrize("how", WARNINGS)
def test_what_may_be_meant_otherwise_is_a_warning(how):
    seen = check_task("odd", make_env=lambda agent: gymnasium.make("Odd-v0", how=how))
    assert seen.deterministic == (how != "forgetful")
    assert [text for text in seen.warnings if text.startswith(WARNINGS[how])], seen.warnings
    assert len(seen.warnings) == 2  # and that every reward is 0


def test_a_slow_environment_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(check, "LONGEST", 0.0)
    assert check_task("Odd-v0").steps == check.AT_ONCE


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["NoSuchTask-v0"], 2, "If a module registers it, name both, as MODULE:NoSuchTask-v0"),
        (["json:NoSuchTask-v0"], 2, "task: json:NoSuchTask-v0 cannot be made: Environment `NoSuchTask` doesn't exist."),
        (["quadratic"], 2, "task: quadratic is a synthetic problem"),
        (["Odd-v0", "--env-kwargs", "how='unbounded'"], 2, "has infinite bounds"),
        (["Odd-v0", "--env-kwargs", "nosuch=1"], 2, "env_kwargs: Odd-v0 does not take"),
        (["Odd-v0", "--seed", "-1"], 2, "seed: -1"),
        (["Odd-v0", "--env-kwargs", "how='raises'"], 1, "env.step raised RuntimeError: the wheel came off"),
    ],
)
def test_what_a_run_would_refuse_is_one_line(words, code, says, capsys):
    assert main(["check", *words]) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert says in said.err
