"""Reapplies every recorded gradient and checks that the parameters are identical, or computes a virtual run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from afedpg.errors import AfedpgError, ConfigError
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.disk import to_copy
from afedpg.record.journal import read
from afedpg.runs.parts import Own, parts_of, start_state
from afedpg.runs.stored import newest, open_checked
from afedpg.runs.train import run
from afedpg.server.admission import Limits
from afedpg.server.fold import step
from afedpg.server.state import from_tree


@dataclass(frozen=True)
class Comparison:
    """Two thetas that must be one."""

    events: int  # of the journal that were applied again; 0 where the run was recomputed
    gradients: int
    recorded: str  # SHA-256 of theta in the newest checkpoint
    replayed: str

    @property
    def agrees(self) -> bool:
        return self.recorded == self.replayed


def replay(path: str | Path, own: Own = Own(), trust_code: bool = False) -> Comparison:
    """Reapplies every recorded gradient, up to the newest checkpoint, and compares the parameters.

        assert replay("runs/pole").agrees

    It begins with the run where the journal is kept whole (keep_reports), otherwise at the oldest checkpoint.

    Args:
        path: the run folder.
        own: the parts of your own that the run was made with.
        trust_code: import the module of its task MODULE:ID, though you have not run it before.
    """
    folder, config = open_checked(path, own, trust_code)
    if not folder.journal.is_dir():  # as `reproduce` leaves its finished runs
        how = f"; `{to_copy('replay', folder.path, '--recompute')}` computes them again"
        again = how if config.engine == "virtual" else ""
        raise AfedpgError(f"{path}: its events are not kept{again}")
    workload, rule = parts_of(config, own)
    last, _, recorded = newest(folder, rule, workload)
    limits = Limits.of(config)
    if _begins_at_zero(folder):
        oldest, server = 0, start_state(config, rule, workload, folder)
    else:
        oldest = checkpoint.names(folder.checkpoints)[0]
        server = from_tree(checkpoint.load(folder.checkpoints, oldest)["server"], rule)
    events = 0
    for sequence, _, event in read(folder.journal, oldest):
        if sequence == last:
            break
        server, _ = step(rule, server, event, limits)
        events += 1
    if events < last - oldest:
        raise AfedpgError(f"{folder.journal} ends after event {oldest + events - 1}, the checkpoint stands at {last}")
    return Comparison(events, server.gradients, _sha(recorded.theta), _sha(server.theta))


def recompute(path: str | Path, own: Own = Own(), workers: int | None = None, trust_code: bool = False) -> Comparison:
    """Computes a run in virtual time again, agents included, up to the newest checkpoint, and compares the parameters.

        assert recompute("runs/pole").agrees

    Args:
        path: the run folder.
        own: the parts of your own that the run was made with.
        workers: as of `train`.
        trust_code: import the module of its task MODULE:ID, though you have not run it before.
    """
    folder, config = open_checked(path, own, trust_code)
    if config.engine != "virtual":
        raise ConfigError(
            f"engine: a run of the {config.engine} engine cannot be recomputed; replay without --recompute"
        )
    workload, rule = parts_of(config, own)
    recorded = newest(folder, rule, workload).server
    start_state(config, rule, workload, folder)  # refused here where another run's theta is gone that it began with
    result = run(config, own, None, workers, until=rule.spent(recorded.gradients, recorded.unused))
    return Comparison(0, result.gradients, _sha(recorded.theta), result.sha256)


_sha = checkpoint.theta_sha256


def _begins_at_zero(folder: folders.RunFolder) -> bool:
    try:
        next(read(folder.journal, 0), None)
    except AfedpgError:
        return False
    return True
