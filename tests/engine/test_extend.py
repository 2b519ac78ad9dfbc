"""A finished run becomes a longer one: what its schedules do is said, and it is still one run that can be repeated."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

from afedpg import Callback, EarlyStopping, Own, recompute, replay, resume, train
from afedpg.cli import main
from afedpg.config import Config
from afedpg.errors import AfedpgError, ConfigError
from afedpg.record.database import read_arrivals
from afedpg.record.folder import open_run
from afedpg.runs.extend import extend
from afedpg.server.schedules import LinearDecay, schedules

SMALL = {"agents": 3, "eta": 0.05, "keep_reports": True}


@pytest.mark.parametrize("schedule", ["constant", "global", "fosp"])
@pytest.mark.parametrize("method", ["afedpg", "afedpg-vanilla", "fedpg", "pg-plain", "a3c"])
def test_it_is_the_longer_run_bit_for_bit(tmp_path, method, schedule):
    settings = {**SMALL, "method": method, "schedule": schedule, "agents": 1 if method == "pg-plain" else 3}
    train("quadratic", **settings, iterations=10, out=tmp_path / "run")
    longer = resume(tmp_path / "run", iterations="+15")
    assert longer.sha256 == train("quadratic", **settings, iterations=25).sha256
    assert replay(tmp_path / "run").agrees
    assert recompute(tmp_path / "run").agrees
    assert open_run(tmp_path / "run").config().iterations == 25


@pytest.mark.parametrize("estimator", ["gae", "clipped"])
def test_environments_go_on_where_they_stood(tmp_path, estimator):
    settings = {"agents": 2, "steps": 64, "estimator": estimator, "schedule": "constant", "workers": 1}
    train("CartPole-v1", **settings, iterations=3, out=tmp_path / "run")
    longer = resume(tmp_path / "run", iterations=6, workers=1)
    whole = train("CartPole-v1", **settings, iterations=6)
    assert (longer.sha256 == whole.sha256) == (estimator == "gae")  # clipped's own rate falls over the run
    assert replay(tmp_path / "run").agrees
    assert recompute(tmp_path / "run", workers=1).agrees


def test_agents_repeat_the_shorter_run_where_steps_are_made_of_several_contributions(tmp_path):
    settings = {"method": "afedppo", "agents": 2, "steps": 24, "hidden": (8,), "aggregator": "fedbuff:size=2"}
    train("CartPole-v1", **settings, iterations=3, workers=1, out=tmp_path / "run")
    resume(tmp_path / "run", iterations=6, workers=1)
    assert recompute(tmp_path / "run", workers=1).agrees


def test_a_linear_schedule_rises_again_and_falls_to_the_new_end(tmp_path):
    out = tmp_path / "run"
    train("quadratic", **SMALL, iterations=10, out=out)
    assert extend(out, "+10") == (
        "10 iterations become 20: eta, which had come down to 0, goes on at 0.025 and falls linearly to 0"
    )
    longer = resume(out)
    eta = read_arrivals(out / "run.db")["eta"]
    assert eta[[0, 29, 30, 59]] == pytest.approx([0.05, 0.05 / 30, 0.025, 0.05 / 60])
    assert longer.sha256 != train("quadratic", **SMALL, iterations=20).sha256
    assert replay(out).agrees
    assert recompute(out).agrees
    again = resume(out, iterations=30)
    assert (again.gradients, len(read_arrivals(out / "run.db")["eta"])) == (90, 90)
    assert replay(out).agrees
    assert recompute(out).agrees
    assert open_run(out).config().extended == (10, 30, 20, 60)


@pytest.mark.parametrize(
    ("how", "factor"),
    [
        ({"method": "fedpg"}, 3),
        ({"method": "fedpg", "literal_constants": True}, 1),
        ({"aggregator": "fedbuff:size=4"}, 4),
        ({"aggregator": "rennala:batch=6"}, 6),
    ],
    ids=str,
)
def test_the_etas_that_are_said_are_those_that_come(tmp_path, how, factor):
    """Where a server step is made of several contributions, which multiply eta and its floor."""
    out = tmp_path / "run"
    train("quadratic", **SMALL, **how, eta_floor=0.01, iterations=8, out=out)
    before = read_arrivals(out / "run.db")["eta"]
    said = extend(out, "+8")
    resume(out)
    eta = read_arrivals(out / "run.db")["eta"]
    floor = 0.01 * factor
    assert said.endswith(f"goes on at {eta[before.size]:.3g} and falls linearly to {floor:g}")
    down = float(re.findall("come down to (.*), goes", said)[0])
    assert floor <= down <= before[-1]
    assert replay(out).agrees


def test_a_kill_on_the_way_changes_nothing(tmp_path):
    class Killed(BaseException): ...

    def kill(arrival, seconds, theta):
        if arrival.gradient == 40:
            raise Killed

    for out in ("whole", "killed"):
        train("quadratic", **SMALL, iterations=10, out=tmp_path / out)
    whole = resume(tmp_path / "whole", iterations=20)
    with pytest.raises(Killed):
        resume(tmp_path / "killed", iterations=20, on_arrival=kill)
    with pytest.raises(ConfigError, match=r"iterations: .* is not finished; go on with `afedpg resume"):
        extend(tmp_path / "killed", "+5")
    assert resume(tmp_path / "killed").sha256 == whole.sha256
    assert replay(tmp_path / "killed").agrees


@pytest.mark.parametrize("by", ["goal", "callback"])
def test_the_evaluation_at_an_end_is_none_of_the_longer_run(tmp_path, by):
    """10 iterations end between two evaluations, and are evaluated there; 20 iterations are not."""
    own = {"callbacks": [EarlyStopping(patience=4, min_delta=1e9)]} if by == "callback" else {}
    settings = {**SMALL, "schedule": "constant", "evaluate_every": 4, "workers": 1}
    settings |= {"stop_at_evaluation": -1e9} if by == "goal" else {}
    whole = train("quadratic", **settings, **own, iterations=40)
    assert whole.stopped
    train("quadratic", **settings, **own, iterations=10, out=tmp_path / "run")
    longer = resume(tmp_path / "run", iterations=40, **own)
    assert (longer.stopped, longer.gradients, longer.sha256) == (whole.stopped, whole.gradients, whole.sha256)


def test_neither_is_the_evaluation_at_an_end_that_failed(tmp_path):
    """The goal's count has it when the callback fails; what is stored has not."""

    class Fails(Callback):
        def on_evaluation(self, event):
            if event.gradients == 10:
                raise AfedpgError("no room for the picture")

    settings = {"agents": 1, "schedule": "constant", "evaluate_every": 4, "stop_at_evaluation": -1e9}
    run, whole = tmp_path / "run", train("quadratic", **settings, iterations=40)
    with pytest.raises(
        AfedpgError, match=r"no room for the picture \(after gradient 10 of 10\); go on with: afedpg resume"
    ):
        train("quadratic", **settings, iterations=10, callbacks=Fails(), out=run)
    assert resume(run).gradients == 10
    longer = resume(run, iterations=40)
    assert (longer.stopped, longer.gradients, longer.sha256) == (whole.stopped, whole.gradients, whole.sha256)
    assert whole.gradients == 20  # five evaluations


def test_in_real_time_too(tmp_path):
    out = tmp_path / "run"
    train("quadratic", agents=1, iterations=10, engine="local", keep_reports=True, out=out)
    assert resume(out, iterations="+10").gradients == 20
    assert replay(out).agrees


def test_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        main(["train", "quadratic", "--agents", "2", "--iterations", "5", "--schedule", "constant", "--out", "run"])
        == 0
    )
    capsys.readouterr()
    assert main(["resume", "run", "--iterations", "+5"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith(
        "5 iterations become 10: alpha and eta go on as in a run that was this long from the start, and so does theta, "
        "bit for bit\nquadratic, afedpg, 2 agents, 10 parameters, 10 of 20 gradients done"
    )
    assert "20 gradients, " in told.out
    assert main(["replay", "run"]) == 0


@pytest.mark.parametrize(
    ("iterations", "line"),
    [
        (10, "iterations: the run has 10 already, and 10 are not more; '\\+200' adds 200 to them"),
        ("+0", "iterations: the run has 10 already, and 10 are not more"),
        ("7", "iterations: the run has 10 already, and 7 are not more"),
        ("-5", "iterations: '-5' is neither a number of iterations in all, as 300, nor one more, as \\+200"),
        ("many", "iterations: 'many' is neither"),
        ("+\u0663", "iterations: '\\+\u0663' is neither"),
        ("+" + "9" * 5000, r"iterations: '\+9{31}' is neither"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, iterations, line):
    train("quadratic", **SMALL, iterations=10, out=tmp_path / "run")
    before = (tmp_path / "run" / "run.toml").read_text()
    with pytest.raises(ConfigError, match=line):
        resume(tmp_path / "run", iterations=iterations)
    assert (tmp_path / "run" / "run.toml").read_text() == before


def test_own_schedules_are_given_again(tmp_path):
    def slower(k, v):
        return 0.1 / (k + 1)

    train("quadratic", agents=2, iterations=10, eta=slower, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="own parts: eta"):
        resume(tmp_path / "run", iterations="+5")
    longer = resume(tmp_path / "run", Own(eta=slower), iterations="+5")
    assert longer.sha256 == train("quadratic", agents=2, iterations=15, eta=slower).sha256


def test_extensions_are_stages_of_the_schedule():
    _, eta = schedules(Config(task="quadratic", agents=2, iterations=30, extended=(10, 20, 20, 40)))
    assert isinstance(eta, LinearDecay)
    assert [eta(k, k) / 0.03 for k in (19, 20, 39, 40, 60)] == pytest.approx([0.05, 0.5, 0.025, 1 / 3, 0.0])


def test_a_refused_resume_leaves_the_length_as_it_was(tmp_path, capsys):
    out = tmp_path / "run"
    train("quadratic", **SMALL, iterations=2, out=out)
    toml = (out / "run.toml").read_text()
    edited = toml.replace("eta = 0.05", "eta = 0.5")
    (out / "run.toml").write_text(edited)
    with pytest.raises(ConfigError, match=r"eta: .* put it back"):
        resume(out, iterations="+1")
    assert main(["resume", str(out), "--iterations", "+1"]) == 2
    assert "put it back" in capsys.readouterr().err
    assert (out / "run.toml").read_text() == edited
    (out / "run.toml").write_text(toml)
    with pytest.raises(ConfigError, match="ray_address: only used with --engine ray"):
        resume(out, iterations="+1", cluster={"ray_address": "local"})
    with pytest.raises(ConfigError, match="workers: 0; at least 1"):
        resume(out, iterations="+1", workers=0)
    for more in (["--ray-address", "local"], ["--workers", "0"]):
        assert main(["resume", str(out), "--iterations", "+1", *more]) == 2
    assert (out / "run.toml").read_text() == toml
    assert resume(out).gradients == 6


def test_an_extension_that_was_refused_for_lost_files_is_replaced_and_not_added_to(tmp_path):
    out = tmp_path / "run"
    train("quadratic", **SMALL, iterations=10, schedule="linear", out=out)
    with closing(sqlite3.connect(out / "run.db")) as connection, connection:
        connection.execute("DELETE FROM arrivals WHERE gradient <= 3")
    for _ in range(2):
        with pytest.raises(AfedpgError, match="arrivals up to the checkpoint are missing"):
            resume(out, iterations="+5")
    longer = resume(out, iterations="+5", accept_loss=True)
    config = open_run(out).config()
    assert (config.iterations, config.extended, longer.gradients) == (15, (10, 30), 15 * SMALL["agents"])
