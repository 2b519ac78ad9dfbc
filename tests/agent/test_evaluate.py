"""Evaluation: whole episodes on a stream of its own, with an honest interval."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Pictured

from afedpg import load_policy, train
from afedpg.agent.evaluate import Episodes, Film, evaluate
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import ConfigError
from afedpg.seeding import stream


@pytest.fixture(scope="module")
def work():
    return EnvironmentWorkload(from_settings({"task": "CartPole-v1", "hidden": (8,)}))


def run(work, seed, deterministic=True, episodes=5, env=None, on_step=None):
    env = work.environments.make(0) if env is None else env
    generator = stream(seed, "evaluation")
    theta = work.initial_theta()
    return evaluate(work.policy, theta, None, env, episodes, deterministic, generator, on_step=on_step)


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_same_stream_gives_the_same_evaluation(work, deterministic):
    assert run(work, 0, deterministic) == run(work, 0, deterministic)
    assert run(work, 0, deterministic) != run(work, 1, deterministic)


def test_returns_are_of_whole_episodes(work):
    evaluation = run(work, 0)
    assert evaluation.returns == tuple(float(length) for length in evaluation.lengths)
    assert len(evaluation.returns) == 5


def test_the_interval_holds_the_mean_in_95_of_100():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(1000):
        low, high = Episodes(tuple(generator.normal(3, 2, size=5)), (1,) * 5).interval
        hits += low <= 3 <= high
    assert 930 <= hits <= 970


def test_one_episode_says_nothing_about_the_spread():
    assert Episodes((3.0,), (1,)).interval == (None, None)
    assert Episodes((3.0,), (1,)).deviation == 0


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_film_of_an_episode(tmp_path, suffix):
    if suffix == "mp4":
        pytest.importorskip("imageio_ffmpeg")
    film = Film()
    work = EnvironmentWorkload(from_settings({"task": "pictured", "hidden": (8,)}), lambda agent: Pictured())
    evaluation = run(work, 0, episodes=1, on_step=film.shoot)
    path = tmp_path / f"film.{suffix}"
    film.write(path, 30)
    assert len(film.frames) == evaluation.lengths[0] == 20
    assert path.stat().st_size > 500


@pytest.mark.filterwarnings("ignore:.*render")
def test_films_that_cannot_be_made_are_named(work, tmp_path):
    with pytest.raises(ConfigError, match="render_mode"):
        run(work, 0, episodes=1, on_step=Film().shoot)
    with pytest.raises(ConfigError, match="neither"):
        Film().write(tmp_path / "film.avi", 30)


def test_what_is_evaluated_and_delivered_is_scaled_as_in_training(tmp_path):
    """The episodes once more, by hand, with the policy that was written to the disk."""
    settings = {"agents": 2, "iterations": 3, "steps": 256, "hidden": (8,), "eta": 0.3, "evaluate_episodes": 5}
    result = train("CartPole-v1", **settings, evaluate_kind="deterministic", out=tmp_path / "run")
    policy, env = load_policy(tmp_path / "run"), gymnasium.make("CartPole-v1")
    assert policy.file.statistics.count == result.statistics.count == 6 * 256
    seeds, returns = stream(0, "evaluation", 0, result.iteration), []
    for _ in range(5):
        observation, _ = env.reset(seed=int(seeds.integers(2**31)))
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total, over = total + reward, terminated or truncated
        returns.append(total)
    (evaluation,) = result.evaluations
    assert evaluation.mean == np.mean(returns)
