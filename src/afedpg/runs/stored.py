"""The newest whole checkpoint of a run, once it is known that this run can go on from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.record import checkpoint
from afedpg.record.agreement import check_agreement
from afedpg.record.folder import RunFolder
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState, buffer_names, from_tree

_log = logging.getLogger("afedpg")


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
    names = {*server.buffers, *server.memory.arrays}, buffer_names(rule, parameters)
    made, given = (", ".join(sorted(each)) or "nothing" for each in names)
    if made != given:
        kept = f"the checkpoint's rule remembers {made}, the one given {given}"
        raise ConfigError(f"method: {folder.path}: {kept}; bring back the rule it was made with")
