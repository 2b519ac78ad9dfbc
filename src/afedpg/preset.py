"""Presets: the settings that come with the package in presets/TASK.NAME.toml, and TOML files of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afedpg.config import METHODS, SHORT_NAMES, flat, from_settings
from afedpg.errors import ConfigError
from afedpg.options import place
from afedpg.toml_file import read_toml

PRESETS = Path(__file__).parent / "presets"
VERSIONS = ("-v4", "-v5", "")  # of the MuJoCo tasks: what a preset says holds for both; without one it is the newest


def presets() -> list[str]:
    """The presets that come with the package, as 'swimmer.paper'."""
    return sorted(path.name.removesuffix(".toml") for path in PRESETS.glob("*.toml"))


def kinds() -> str:
    """What they are called behind their task, as help names them."""
    return ", ".join(sorted({name.partition(".")[2] for name in presets()}))


def preset_of(task: str, kind: str) -> str:
    """The name of a task's preset: 'hopper.ppo' for hopper, Hopper-v4, Hopper-v5 and Hopper."""
    short = {name[:-3] + version: short for short, name in SHORT_NAMES.items() for version in VERSIONS}
    return f"{short.get(task, task)}.{kind}"


def load_preset(task: str, preset: str | Path) -> dict[str, Any]:
    """The flat settings of a preset of that task, or of a user's own TOML file."""
    path = place("preset", preset)
    if not isinstance(preset, str) or preset.endswith(".toml"):
        return flat(read_toml(path, "preset"))
    name = preset_of(task, preset)
    if preset in presets() and preset == preset_of(task, preset.partition(".")[2]):  # by its whole name
        name = preset
    if name not in presets():
        known = ", ".join(presets()) or "none"
        raise ConfigError(f"preset: there is no '{preset}' for {task}; known: {known}, or the path of a .toml file")
    return flat(read_toml(PRESETS / f"{name}.toml", "preset"))


def base_of(task: str, preset: str | Path | None) -> dict[str, Any]:
    """What a run of that task begins with; a mistake in a file is told with the file's name."""
    if not preset:
        return {}
    settings = load_preset(task, preset)
    try:
        from_settings(settings)
    except ConfigError as error:
        raise ConfigError(f"preset: {preset}: {error}") from error
    meant = settings.get("task", task)
    if SHORT_NAMES.get(meant, meant) != SHORT_NAMES.get(task, task):
        raise ConfigError(
            f"preset: {preset} is for the task {meant}, not for {task}; take the line out if it fits both"
        )
    return settings


def fitted(settings: Mapping[str, Any], method: object) -> Mapping[str, Any]:
    """A preset's settings as another method than its own uses them: without those that either method brings along.

    Its estimator, say, would turn A3C into something else, and a length of a step is no factor. A rule of one's own
    takes the place of the server's half alone, so what the preset's method brings along stays.
    """
    made = settings.get("method")
    if method is None or made is None or made == method:
        return settings
    brought = METHODS.get(str(made), {})
    if method not in METHODS:
        return {**brought, **settings}
    apart = brought.keys() | METHODS[str(method)].keys()
    apart |= {"iterations"} if "steps" in apart else set()  # which are as many for as many samples
    apart |= {"eta_floor"} if "eta" in apart else set()  # which may be above the other method's eta
    return {name: value for name, value in settings.items() if name not in apart}
