"""Evaluation: whole episodes on a stream of its own, with an honest interval."""

import gymnasium
import numpy as np
import pytest
from environments_for_tests import Endless, Pictured, Walk

from afedpg import Own, load_policy, resume, train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError, ConfigError
from afedpg.runs.evaluate import evaluate_run
from afedpg.sampling import evaluate as evaluating
from afedpg.sampling.evaluate import Episodes, Film, evaluate
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


@pytest.mark.parametrize(
    ("render", "line"),
    [
        (None, "video: the environment has no render; define one that returns a picture, an array of uint8"),
        (lambda self: 1 / 0, "agent 0: env.render raised ZeroDivisionError: division by zero; fix env.render"),
        (lambda self: np.zeros((4, 4)), r"video: the environment's render returned an array of float64 \[4, 4\]; ret"),
        (lambda self: np.zeros((4, 4, 3)), r"video: .* returned an array of float64 \[4, 4, 3\]; return a picture"),
        (lambda self: np.zeros(4, np.uint8), r"video: .* returned an array of uint8 \[4\]"),
        (lambda self: np.zeros((4, 4, 2), np.uint8), r"video: .* returned an array of uint8 \[4, 4, 2\]"),
    ],
)
def test_a_render_that_shows_no_picture_is_one_line(render, line):
    shown = {"render_mode": "rgb_array"} | ({} if render is None else {"render": render})
    kind = type("Shown", (Walk,), shown)
    work = EnvironmentWorkload(from_settings({"task": "shown", "hidden": (8,)}), lambda agent: kind())
    with pytest.raises(AfedpgError, match=f"^{line}"):
        run(work, 0, episodes=1, on_step=Film().shoot)


def test_what_is_evaluated_and_delivered_is_scaled_as_in_training(tmp_path):
    """The episodes once more, by hand, with the policy that was written to the disk."""
    settings = {"agents": 2, "iterations": 3, "steps": 256, "hidden": (8,), "eta": 0.3, "evaluate_episodes": 5}
    result = train("CartPole-v1", **settings, evaluate_kind="deterministic", out=tmp_path / "run")
    policy, env = load_policy(tmp_path / "run"), gymnasium.make("CartPole-v1")
    assert policy.file.statistics.count == result.statistics["observations"].count == 6 * 256
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


def make_endless(agent):
    return Endless()


def make_walk(agent):
    return Walk()


def test_an_episode_without_an_end_is_cut_and_counted(monkeypatch):
    monkeypatch.setattr(evaluating, "MOST_STEPS", 70)
    work = EnvironmentWorkload(from_settings({"task": "endless", "hidden": (2,)}), make_endless)
    episodes = run(work, 0, episodes=3)
    assert (episodes.lengths, episodes.cut) == ((70, 70, 70), 3)
    limited = run(work, 0, env=gymnasium.wrappers.TimeLimit(Endless(), 90), episodes=2)
    assert (limited.lengths, limited.cut) == ((90, 90), 0)  # a limit that the task names is not shortened
    whole = run(work, 0, env=Walk(70), episodes=2)
    assert (whole.lengths, whole.cut) == ((70, 70), 0)


def test_a_task_without_a_time_limit_is_said_at_the_start_and_on_resume(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(evaluating, "MOST_STEPS", 70)
    settings = {"agents": 2, "iterations": 2, "steps": 16, "hidden": (2,), "evaluate_episodes": 2}
    train("endless", **settings, make_env=make_endless, out=tmp_path / "run")
    first, last = caplog.messages
    assert first.startswith("endless: no time limit is known")
    assert last.startswith("evaluation: 2 of 2 episodes did not end")
    assert first.endswith("set one, as --max-episode-steps 500")
    caplog.clear()
    resume(tmp_path / "run", Own(make_env=make_endless))
    assert caplog.messages[0] == first


def test_the_remedy_for_tasks_without_a_time_limit_works(caplog):
    settings = {"agents": 1, "iterations": 1, "steps": 16, "hidden": (2,), "evaluate_episodes": 1}
    config = from_settings({"task": "CliffWalking-v1", **settings})
    EnvironmentWorkload(config).check()
    (said,) = caplog.messages
    assert said.startswith("CliffWalking-v1: no time limit is known")
    flag, value = said.split()[-2:]
    limit = {flag.removeprefix("--").replace("-", "_"): int(value)}
    caplog.clear()
    assert train("CliffWalking-v1", **settings, **limit).gradients == 1
    assert train("endless", **settings, **limit, make_env=make_endless).gradients == 1
    assert not caplog.messages


def test_who_asks_after_the_run_sees_fresh_episodes(tmp_path, monkeypatch):
    """None that the run itself played, with any seed; and the same ones whenever the same are asked for."""
    seeds = []
    reset = Walk.reset

    def noting(env, *, seed=None, options=None):
        seeds.append(seed)
        return reset(env, seed=seed, options=options)

    monkeypatch.setattr(Walk, "reset", noting)
    settings = {"agents": 2, "iterations": 4, "steps": 16, "hidden": (2,), "evaluate_every": 1, "evaluate_episodes": 3}
    train("walks", **settings, make_env=make_walk, out=tmp_path / "run")
    played, asked = set(seeds), {}
    for seed in (None, 0, 1, None, 1):
        seeds.clear()
        evaluations = evaluate_run(tmp_path / "run", 3, seed=seed, own=Own(make_env=make_walk))
        assert not played & set(seeds)
        asked.setdefault(seed, (list(seeds), evaluations))
        assert asked[seed] == (seeds, evaluations)
    assert asked[None] == asked[0]  # the run's own seed
    assert not set(asked[0][0]) & set(asked[1][0])
