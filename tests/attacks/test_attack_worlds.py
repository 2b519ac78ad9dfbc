"""Worlds that are not as the liar says: what they change, and that they are as repeatable as the world below."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from afedpg.agent.attacks.shipped import SHIPPED
from afedpg.agent.attacks.worlds import ChangedProblem, ObservationNoise, RandomActions, RewardFlip, World
from afedpg.config import from_settings
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import ConfigError
from afedpg.messages import Task, TaskId
from afedpg.problems import ProblemWorkload, make_problem

WORLDS = {name: attack() for name, attack in SHIPPED.items() if issubclass(attack, World)}


def play(env, seed, steps=30):
    """Observations and rewards of an episode in which the policy always does the same."""
    observations, rewards = [env.reset(seed=seed)[0]], []
    action = env.action_space.sample() * 0
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(action)
        observations.append(observation)
        rewards.append(float(reward))
        if terminated or truncated:
            break
    env.close()
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_reward_flip(task):
    real, flipped = play(gymnasium.make(task), 5), play(RewardFlip().environment(gymnasium.make(task)), 5)
    assert real[0].tobytes() == flipped[0].tobytes()
    assert (real[1] == -flipped[1]).all()


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_random_actions_do_not_ask_the_policy(task):
    real, world = play(gymnasium.make(task), 5), RandomActions().environment(gymnasium.make(task))
    there = play(world, 5)
    assert real[0][0].tobytes() == there[0][0].tobytes()
    assert not np.array_equal(real[0][1:5], there[0][1:5])


def test_observation_noise_is_as_wide_as_it_says():
    real = play(gymnasium.make("Pendulum-v1"), 5)
    there = play(ObservationNoise(0.5).environment(gymnasium.make("Pendulum-v1")), 5)
    noise = there[0] - real[0]
    assert noise.std() == pytest.approx(0.5, rel=0.2)
    assert abs(noise.mean()) < 0.2
    assert there[0].dtype == np.float32
    assert (real[1] == there[1]).all()


def test_observation_noise_needs_real_numbers():
    with pytest.raises(ConfigError, match="observation-noise needs observations that are real numbers"):
        ObservationNoise().environment(gymnasium.make("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"))


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_the_same_seed_is_the_same_episode(name, task):
    def again(seed):
        return play(WORLDS[name].environment(gymnasium.make(task)), seed)

    one, two, other = again(5), again(5), again(6)
    assert one[0].tobytes() == two[0].tobytes()
    assert one[1].tobytes() == two[1].tobytes()
    assert one[0].tobytes() != other[0].tobytes()


def build(world=None, task="CartPole-v1", make_env=None, sampler="auto"):
    settings = {"task": task, "steps": 40, "hidden": (8,), "agents": 3, "baseline": "linear", "sampler": sampler}
    lies = {"attack": world, "attackers": (1,)} if world else {}
    return BuildWorkload(from_settings({**settings, **lies}), make_env)()


def follow(work, agent_id, state, first, count):
    theta, sent = work.initial_theta().astype(np.float32), []
    for index in range(first, first + count):
        state, report = work.work(state, Task(TaskId(0, index), agent_id, theta, index))
        assert "restarted" not in report.stats.extra
        sent.append((report.payload.tobytes(), report.stats.returns))
    return state, sent


@pytest.mark.parametrize("world", WORLDS)
def test_a_liar_in_mid_episode_can_be_moved(world):
    one = build(world)
    _, whole = follow(one, 1, one.start(1), 0, 5)
    state, part = follow(one, 1, one.start(1), 0, 2)
    assert part + follow(build(world), 1, state, 2, 3)[1] == whole
    honest = build()
    assert follow(honest, 1, honest.start(1), 0, 5)[1] != whole
    assert follow(one, 0, one.start(0), 0, 5)[1] == follow(honest, 0, honest.start(0), 0, 5)[1]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("task", ["CartPole-v1", "Hopper-v4"])
def test_every_sampler_gives_a_liar_the_same_bits(world, task):
    """Where the compiled loop does not know the liar's world, asking for it is asking for it of the honest alone."""
    told = []
    for sampler in ("gymnasium", "native"):
        work = build(world, task, sampler=sampler)
        told.append(follow(work, 1, work.start(1), 0, 4)[1])
    assert told[0] == told[1]


@pytest.mark.parametrize("task", ["lq-bandit", "softmax-mdp", "saturating-bandit"])
def test_worlds_of_synthetic_problems(task):
    problem = make_problem(from_settings({"task": task}))
    theta = np.full(problem.parameters, 0.4, np.float32)
    [draw] = problem.draw(np.random.default_rng(0), 1)
    gradient, reward = problem.sample(theta, draw)
    flipped = ChangedProblem(problem, WORLDS["reward-flip"])
    assert flipped.sample(theta, draw)[0].tolist() == (-gradient).tolist()
    assert flipped.sample(theta, draw)[1] == -reward
    assert (flipped.parameters, flipped.optimum, flipped.width) == (problem.parameters, problem.optimum, problem.width)
    random = ChangedProblem(problem, WORLDS["random-actions"])
    assert random.sample(theta, draw)[0].tolist() == random.sample(-theta, draw)[0].tolist()
    work = ProblemWorkload(flipped, 0)
    assert work.evaluate(theta, {}, 0) == ProblemWorkload(problem, 0).evaluate(theta, {}, 0)


def test_a_liar_in_an_environment_of_its_owners_making():
    """A world is laid over it; evaluations, of agent 1 too, are in the real one."""
    one, honest = build("reward-flip", make_env=cart), build(make_env=cart)
    assert follow(one, 0, one.start(0), 0, 2)[1] == follow(honest, 0, honest.start(0), 0, 2)[1]
    returns = [value for _, values in follow(one, 1, one.start(1), 0, 3)[1] for value in values]
    assert returns
    assert max(returns) < 0
    theta = one.initial_theta().astype(np.float32)
    assert one.evaluate(theta, {}, 0) == honest.evaluate(theta, {}, 0)


def cart(agent_id):
    return gymnasium.make("CartPole-v1")


def test_noise_needs_something_that_is_observed():
    problem = make_problem(from_settings({"task": "lq-bandit"}))
    with pytest.raises(ConfigError, match="attack: this one changes what is observed"):
        ChangedProblem(problem, WORLDS["observation-noise"])
