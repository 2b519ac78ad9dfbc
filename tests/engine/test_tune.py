"""A search for settings: on seeds of its own, cut short by the median, gone on with, and a preset at its end."""

from __future__ import annotations

import json
import logging
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from afedpg import train, tune
from afedpg.cli import main
from afedpg.errors import AfedpgError, ConfigError
from afedpg.preset import load_preset
from afedpg.runs import tune as tuning
from afedpg.runs.parts import configure

optuna = pytest.importorskip("optuna", reason="optuna is not installed")
SMALL: dict[str, Any] = {"agents": 2, "iterations": 12}


def seen_by(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that are trained."""
    seen = []
    run = tuning.run

    def noting(config: Any, **more: Any) -> Any:
        seen.append(config)
        return run(config, **more)

    monkeypatch.setattr(tuning, "run", noting)
    return seen


def test_three_trials_on_seeds_that_judge_nothing_give_a_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, said = seen_by(monkeypatch), []
    found = tune("quadratic", **SMALL, trials=3, out=tmp_path / "study", say=said.append)
    assert (found.trials, found.pruned, len(seen), len(said)) == (3, 0, 9, 3)
    assert [config.seed for config in seen] == [100, 101, 102] * 3
    assert len({config.schedule.eta for config in seen}) == 3
    assert set(found.settings) == {"eta", "alpha"}
    assert load_preset("quadratic", found.preset) == {"method": "afedpg", **SMALL, **found.settings}
    factor = configure("quadratic", found.preset, {"method": "afedppo"}).schedule
    assert factor.eta == 1.0  # not the length that was found
    values = [float(line.split()[2].rstrip(",")) for line in said]
    assert found.value == pytest.approx(max(values), rel=1e-5)
    again = train("quadratic", preset=found.preset, seed=100)
    assert again.gradients == 24


def test_what_is_worth_is_the_mean_of_the_last_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = seen_by(monkeypatch)
    found = tune("quadratic", **SMALL, trials=1, out=tmp_path / "study")
    ends = [train("quadratic", **SMALL, **found.settings, seed=config.seed).evaluations[0].mean for config in seen]
    assert found.value == pytest.approx(sum(ends) / 3)


def test_a_trial_below_the_median_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SURE", 2)
    run, runs = tuning.run, []

    def noting(config: Any, **more: Any) -> Any:
        result = run(config, **more)
        runs.append((config.seed, result.stopped))
        return result

    monkeypatch.setattr(tuning, "run", noting)
    found = tune("quadratic", **SMALL, trials=8, out=tmp_path / "study")
    assert found.trials == 8
    assert found.pruned == sum(stopped != "" for _, stopped in runs) > 0
    assert all(seed == tuning.SEEDS[0] for (_, stopped), (seed, _) in pairwise(runs) if stopped)


def test_a_study_goes_on_with_its_own_settings_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tune("quadratic", **SMALL, trials=2, out=tmp_path)
    seen = seen_by(monkeypatch)
    found = tune("quadratic", **SMALL, trials=3, out=tmp_path)
    assert (found.trials, len(seen)) == (3, 3)
    with pytest.raises(ConfigError, match="has a study of other settings"):
        tune("quadratic", agents=3, iterations=12, trials=4, out=tmp_path)


def test_an_interrupted_trial_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = tuning.run, []
    said: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("optuna"), "handle", said.append)
    monkeypatch.setattr(logging.getLogger("optuna.study._optimize"), "handle", said.append)

    def interrupted(config: Any, **more: Any) -> Any:
        calls.append(config)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return run(config, **more)

    monkeypatch.setattr(tuning, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune("quadratic", **SMALL, trials=3, out=tmp_path)
    assert said == []  # no traceback of a trial, which is no fault
    assert tune("quadratic", **SMALL, trials=2, out=tmp_path).trials == 2
    assert len(calls) == 8


def test_the_clipped_estimators_parameters_are_searched_and_given_ones_stay(tmp_path: Path) -> None:
    settings = {"method": "afedppo", "agents": 2, "iterations": 2, "steps": 32, "hidden": (4,), "evaluate_episodes": 1}
    fixed = {"gamma": 0.9, "estimator": "clipped:clip=0.1,epochs=1"}
    found = tune("CartPole-v1", **settings, **fixed, trials=1, out=tmp_path)
    assert set(found.settings) == {"estimator", "gae_lambda"}
    assert found.settings["estimator"].startswith("clipped:clip=0.1,epochs=1,rate=")
    assert "entropy=" in found.settings["estimator"]
    assert load_preset("CartPole-v1", found.preset)["gamma"] == 0.9
    with pytest.raises(ConfigError, match="all of them are given"):
        tune("quadratic", eta=1.0, alpha=1.0, out=tmp_path / "other")


def test_returns_are_discounted_where_there_are_some_and_a_preset_may_have_more_than_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("entropy = 0.5\nhidden = [4]\nsteps = 32\nevaluate_episodes = 1\n")
    found = tune("CartPole-v1", agents=2, iterations=1, trials=1, out=tmp_path, preset=tmp_path / "mine.toml")
    assert set(found.settings) == {"eta", "alpha", "gamma", "gae_lambda"}
    assert load_preset("CartPole-v1", found.preset)["entropy"] == 0.5
    found = tune("quadratic", agents=1, iterations=10, trials=1, out=tmp_path / "other", method="afedppo")
    assert set(found.settings) == {"eta"}
    with pytest.raises(ConfigError, match="entropy: only used with"):
        tune("CartPole-v1", entropy=0.5, trials=1, out=tmp_path / "third")


SEARCHED = [
    ("CartPole-v1", {"method": "afedpg"}, {"eta", "alpha", "gamma", "gae_lambda"}, (3e-3, 0.3)),
    ("CartPole-v1", {"method": "afedpg", "estimator": "reinforce"}, {"eta", "alpha", "gamma"}, (3e-3, 0.3)),
    ("CartPole-v1", {"method": "afedpg", "schedule": "fosp"}, {"eta", "gamma", "gae_lambda"}, (3e-3, 0.3)),
    ("CartPole-v1", {"method": "pg-plain"}, {"eta", "gamma", "gae_lambda"}, (3e-3, 0.3)),
    ("CartPole-v1", {"method": "a3c"}, {"eta", "gamma"}, (7e-5, 7e-3)),
    ("CartPole-v1", {"method": "a3c", "eta_floor": 5e-4}, {"eta", "gamma"}, (5e-4, 7e-3)),
    ("quadratic", {"method": "afedppo"}, {"eta"}, (0.01, 1.0)),
    ("quadratic", {"method": "fedpg", "eta_floor": 0.01}, {"eta", "alpha"}, (0.01, 0.3)),
]


@pytest.mark.parametrize(("task", "settings", "names", "etas"), SEARCHED)
def test_what_is_read_is_searched_where_its_method_wants_it(
    tmp_path: Path, task: str, settings: dict[str, Any], names: set[str], etas: tuple[float, float]
) -> None:
    space = tuning._Search(task, {}, {"agents": 1, **settings}, tmp_path, None).space
    assert space.keys() == names
    assert space["eta"] == tuning.Between(*etas)


def test_a_search_of_a3c_trains_with_what_it_finds(tmp_path: Path) -> None:
    settings = {"method": "a3c", "agents": 1, "iterations": 1, "steps": 32, "hidden": (4,), "evaluate_episodes": 1}
    found = tune("CartPole-v1", **settings, trials=1, out=tmp_path)
    assert set(found.settings) == {"eta", "gamma"}
    assert train("CartPole-v1", preset=found.preset).gradients == 1


def test_the_command_searches_and_its_preset_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["tune", "quadratic", "--agents", "2", "--iterations", "10", "--trials", "2"]
    assert main(line) == 0
    said = capsys.readouterr()
    assert said.out.startswith("best of 2 trials, 0 of them cut short: ")
    assert said.err.count("\n") == 2
    advice = said.out.splitlines()[-1].partition(": afedpg ")[2].split()
    assert main([*advice, "--json"]) == 0
    assert main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["trials"], found["preset"]) == (2, "tuned/quadratic-afedpg/best.toml")
    again = tune("quadratic", agents=2, iterations=10, trials=2)  # the same study
    assert (again.trials, str(again.preset)) == (2, found["preset"])
    Path("other.toml").write_text('method = "fedpg"\n')
    assert str(tune("quadratic", **SMALL, trials=1, preset="other.toml").preset) == "tuned/quadratic-fedpg/best.toml"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"trials": "3"}, "trials: '3' is not of type int"),
        ({"trials": 1.5}, "trials: 1.5 is not of type int"),
        ({"minutes": "1"}, "minutes: '1' is not of type float"),
        ({"preset": 5}, "preset: 5 is no path"),
        ({"workers": "2"}, "workers: '2' is not of type int"),
        ({"workers": 0}, "workers: 0; at least 1 is needed"),
        ({"callbacks": ()}, "callbacks: a search takes tasks by their names, and settings, alone"),
        (
            {"make_env": object},
            "make_env: a search takes tasks by their names, and settings, alone; register the environment with .*",
        ),
    ],
)
def test_what_is_of_another_type_is_one_line(tmp_path: Path, given: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}$"):
        tune("quadratic", **SMALL, **given, out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_a_file_where_the_folder_is_meant_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "study"):
        with pytest.raises(ConfigError, match=f"^out: cannot create {out}: .*; choose another --out$"):
            tune("quadratic", **SMALL, trials=1, out=out)


@pytest.mark.parametrize(
    ("more", "what"),
    [(["--trials", "0"], "trials: 0"), (["--minutes", "nan"], "minutes: nan"), (["--seed", "3"], "seed: a search"),
     (["--eta", "-1"], "eta: -1.0 must be above 0"),
     (["--eta-floor", "1"], "eta_floor: 1.0 is outside [0, eta = 0.03]")],
)  # fmt: skip
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], what: str) -> None:
    assert main(["tune", "quadratic", "--out", str(tmp_path / "study"), *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"afedpg: {what}")
    assert said.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_a_file_that_is_no_study_and_a_missing_package_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(AfedpgError, match=r"cannot use .*study\.db as a study"):
        tune("quadratic", **SMALL, trials=1, out=tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(AfedpgError, match=r"pip install 'afedpg\[tune\]'"):
        tune("quadratic", **SMALL, trials=1, out=tmp_path / "other")
