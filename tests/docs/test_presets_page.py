"""The tables of docs/presets.md are the TOML files."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from blocks import ROOT

from afedpg.config import Config, from_settings
from afedpg.preset import load_preset, presets

PAGE = (ROOT / "docs" / "presets.md").read_text()


def widths(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))


def baseline(config: Config) -> str:
    kind = config.agent.baseline
    return f"{kind} {widths(config.agent.baseline_hidden)}" if kind == "mlp" else kind


ROWS: dict[str, Callable[[Config], object]] = {
    "network": lambda config: widths(config.agent.hidden),
    "baseline": baseline,
    "alpha, eta": lambda config: (config.schedule.alpha, config.schedule.eta),
    "gamma": lambda config: config.agent.gamma,
    "log-std at the start": lambda config: config.agent.log_std,
    "T": lambda config: config.agent.steps,
    "iterations per agent": lambda config: config.iterations,
}
COMMON: dict[str, Callable[[Config], object]] = {
    "schedule": lambda config: (config.schedule.schedule, config.schedule.eta_floor),
    "scaling": lambda config: (config.agent.scale_observations, config.agent.scale_advantages),
    "estimator": lambda config: (config.agent.estimator, config.agent.gae_lambda),
}
SAID = {  # below the tables, of all tasks
    "paper": {"schedule": ("constant", 0.0), "scaling": (False, True), "estimator": ("gae", 0.95)},
    "tuned": {"schedule": ("linear", 0.0), "scaling": (True, True), "estimator": ("gae", 0.95)},
}


def table(preset: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## The `{preset}` presets\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]


def read(cell: str) -> object:
    """As the configuration has it: numbers as numbers, several of them as a tuple, words as they are."""
    try:
        numbers = tuple(float(part) for part in re.sub(r"(?<=\d),(?=\d{3})", "", cell).split(", "))
    except ValueError:
        return cell
    return numbers[0] if len(numbers) == 1 else numbers


@pytest.mark.parametrize("preset", SAID)
def test_the_page_says_what_the_files_say(preset: str) -> None:
    head, _, *rows = table(preset)
    tasks = [task.lower() for task in head[1:]]
    assert sorted(f"{task}.{preset}" for task in tasks) == [name for name in presets() if name.endswith(f".{preset}")]
    configs = [from_settings({"task": task} | load_preset(task, preset)) for task in tasks]
    for name, *cells in rows:
        assert [read(cell) for cell in cells] == [ROWS[name](config) for config in configs], name
    unsaid = ROWS.keys() - {name for name, *_ in rows}
    for name in unsaid:
        assert len({ROWS[name](config) for config in configs}) == 1, f"{name} differs between tasks: the table lacks it"
    for config in configs:
        assert {name: of(config) for name, of in COMMON.items()} == SAID[preset], config.task
