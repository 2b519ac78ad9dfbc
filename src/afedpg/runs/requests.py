"""What an engine is asked for: a new run, or to go on with one; and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from afedpg.config import Config, from_settings
from afedpg.engine.cost import Cost
from afedpg.engine.federation import OnArrival
from afedpg.record.folder import RunFolder
from afedpg.runs.parts import Own
from afedpg.validation import validate


@dataclass(frozen=True)
class NewRun:
    config: Config
    own: Own = Own()
    out: Path | None = None  # without it nothing is kept on the disk
    on_arrival: OnArrival | None = None
    announce: Callable[[Cost], None] = lambda cost: None  # what it needs, before it begins
    numbered: bool = False  # where `out` exists, the first free one of OUT-2, OUT-3, ...


@dataclass(frozen=True)
class StoredRun:
    folder: RunFolder
    own: Own = Own()
    on_arrival: OnArrival | None = None
    warn: Callable[[str], None] = lambda text: None  # of what is not as it was, in one line each
    announce: Callable[[Cost], None] = lambda cost: None
    accept_loss: bool = False  # though files are gone or cut off
    cluster: Mapping[str, Any] = field(default_factory=dict)  # the ray engine's, where it is another one now

    @cached_property
    def config(self) -> Config:
        config = self.folder.config()
        return validate(from_settings(self.cluster, config)) if self.cluster else config
