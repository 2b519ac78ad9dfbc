"""A run goes on with the settings it was made with; edited ones that would change theta are refused, in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import afedpg
from afedpg.cli import main
from afedpg.config import Config, flat, options
from afedpg.errors import ConfigError
from afedpg.options import default_of
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.agreement import _CLUSTER, _MAY_CHANGE
from afedpg.runs.evaluate import evaluate_run

SETTINGS: dict[str, Any] = {"agents": 4, "iterations": 10, "seed": 1}
OTHER: dict[str, Any] = {  # another value for each setting, where the rule below finds none that makes sense
    "method": "fedpg", "task": "softmax-mdp", "schedule": "constant", "timing": "equal", "engine": "local",
    "speeds": [1.0, 2.0, 3.0, 4.0], "hidden": [8], "baseline_hidden": [8], "silent": [1], "late": {"1": 2.0},
    "drop": {"1": 9.0}, "alpha": 0.5, "eta_floor": 0.001, "gamma": 0.5, "gae_lambda": 0.5, "estimator": "reinforce",
    "baseline": "linear", "env_kwargs": {"gravity": -3.0}, "max_share": 0.5, "compute": "torch",
    "aggregator": "all", "update_share": 0.5,
}  # fmt: skip
OTHER |= {"optima": [1.0, 2.0], "transfer": "sqrt", "activation": "tanh", "mean": "linear"}
OTHER |= {"extended": [5, 20]}
OTHER |= {"codec": f"{Path(__file__).parents[2] / 'examples/parts/eight_bits.py'}:EightBits"}
OTHER |= {"sites": "gravity", "scaling": "local"}
OTHER |= {"attack": "sign-flip", "attackers": [1]}
NEEDS: dict[str, Any] = {  # what makes the other value valid
    "speeds": {"timing": "list"}, "transfer": {"latency": 1.0}, "attack": {"attackers": [1]},
    "attackers": {"attack": "zeros"},
}  # fmt: skip


def edit(run: Path, **settings: Any) -> None:
    """As a hand with an editor does it."""
    folder = folders.RunFolder(run)
    document = folder._document()
    for section, entry in options():
        if entry.name in settings:
            (document if section is None else document[section])[entry.name] = settings[entry.name]
    folder.toml.write_text(tomli_w.dumps(document))


def contents(run: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


def other(name: str, value: Any) -> Any:
    if name in OTHER:
        return OTHER[name]
    return not value if isinstance(value, bool) else value + 1


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run: Path = tmp_path_factory.mktemp("made") / "run"
    afedpg.train("quadratic", **SETTINGS, out=run)
    return run


@pytest.fixture
def made(trained: Path) -> Iterator[Path]:
    """A run whose run.toml may be edited: the next test finds it as it was."""
    text = (trained / "run.toml").read_text()
    yield trained
    (trained / "run.toml").write_text(text)


@pytest.mark.parametrize(
    "entry",
    [entry for _, entry in options() if entry.name not in _MAY_CHANGE | _CLUSTER | {"own"}],
    ids=lambda entry: entry.name,
)
def test_a_setting_that_theta_depends_on_is_refused_by_name(
    made: Path, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afedpg.record.trust.unknown_code", lambda config: None)  # the codec's file
    old = (SETTINGS | {"task": "quadratic"}).get(entry.name, default_of(entry))
    new = other(entry.name, old)
    edit(made, **{entry.name: new}, **NEEDS.get(entry.name, {}))
    before = contents(made)
    for go_on in (afedpg.resume, afedpg.replay, afedpg.recompute):
        if entry.name == "engine" and go_on is afedpg.recompute:
            continue  # it says that a run in real time cannot be recomputed
        with pytest.raises(ConfigError) as caught:
            go_on(made)
        line, named = str(caught.value), f"({'|'.join((entry.name, *NEEDS.get(entry.name, {})))})"
        assert re.match(rf"{named}: {made}/run.toml says .*, but the run was made with .*; put it back", line), line
        assert "\n" not in line
    assert contents(made) == before


def test_both_values_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", **SETTINGS, eta=0.03, out=run)
    edit(run, eta=0.05)
    assert main(["resume", str(run)]) == 2
    assert capsys.readouterr().err == (
        f"afedpg: eta: {run}/run.toml says 0.05, but the run was made with 0.03; put it back, or begin another run at "
        f"this one's theta with `afedpg train ... --from {run}`\n"
    )


@pytest.mark.parametrize(
    "edited", [{"eta": 0.07}, {"agents": 3}, {"dimension": 7}, {"method": "afedpg-vanilla"}, {"max_norm": 2.0}]
)
def test_a_federation_is_held_to_its_settings_too(tmp_path: Path, edited: dict[str, Any]) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", agents=1, iterations=10, engine="local", out=run)
    edit(run, **edited)
    before = contents(run)
    with pytest.raises(ConfigError, match=rf"^{next(iter(edited))}: .* but the run was made with"):
        afedpg.resume(run)
    assert contents(run) == before | {run / "lock": (run / "lock").read_bytes()}


def test_what_theta_does_not_depend_on_may_be_edited_and_the_run_says_so(tmp_path: Path) -> None:
    run, told = tmp_path / "run", []
    whole = afedpg.train("quadratic", **SETTINGS, out=tmp_path / "whole")
    afedpg.train("quadratic", **SETTINGS, stop_at_seconds=5.0, out=run)
    edit(run, checkpoint_seconds=5.0, evaluate_every=2, stop_at_seconds=1e9)
    assert afedpg.resume(run, warn=told.append).sha256 == whole.sha256
    assert told == [
        f"checkpoint_seconds: 30.0 -> 5.0, as {run}/run.toml says now",
        f"evaluate_every: 0 -> 2, as {run}/run.toml says now",
        f"stop_at_seconds: 5.0 -> 1000000000.0, as {run}/run.toml says now",
    ]
    told.clear()
    afedpg.resume(run, warn=told.append)  # the newest checkpoint knows them
    assert told == []


@pytest.mark.parametrize("edited", [{"dimension": 7}, {"method": "a3c"}])
def test_a_checkpoint_of_an_older_version_without_settings_is_still_compared(
    tmp_path: Path, edited: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", **SETTINGS, out=run)
    name, tree = checkpoint.load_latest(run / "checkpoints")
    del tree["settings"]
    checkpoint.save(run / "checkpoints", name, tree, keep=1)
    afedpg.resume(run)
    checkpoint.save(run / "checkpoints", name, tree, keep=1)
    edit(run, **edited)
    with pytest.raises(ConfigError, match=r"in its checkpoint|the checkpoint's rule remembers") as caught:
        afedpg.resume(run)
    assert "\n" not in str(caught.value)


def test_evaluate_says_when_theta_does_not_fit(tmp_path: Path) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", **SETTINGS, out=run)
    edit(run, eta=0.07)
    assert evaluate_run(run)  # how theta was made does not matter here
    edit(run, dimension=7)
    with pytest.raises(ConfigError, match="theta has 10 parameters in its checkpoint, 7 as the run is set up now"):
        evaluate_run(run)


def test_every_setting_is_in_the_checkpoint(made: Path) -> None:
    stored = json.loads(next((made / "checkpoints").glob("*/state.json")).read_text())["state"]["settings"]
    assert stored.keys() == flat(Config(**SETTINGS).to_dict()).keys()
