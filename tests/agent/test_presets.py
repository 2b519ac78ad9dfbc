"""The presets are the paper's table."""

from pathlib import Path

import pytest

from afedpg import train, tune
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import METHODS, SHORT_NAMES, AgentConfig, flat, from_settings, resolved
from afedpg.errors import ConfigError
from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan
from afedpg.preset import base_of, load_preset, presets
from afedpg.runs.parts import Own, configure
from afedpg.server.rules import afedppo
from afedpg.validation import validate

PAPER = {  # alpha, eta, T, K, parameters
    "swimmer": (1e-3, 3e-4, 2048, 1000, 4_868),
    "hopper": (1e-3, 1e-4, 1024, 2000, 69_638),
    "walker2d": (1e-3, 5e-5, 1024, 5000, 274_956),
    "humanoid": (1e-3, 1e-5, 512, 15000, 727_074),
}


@pytest.mark.parametrize("task", PAPER)
def test_the_papers_table(task):
    config = validate(from_settings({"task": task} | load_preset(task, "paper")))
    schedule, agent = config.schedule, config.agent
    parameters = EnvironmentWorkload(config).parameters
    assert (schedule.alpha, schedule.eta, agent.steps, config.iterations, parameters) == PAPER[task]
    assert (schedule.schedule, agent.gamma, agent.estimator, agent.scale_observations) == (
        "constant",
        0.99,
        "gae",
        False,
    )


@pytest.mark.parametrize(("short", "name"), SHORT_NAMES.items())
@pytest.mark.parametrize("version", ["v4", "v5"])
def test_a_preset_is_for_both_versions_of_a_task(short, name, version):
    task = f"{name.removesuffix('-v4')}-{version}"
    assert load_preset(task, "ppo") == load_preset(short, "ppo")
    validate(resolved(from_settings({"task": task} | load_preset(task, "ppo"))))
    with pytest.raises(ConfigError, match="there is no 'ppo' for Hopper-v3"):
        load_preset("Hopper-v3", "ppo")


def test_a_preset_is_known_by_its_whole_name_and_for_the_newest_version():
    assert load_preset("hopper", "hopper.tuned") == load_preset("Hopper", "tuned") == load_preset("hopper", "tuned")
    for task, preset in (("walker2d", "hopper.tuned"), ("hopper", "hopper.hopper.tuned")):
        with pytest.raises(ConfigError, match=f"there is no '{preset}' for {task}"):
            load_preset(task, preset)
    with pytest.raises(ConfigError, match=r"^preset: '' is no path$"):
        load_preset("hopper", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agants = 2", "agants: no such setting; `afedpg train --help` lists them"),
        ("gae-lambda = 0.9", "gae-lambda: no such setting; it is written gae_lambda"),
        ("seeds = '0-2'", "seeds: no setting of a run, which would keep it, but an argument of the command"),
        ("out = 'run'", "out: no setting of a run"),
        ("agents = true", "agents: True is not of type int"),
        ("task = 'Acrobot-v1'", ""),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(text, said, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    said = f"mine.toml: {said}" if said else "mine.toml is for the task Acrobot-v1, not for hopper"
    for begin in (train, tune):
        with pytest.raises(ConfigError, match=f"^preset: .*{said}"):
            begin("hopper", preset=tmp_path / "mine.toml")
    with pytest.raises(ConfigError, match=f"^preset: .*{said}"):
        Plan(Choices("smoke", tmp_path, 1), str(tmp_path / "mine.toml")).settings("hopper", Method("afedpg"), 1, 0)
    (tmp_path / "mine.toml").write_text("task = 'Hopper-v4'")
    assert base_of("hopper", tmp_path / "mine.toml") == {"task": "Hopper-v4"}


@pytest.mark.parametrize("preset", presets())
def test_every_preset_is_valid(preset):
    task, kind = preset.split(".")
    validate(resolved(from_settings({"task": task} | load_preset(task, kind))))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", presets())
def test_a_method_stays_itself_under_the_preset_of_another_one(preset, method):
    task, kind = preset.split(".")
    given = load_preset(task, kind)
    named = {"method": method, "agents": 1}
    alone, under = (flat(configure(task, name, named).to_dict()) for name in (None, kind))
    foreign = given["method"] != method
    apart = METHODS[method].keys() | METHODS[given["method"]].keys() if foreign else set()
    apart |= {"iterations"} & given.keys() if "steps" in apart else set()
    for name in given.keys() - named.keys():
        expected = alone[name] if name in apart else given[name]
        assert (list(under[name]) if isinstance(expected, list) else under[name]) == expected, name
    assert not foreign or all(under[name] == alone[name] for name in METHODS[method])


@pytest.mark.parametrize("task", PAPER)
@pytest.mark.parametrize("preset", ["paper", "tuned", "ppo"])
def test_the_figures_compare_with_a3c_itself(task, preset, tmp_path):
    config = Plan(Choices("smoke", tmp_path, 1), preset).settings(task, Method("a3c"), 4, 0).config
    assert (config.agent.estimator, config.agent.segment, config.schedule.eta) == ("a3c", 32, 7e-4)
    assert config.agent.steps == load_preset(task, preset).get("steps", AgentConfig.steps)


def test_a3c_has_its_own_rate_wherever_it_is_chosen(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    plan = Plan(Choices("smoke", tmp_path, 1), str(mine))
    for text in ("hidden = [4]", "method = 'afedpg'\neta = 0.02\neta_floor = 0.01\nschedule = 'linear'"):
        mine.write_text(text)
        figure = plan.settings("CartPole-v1", Method("a3c"), 4, 0).config.schedule
        for schedule in (figure, configure("CartPole-v1", mine, {"method": "a3c"}).schedule):
            assert (schedule.eta, schedule.eta_floor, schedule.schedule) == (7e-4, 0.0, "linear")
    for preset in (None, "tuned", "paper", "ppo"):
        assert configure("hopper", preset, {"method": "a3c"}).schedule.eta == 7e-4
    assert configure("hopper", "tuned", {"method": "a3c", "eta": 1e-3}).schedule.eta == 1e-3


def test_a_rule_of_ones_own_is_the_same_by_its_file_and_as_an_object(tmp_path: Path) -> None:
    (tmp_path / "copy_.py").write_text("from afedpg.server.rules import afedppo as mine")
    named = {"method": f"{tmp_path / 'copy_.py'}:mine"}
    by_file = configure("hopper", "ppo", named)
    as_object = configure("hopper", "ppo", {}, Own(method=afedppo))
    assert by_file.agent == as_object.agent
    assert by_file.schedule == as_object.schedule
    assert by_file.iterations == as_object.iterations == 977


def test_a_file_that_names_no_method_is_for_every_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("estimator = 'gae'\nsegment = 16")
    agent = configure("hopper", tmp_path / "mine.toml", {"method": "a3c"}).agent
    assert (agent.estimator, agent.segment) == ("gae", 16)
