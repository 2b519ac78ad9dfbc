"""A stored run with the code it was made with, and its newest whole checkpoint, once it is known that it fits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.options import place
from afedpg.record import checkpoint
from afedpg.record.agreement import check_agreement
from afedpg.record.folder import RunFolder, open_run
from afedpg.record.trust import check_trust
from afedpg.runs.parts import Own, check_own
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState, buffer_names, from_tree

_log = logging.getLogger("afedpg")


def open_checked(
    path: str | Path, own: Own, trust_code: bool, kinds: tuple[str, ...] = tuple(Own.__dataclass_fields__)
) -> tuple[RunFolder, Config]:
    """The folder and its configuration; the user's own parts of these `kinds` must be those it was made with."""
    folder = open_run(place("run", path))
    config = folder.config()
    check_own(config, own, kinds)
    check_trust(config, trust_code)
    return folder, config


class Stored(NamedTuple):
    sequence: int  # of the first event that is not in it
    tree: dict[str, Any]
    server: ServerState


def newest(
    folder: RunFolder, rule: ServerRule, workload: Workload, warn: Callable[[str], None] = _log.warning
) -> Stored:
    """Each newer one that is damaged is named through `warn`, as are settings that may change and did."""
    sequence, tree = checkpoint.load_latest(folder.checkpoints, warn)
    check_agreement(folder, tree, warn)
    server = from_tree(tree["server"], rule)
    _check_fit(folder, server, workload.parameters, rule)
    return Stored(sequence, tree, server)


def check_size(folder: RunFolder, stored: int, parameters: int) -> None:
    """What no setting shows: own functions that were edited, or an environment that is another one now."""
    if stored != parameters:
        sizes = f"theta has {stored} parameters in its checkpoint, {parameters} as the run is set up now"
        raise ConfigError(f"run: {folder.path}: {sizes}; bring back the environment and policy it was made with")


def _check_fit(folder: RunFolder, server: ServerState, parameters: int, rule: ServerRule) -> None:
    check_size(folder, server.theta.size, parameters)
    stored = {"method": server.buffers, "aggregator": server.memory.arrays}
    for kind, names in buffer_names(rule, parameters).items():
        made, given = (", ".join(sorted(each)) or "nothing" for each in (stored[kind], names))
        if made != given:
            part = "rule" if kind == "method" else kind
            kept = f"the checkpoint's {part} remembers {made}, the one given {given}"
            raise ConfigError(f"{kind}: {folder.path}: {kept}; bring back the {part} it was made with")
