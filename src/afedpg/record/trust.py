"""May a run folder name code to import? Only code that this user has named before.

A task MODULE:ID imports MODULE, a part FILE.py:NAME runs FILE.py, and run.toml names both. A user who starts a run
names them, and where they lie is written down in the user's own state folder. A run folder of somebody else can name
any code, and may come with a file of that name; such code is refused until the user says that it may be run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.imports import modules_in, place_of
from afedpg.parts import files


def unknown_code(config: Config) -> str | None:
    """The first module that the run would import and this user has never named, with its place."""
    known = _known()
    for module in modules_in([config.environment, config.agent.env_kwargs]):
        place = None if module in sys.modules else place_of(module)  # imported already, by whoever runs this program
        if place is not None and place not in known:
            return f"{module} from {place}"
    for file in files(config).values():
        if _whole(file) not in known:
            return _whole(file)
    return None


def _whole(file: str) -> str:
    return str(Path(file).resolve())


def check_trust(config: Config, trust: bool = False) -> None:
    """`trust` is the user's word, which counts from now on."""
    if trust:
        remember(config)
    elif (code := unknown_code(config)) is not None:
        raise ConfigError(
            f"run.toml asks to run {code}, which you have not run before; look at it, then add --trust-code"
        )


def remember(config: Config) -> None:
    """The user has named this run's modules. Where nothing can be written, the question comes again."""
    places = {place_of(module) for module in modules_in([config.environment, config.agent.env_kwargs])}
    places |= {_whole(file) for file in files(config).values()}
    new = sorted(place for place in places if place is not None and place not in _known())
    with contextlib.suppress(OSError, RuntimeError):  # no home
        if new:
            _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _file().open("a", encoding="utf-8") as stream:
                stream.writelines(f"{place}\n" for place in new)


def _known() -> set[str]:
    try:
        return set(_file().read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError, RuntimeError):
        return set()


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / "afedpg" / "modules"
