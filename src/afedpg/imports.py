"""MODULE of a task MODULE:ID: whether there is one, and where it lies. Nothing is imported here."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_NAMED = re.compile(r"([A-Za-z_][\w.]*):.")  # as gymnasium.make reads it


def modules_in(settings: Any) -> Iterator[str]:
    """Of a task, and of its keyword arguments: some environments make another one, which they are given by name."""
    if isinstance(settings, str):
        if found := _NAMED.match(settings):
            yield found[1]
    elif isinstance(settings, Mapping):
        yield from modules_in(list(settings.values()))
    elif isinstance(settings, list | tuple):
        for entry in settings:
            yield from modules_in(entry)


def search_working_folder() -> None:
    """The module may lie there; after everything that is installed, and only once a task asks for a module."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append("")


def place_of(module: str) -> str | None:
    """The file, or for a package without one the folder, that importing it runs; None where there is none."""
    search_working_folder()
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])  # of a submodule it would import the package
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.has_location or spec.origin else list(spec.submodule_search_locations or ())
    return str(Path(places[0] or "").resolve()) if places else None
