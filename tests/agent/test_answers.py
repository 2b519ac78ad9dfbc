"""Environments that answer otherwise than Gymnasium says: one line each, with whose it was and what to do."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Walk
from gymnasium import spaces

from afedpg import train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.sampling.environments import Environments, make_environment
from afedpg.sampling.evaluate import evaluate

GOOD = {"observation": np.zeros(2), "reward": 1.0, "terminated": False, "truncated": False, "info": {}}


class Odd(Walk):
    """Answers as told: `step` and `reset` replace the whole answer, other names a part of the step's."""

    def __init__(self, **answers):
        super().__init__()
        self.answers = answers

    def reset(self, *, seed=None, options=None):
        return self.answers["reset"] if "reset" in self.answers else (np.zeros(2), {})

    def step(self, action):
        return self.answers["step"] if "step" in self.answers else tuple((GOOD | self.answers).values())


ODD = [
    ("reward", np.ones(1), "an array of shape (1,) as the reward"),
    ("reward", np.ones(2), "an array of shape (2,) as the reward"),
    ("reward", None, "None as the reward"),
    ("reward", "1.0", "a str as the reward"),
    ("reward", {"first": 1.0, "second": 0.0}, "a dict of 2 as the reward"),
    ("reward", [1.0], "a list of 1 as the reward"),
    ("reward", 1j, "a complex as the reward"),
    ("reward", float("nan"), "a reward of nan"),
    ("reward", np.float32("inf"), "a reward of inf"),
    ("terminated", None, "None as `terminated`"),
    ("terminated", {"first": False}, "a dict of 1 as `terminated`"),
    ("truncated", np.zeros(2, bool), "an array of shape (2,) as `truncated`"),
    ("truncated", "no", "a str as `truncated`"),
    ("observation", None, "its observation space"),
    ("observation", "red", "none of its space"),
    ("observation", {"first": np.zeros(2)}, "none of its space"),
    ("observation", np.zeros(3), "returned 3 numbers"),
    ("observation", np.zeros((2, 2)), "returned 4 numbers"),
    ("observation", np.array([np.nan, 0.0]), "NaN or infinite observation"),
    ("observation", [[1.0], [1.0, 2.0]], "none of its space"),
    ("step", (np.zeros(2), 1.0, False, {}), "a tuple of 4 from step instead of (observation, reward, terminated"),
    ("step", None, "None from step"),
    ("step", np.zeros(5), "an array of shape (5,) from step"),
    ("reset", np.zeros(2), "an array of shape (2,) from reset instead of (observation, info)"),
    ("reset", np.zeros(3), "an array of shape (3,) from reset"),
    ("reset", None, "None from reset"),
    ("reset", (np.zeros(2), {}, 3), "a tuple of 3 from reset"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "answer", "says"), ODD, ids=[f"{part} {says}" for part, _, says in ODD])
def test_an_answer_that_cannot_be_used_is_one_line(part, answer, says):
    settings = {"agents": 1, "iterations": 1, "steps": 4, "hidden": (2,)}
    with pytest.raises(AfedpgError) as training:
        train("odd", make_env=lambda agent: Odd(**{part: answer}), **settings)
    work = EnvironmentWorkload(from_settings({"task": "odd", "hidden": (2,)}), lambda agent: Odd())
    theta, generator = work.initial_theta(), np.random.default_rng(0)
    with pytest.raises(AfedpgError) as evaluation:
        evaluate(work.policy, theta, None, Odd(**{part: answer}), 1, True, generator)
    for failure in (training, evaluation):
        assert says in str(failure.value)
        assert str(failure.value).startswith("agent 0: the environment returned ")
        assert "fix the environment Odd" in str(failure.value)
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize("reward", [1, True, np.float32(1), np.int64(1), np.array(1.0)])
def test_every_kind_of_one_number_is_a_reward(reward):
    environment = Environments(from_settings({"task": "odd"}), lambda agent: Odd(reward=reward, truncated=np.bool_(0)))
    live = environment.of(0)
    live.reset(0)
    assert live.step(np.int64(0))[1:] == (1.0, False, False)


class OfCategories(Walk):
    observation_space = spaces.Tuple([spaces.Discrete(3), spaces.MultiDiscrete([2, 4])])

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def reset(self, *, seed=None, options=None):
        return self.answer, {}


@pytest.mark.parametrize("answer", [(3, [0, 0]), (-1, [0, 0]), (0, [2, 0]), (0, [0, -1]), (0, [0]), (0,)])
def test_a_category_outside_its_space_is_not_taken_for_another(answer):
    live = Environments(from_settings({"task": "odd"}), lambda agent: OfCategories(answer)).of(0)
    with pytest.raises(AfedpgError, match="none of its space Tuple"):
        live.reset(0)
    live.env.answer = (2, [1, 3])
    np.testing.assert_array_equal(live.reset(0), [0, 0, 1, 0, 1, 0, 0, 0, 1])


class Parallel:
    """As PettingZoo has it: dictionaries of agents, and spaces that are methods. No gymnasium.Env."""

    possible_agents = ("first", "second")

    def observation_space(self, agent):
        return Walk.observation_space

    def action_space(self, agent):
        return Walk.action_space

    @property
    def unwrapped(self):
        return self

    def reset(self, seed=None, options=None):
        return {agent: np.zeros(2) for agent in self.possible_agents}, {}


class Spaceless(gymnasium.Env):
    observation_space = Walk.observation_space


class Fragile(Walk):
    def __init__(self, speed=0):
        raise RuntimeError("no licence\nfound")


@pytest.fixture
def registered():
    before = dict(gymnasium.registry)
    gymnasium.register("Parallel-v0", entry_point=Parallel)
    gymnasium.register("Spaceless-v0", entry_point=Spaceless)
    gymnasium.register("Fragile-v0", entry_point=Fragile)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize(("task", "kwargs", "says"), [
    ("Parallel-v0", {}, "task: Parallel-v0 is no Gymnasium environment: "),
    ("Spaceless-v0", {}, "task: Spaceless-v0: test_answers.Spaceless's action_space is None; set it"),
    ("Fragile-v0", {}, "task: Fragile-v0 cannot be made: RuntimeError: no licence found"),
    ("Fragile-v0", {"speed": 1}, "task: Fragile-v0 cannot be made with {'speed': 1}: RuntimeError: no licence found"),
    ("Fragile-v0", {"colour": 1}, "env_kwargs: Fragile-v0 does not take {'colour': 1}: "),
])  # fmt: skip
def test_what_is_no_environment_is_named(registered, task, kwargs, says):
    with pytest.raises(ConfigError) as refusal:
        make_environment(task, kwargs)
    assert str(refusal.value).startswith(says)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("make_env", "says"), [
    (lambda agent: Parallel(), "make_env: agent 0: test_answers.Parallel is no gymnasium.Env; derive"),
    (lambda agent: gymnasium.make_vec("CartPole-v1", 2), "VectorEnv is no gymnasium.Env"),
    (lambda agent: None, "NoneType is no gymnasium.Env"),
    (lambda agent: Spaceless(), "action_space is None; set it to one of gymnasium.spaces"),
    (lambda agent: Fragile(), "agent 0: make_env raised RuntimeError: no licence found; fix make_env"),
])  # fmt: skip
def test_what_make_env_makes_is_looked_at(make_env, says):
    with pytest.raises(AfedpgError) as refusal:
        train("odd", agents=1, iterations=1, make_env=make_env)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


class Unbounded(Walk):
    action_space = spaces.Box(-np.inf, np.inf, (3, 1), np.float32)

    def step(self, action):
        assert action.shape == (3, 1)
        return super().step(abs(float(action[0, 0])) > 0.5)


def test_the_advice_for_unbounded_actions_works():
    """Followed to the letter, it leads to a run."""
    settings = {"agents": 1, "iterations": 1, "steps": 16, "hidden": (2,), "evaluate_episodes": 1}
    with pytest.raises(ConfigError, match="infinite bounds") as refusal:
        train("unbounded", make_env=lambda agent: Unbounded(), **settings)
    advice = str(refusal.value).partition("for example ")[2]
    result = train(
        "unbounded", make_env=lambda agent: eval(advice, {"gymnasium": gymnasium, "env": Unbounded()}), **settings
    )
    assert result.gradients == 1


@pytest.mark.parametrize("bound", [1.7e308, np.inf])
def test_bounds_whose_range_is_no_number_are_refused_as_infinite(bound):
    Unlimited = type("Unlimited", (Walk,), {"action_space": spaces.Box(-bound, bound, (1,), np.float64)})
    with pytest.raises(ConfigError, match="infinite bounds"):
        Environments(from_settings({"task": "odd"}), lambda agent: Unlimited())
