"""Does run.toml still say what a checkpoint was made with?

A checkpoint holds the settings of its run. Edited ones would give a theta that no single run has, so they are refused;
settings that do not touch theta may be edited, and the run says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from afedpg.config import PATHS, Config, RayConfig, RecordConfig, flat
from afedpg.errors import ConfigError
from afedpg.record.disk import to_copy
from afedpg.record.folder import RunFolder

SETTINGS = "settings"  # their name in a checkpoint's tree
_CLUSTER = {entry.name for entry in fields(RayConfig)}  # `resume` may be told another one, which is not worth a word
_MAY_CHANGE = (
    {entry.name for entry in fields(RecordConfig)}  # what is kept, and how often
    | {"stop_at_return", "stop_at_evaluation", "stop_at_seconds"}  # where it ends
    | {"lease", "deadline", "max_rate", "durable"}  # whom the server waits for
    | {"device", "sampler"}  # which hardware and code compute the same
    | PATHS.keys()  # files may be moved
)


def settings_of(config: Config) -> dict[str, Any]:
    """All settings by name, as JSON has them: lists for tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(flat(config.to_dict()), default=str))
    return plain


def check_agreement(folder: RunFolder, tree: Mapping[str, Any], warn: Callable[[str], None]) -> None:
    """`tree` is a checkpoint of that run; one without settings, of an older version, agrees with everything."""
    then, now = tree.get(SETTINGS, {}), settings_of(folder.config())
    longer = {"iterations", "extended"} if _was_extended(then, now, tree["server"]["iteration"]) else set()
    for name in sorted(then.keys() & now.keys() - _CLUSTER - longer):
        if then[name] == now[name]:
            continue
        if name not in _MAY_CHANGE:
            raise ConfigError(
                f"{name}: {folder.toml} says {now[name]!r}, but the run was made with {then[name]!r}; put it back, or "
                f"begin another run at this one's theta with `{to_copy('train', '...', '--from', folder.path)}`"
            )
        warn(f"{name}: {then[name]!r} -> {now[name]!r}, as {folder.toml} says now")


def _was_extended(then: Mapping[str, Any], now: Mapping[str, Any], iteration: int) -> bool:
    """The run has more iterations now, from a server step on that the checkpoint has not passed."""
    before, after = list(then.get("extended", ())), list(now["extended"])
    added = after[len(before) :]
    if after[: len(before)] != before or len(added) % 2:
        return False
    lengths = [*added[::2], now["iterations"]]
    grows = all(less < more for less, more in pairwise(lengths))
    return grows and lengths[0] == then.get("iterations") and all(step >= iteration for step in added[1::2])
