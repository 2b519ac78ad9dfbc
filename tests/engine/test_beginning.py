"""A run that begins at another run's theta, which must be the same policy there, and the theta it began with."""

from __future__ import annotations

import shutil

import gymnasium
import pytest
from tabular import tabular

from afedpg import recompute, replay, resume, train
from afedpg.errors import AfedpgError, ConfigError
from afedpg.record import checkpoint


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


SAME = {"agents": 1, "iterations": 1, "steps": 16, "hidden": (4, 6), "evaluate_episodes": 1, "workers": 1}
ASYNC = {"method": "afedppo", "baseline_hidden": (5, 7)}


@pytest.mark.parametrize(
    ("task", "made", "differs", "was", "here"),
    [
        ("CartPole-v1", {}, {"activation": "tanh"}, "--activation relu", "--activation tanh"),
        ("CartPole-v1", {}, {"hidden": (9, 1)}, "--hidden 4,6", "--hidden 9,1"),
        (
            "Pendulum-v1", {"mean": "linear"}, {"scale_observations": False},
            "--mean linear --scale-observations", "--mean tanh --no-scale-observations",
        ),
        ("CartPole-v1", ASYNC, {**ASYNC, "scale_rewards": False}, "--scale-rewards", "--no-scale-rewards"),
        (
            "CartPole-v1", ASYNC, {**ASYNC, "baseline_hidden": (7, 5)},
            "--baseline-hidden 5,7", "--baseline-hidden 7,5",
        ),
    ],
)  # fmt: skip
def test_a_theta_that_would_mean_another_policy_is_no_start(task, made, differs, was, here, folder):
    train(task, **SAME, **made, out="made")
    with pytest.raises(ConfigError) as refusal:
        train(task, **{**SAME, **differs}, from_run="made", out="more")
    made_with, has = f"{folder}/made was trained with {was}", f"this run has {here}"
    assert str(refusal.value) == (
        f"from_run: {made_with}, {has}, with which its theta is another policy or critic; use {was}"
    )
    assert not (folder / "more").exists()


def test_what_does_not_change_the_policy_may_be_another(folder):
    """The mean of a policy without one, how it starts, a critic that is not in theta, and who estimates how."""
    train("CartPole-v1", **SAME, scale_rewards=True, out="made")
    more = {"mean": "linear", "log_std": -1.0, "baseline": "linear", "estimator": "natural", "gamma": 0.9, "seed": 7}
    train("CartPole-v1", **SAME, **more, from_run="made", out="more")
    _, tree = checkpoint.load_latest(folder / "more" / "checkpoints")
    assert {name.partition(".")[0] for name in tree["server"]["statistics"]} == {"observations"}


def test_a_theta_of_another_task_is_no_start():
    train("lq-bandit", agents=1, iterations=1, out="bandit")
    train("CartPole-v1", **SAME, out="made")
    with pytest.raises(ConfigError, match="bandit is a run on lq-bandit, whose theta means nothing on saturating-band"):
        train("saturating-bandit", agents=1, iterations=1, from_run="bandit")
    with pytest.raises(ConfigError, match="made is a run on CartPole-v1, whose theta means nothing on quadratic"):
        train("quadratic", agents=1, iterations=1, dimension=4 * 4 + 4 + 4 * 6 + 6 + 6 * 2 + 2, from_run="made")


def test_a_theta_for_other_actions_is_no_start():
    """The mean lies within the action bounds."""
    train("Pendulum-v1", **SAME, out="made")

    def weaker(agent_id):
        return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1, 1)

    with pytest.raises(ConfigError, match=r"the policy of .*made acts in Box\(-2.0, 2.0, .*, this task takes "):
        train("Pendulum-v1", **SAME, make_env=weaker, from_run="made")


def test_a_policy_of_ones_own_starts_from_none_that_ships():
    train("CartPole-v1", **SAME, out="made")
    with pytest.raises(ConfigError, match="made was trained with a shipped policy; make_policy: leave it out"):
        train("CartPole-v1", **SAME, make_policy=tabular, from_run="made")
    own = {**SAME, "hidden": (64, 64)}
    train("CartPole-v1", **own, make_policy=tabular, out="own")
    with pytest.raises(ConfigError, match="own was trained with a policy of its own; make_policy: give the same"):
        train("CartPole-v1", **own, from_run="own")
    train("CartPole-v1", **own, make_policy=tabular, from_run="own")


def kill(arrival, seconds, theta):
    raise ZeroDivisionError


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_what_it_began_with_is_known_though_the_other_run_goes_on(engine, folder):
    settings = {"agents": 1, "iterations": 5, "engine": engine, "keep_reports": True}
    train("quadratic", **settings, out="first")
    train("quadratic", **settings, from_run="first", out="second")
    with pytest.raises(ZeroDivisionError):
        train("quadratic", **settings, from_run="first", on_arrival=kill, out="third")
    assert replay("second").agrees
    shutil.rmtree("third/checkpoints")
    resume("first", iterations="+5")
    for again, run in ((replay, "second"), (recompute, "second"), (resume, "third")):
        if again is recompute and engine == "local":
            continue
        more = {"accept_loss": True} if again is resume else {}
        with pytest.raises(AfedpgError) as refusal:
            again(run, **more)
        assert str(refusal.value) == (
            f"from_run: {folder}/first has gone on since {run} began at its theta, which it no longer has; this run "
            "cannot be computed or replayed from its start (next time, begin at a copy of the folder)"
        )
