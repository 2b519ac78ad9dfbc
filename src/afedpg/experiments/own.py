"""Loading a user's own rule or timing model from the file named on the command line, in every process that needs it."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from afedpg.errors import ConfigError
from afedpg.experiments.choices import OwnPart
from afedpg.runs.parts import Own


@cache
def load(part: OwnPart) -> Callable[..., Any]:
    """The function; its file is executed once per process."""
    code = Path(part.path).read_bytes()
    if hashlib.sha256(code).hexdigest() != part.sha256:
        raise ConfigError(f"methods: {part.path} changed while it was in use; start again")
    module_name = f"afedpg_own_{part.sha256[:16]}"
    spec = importlib.util.spec_from_file_location(module_name, part.path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"methods: {part.path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # a dataclass in the file looks its own module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file raises, they want to know where
        raise ConfigError(f"methods: {part.path} fails: {type(error).__name__}: {error}") from error
    function = getattr(module, part.function, None)
    if not callable(function):
        raise ConfigError(f"methods: {part.path} has no function '{part.function}'")
    return function  # type: ignore[no-any-return]


def own_of(method: OwnPart | None, timing: OwnPart | None, eta: Callable[[int, int], float] | None = None) -> Own:
    return Own(method=load(method) if method else None, timing=load(timing) if timing else None, eta=eta)
