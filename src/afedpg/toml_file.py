"""TOML files that people write. Whatever is wrong with one is one line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from afedpg.errors import ConfigError


def read_toml(path: Path, field: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{field}: there is no file {path}") from error
    except OSError as error:
        raise ConfigError(f"{field}: cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise ConfigError(f"{field}: {path} is nested too deeply") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise ConfigError(f"{field}: {path} is not TOML: {error}") from error
