"""theta as it was evaluated, and the best of a run's evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from afedpg.config import Config
from afedpg.export.policy_file import Origin
from afedpg.messages import Evaluation, Floats, Statistics, Workload
from afedpg.record.database import evaluation_of, read_evaluations
from afedpg.server.state import ServerState, local_statistics, statistics_from_tree, statistics_to_tree


@dataclass(frozen=True, eq=False)
class Evaluated:
    """theta at one moment of a run, and how good it was there.

    Attributes:
        theta: the parameters as they are delivered, in float32.
        statistics: by which observations were scaled then.
        iteration: server steps so far.
        gradients: applied so far.
        samples: environment steps so far.
        seconds: of the run's clock.
        evaluations: one for each kind of acting, in each environment that differs.
        again: the same on other episodes, made at the end of the run: the best of several evaluations is better than
            its theta, because luck is chosen as well.
    """

    theta: Floats
    statistics: Statistics
    iteration: int
    gradients: int
    samples: int
    seconds: float
    evaluations: tuple[Evaluation, ...] = ()
    again: tuple[Evaluation, ...] = ()

    @property
    def acting(self) -> str:
        """The kind of acting that did better; deterministic where there is no difference."""
        kinds = sorted({evaluation.kind for evaluation in self.evaluations}, key=lambda kind: kind != "deterministic")
        return max(kinds, key=lambda kind: _mean(self.evaluations, kind), default="deterministic")

    @property
    def mean(self) -> float:
        """The mean return of that kind over all environments, by which evaluations are compared; -inf if infinite."""
        return _mean(self.evaluations, self.acting)

    def __repr__(self) -> str:
        return f"Evaluated(iteration {self.iteration}, {self.acting} {self.mean:.6g})"

    def origin(self, which: str, of: int) -> Origin:
        return Origin(which, self.acting, self.iteration, of, self.evaluations, self.again)

    def export(self, workload: Workload, which: str, of: int) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """What its policy file holds; `of` evaluations this is one."""
        arrays, metadata = workload.export(self.theta, self.statistics)
        return arrays, metadata | self.origin(which, of).to_metadata()

    def to_tree(self) -> dict[str, Any]:
        told = {"evaluations": self.evaluations, "again": self.again}
        return {
            **{name: getattr(self, name) for name in ("theta", "iteration", "gradients", "samples", "seconds")},
            "statistics": statistics_to_tree(self.statistics),
            **{name: [asdict(entry) for entry in entries] for name, entries in told.items()},
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Evaluated:
        told = {name: tuple(Evaluation(**entry) for entry in tree[name]) for name in ("evaluations", "again")}
        return cls(**{**tree, "statistics": statistics_from_tree(tree["statistics"]), **told})


def scaled_by(config: Config, server: ServerState) -> Statistics:
    """What an evaluation of the server's theta scales by."""
    return local_statistics(server) if config.agent.scaling == "local" else server.statistics


def _mean(evaluations: Sequence[Evaluation], kind: str) -> float:
    means = [evaluation.mean for evaluation in evaluations if evaluation.kind == kind]
    return math.fsum(means) / len(means) if means and all(map(math.isfinite, means)) else -math.inf


def best_in(tree: Mapping[str, Any]) -> Evaluated | None:
    """Of a checkpoint."""
    return Evaluated.from_tree(tree["best"]) if tree.get("best") else None


def later_evaluations(database: Path, gradients: int) -> list[Evaluated]:
    """Those that run.db tells of since a checkpoint, in their order and without their theta."""
    rows = read_evaluations(database)
    found: dict[int, Evaluated] = {}
    for row in np.flatnonzero(rows["gradients"] > gradients):
        at, told = int(rows["gradients"][row]), evaluation_of(rows, int(row))
        where = (int(rows["iteration"][row]), at, int(rows["samples"][row]), float(rows["seconds"][row]))
        before = found.get(at) or Evaluated(np.empty(0, np.float32), {}, *where)
        found[at] = replace(before, evaluations=(*before.evaluations, told))
    return list(found.values())


def better(best: Evaluated | None, new: Evaluated) -> Evaluated | None:
    """Of two that are equally good, the later one."""
    if new.mean == -math.inf or (best is not None and best.mean > new.mean):
        return best
    return new
