"""Presets: the settings that come with the package in presets/TASK.NAME.toml, and TOML files of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afedpg.config import flat
from afedpg.errors import ConfigError
from afedpg.toml_file import read_toml

PRESETS = Path(__file__).parent / "presets"


def presets() -> list[str]:
    """The presets that come with the package, as 'swimmer.paper'."""
    return sorted(path.name.removesuffix(".toml") for path in PRESETS.glob("*.toml"))


def kinds() -> str:
    """What they are called behind their task, as help names them."""
    return ", ".join(sorted({name.partition(".")[2] for name in presets()}))


def load_preset(task: str, preset: str | Path) -> dict[str, Any]:
    """The flat settings of a preset of that task, or of a user's own TOML file."""
    if isinstance(preset, Path) or preset.endswith(".toml"):
        return flat(read_toml(Path(preset), "preset"))
    name = f"{task}.{preset}"
    if name not in presets():
        known = ", ".join(presets()) or "none"
        raise ConfigError(f"preset: there is no '{preset}' for {task}; known: {known}, or the path of a .toml file")
    return flat(read_toml(PRESETS / f"{name}.toml", "preset"))
