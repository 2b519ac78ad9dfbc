"""What the policies of a run are, apart from their theta."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from afedpg.export.policy_file import PolicyFile, contents
from afedpg.messages import OBSERVATIONS, Floats, Statistics

if TYPE_CHECKING:
    from afedpg.policy.own import MakePolicy


@dataclass(frozen=True)
class Exporter:
    """Makes policy files, without the environments and the compiled code of a workload: it can be pickled."""

    file: PolicyFile  # its theta and statistics are replaced
    scaled: bool  # observations are, by shared statistics
    make_policy: MakePolicy | None

    def export(self, theta: Floats, statistics: Statistics) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        seen = statistics.get(OBSERVATIONS) if self.scaled else None
        return contents(replace(self.file, theta=theta[: self.file.layout.size], statistics=seen))
