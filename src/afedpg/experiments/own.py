"""Loading a user's own rule or timing model from the file named on the command line, in every process that needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from afedpg.errors import ConfigError
from afedpg.experiments.choices import OwnPart
from afedpg.parts import build
from afedpg.runs.parts import Own


@cache
def load(kind: str, part: OwnPart) -> Callable[..., Any]:
    """The part with its parameters; its file is executed once per process."""
    if hashlib.sha256(Path(part.path).read_bytes()).hexdigest() != part.sha256:
        raise ConfigError(f"{kind}: {part.path} changed while it was in use; start again")
    made: Callable[..., Any] = build(kind, f"{part.path}:{part.written}", {})
    return made


def own_of(method: OwnPart | None, timing: OwnPart | None, eta: Callable[[int, int], float] | None = None) -> Own:
    return Own(
        method=load("methods", method) if method else None, timing=load("timing", timing) if timing else None, eta=eta
    )
