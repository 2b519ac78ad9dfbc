"""What agents and the server say to each other. Nothing else crosses between them.

    Task   (server -> agent)   theta~ and the iteration it belongs to
    Report (agent -> server)   a gradient of the expected return, uphill, and where it was taken

The server is a fold over events: Join | Report | Rejected | Leave | CloseRound | Restart | Revoke.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # what the server computes with
Floats = NDArray[np.float32]  # what travels
AgentState = dict[str, NDArray[Any]]  # plain flat arrays: an agent that can move, die and come back


class TaskId(NamedTuple):
    """Names one hand-out for ever: version alone does not, two Tasks may carry the same one."""

    epoch: int  # how often the server was started
    counter: int


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations of observations; of a report's own ones, or of all merged."""

    count: float
    mean: Vector  # [obs]
    m2: Vector  # [obs]


@dataclass(frozen=True, slots=True)
class Task:
    """Work for one agent. `theta` may be a view of the server's buffer: valid until the server's next step."""

    task_id: TaskId
    agent_id: int
    theta: Floats  # theta~, [parameters]
    version: int  # the iteration theta~ belongs to
    statistics: Moments | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """What an agent tells of its rollout beside the gradient: recorded, counted as samples, and what `stop_at_return`
    looks at. Theta does not depend on it."""

    steps: int = 0
    returns: tuple[float, ...] = ()  # of the episodes that ended in this rollout
    lengths: tuple[int, ...] = ()
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def mean_return(self) -> float | None:
        return sum(self.returns) / len(self.returns) if self.returns else None


@dataclass(frozen=True, slots=True)
class Report:
    task_id: TaskId
    agent_id: int
    gradient: Floats  # [parameters], points uphill
    version: int
    moments: Moments | None = None
    stats: Stats = Stats()


@dataclass(frozen=True, slots=True)
class Arrival:
    """One applied gradient, as it is recorded."""

    gradient: int  # how many have been applied, this one included
    iteration: int  # k, the server step it went into
    agent: int
    task_id: TaskId
    version: int
    delay: int  # iteration - version
    alpha: float | None  # None where the method has none
    eta: float
    gradient_norm: float
    step_length: float
    lookahead_length: float
    stats: Stats
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True)
class Join:
    agent_id: int


@dataclass(frozen=True, slots=True)
class Leave:
    agent_id: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """A report that was refused, without its payload: the agent gets fresh parameters."""

    agent_id: int
    reason: str
    void: bool = False  # it answered no outstanding Task: the agent has other work and gets nothing


@dataclass(frozen=True, slots=True)
class CloseRound:
    """The deadline of a synchronous round: the server steps with the gradients it has."""


@dataclass(frozen=True, slots=True)
class Restart:
    """The server process was started again: whatever was handed out before is void, and so is an open round."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """An agent is no longer trusted: it leaves, and its observation moments are taken out of the statistics."""

    agent_id: int


Event = Join | Report | Rejected | Leave | CloseRound | Restart | Revoke


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good theta is, measured apart from training: `mean` with its 95% interval."""

    kind: str  # "exact", "sampled" or "deterministic"
    mean: float
    std: float = 0.0
    low: float | None = None  # None where there is no saying, as of one episode
    high: float | None = None
    episodes: int = 0
    environment: str = ""  # which agent's, where they differ


class Workload(Protocol):
    """What the agents of a run do: a synthetic problem, or an environment with a policy.

    `work` depends on its two arguments alone and leaves both untouched, so an agent can be computed anywhere, ahead of
    time, and again.
    """

    @property
    def parameters(self) -> int:
        """Length of theta."""

    @property
    def cost(self) -> float:
        """The share of t_i that one report takes: 1, or n/T for a3c's short segments."""

    @property
    def steps(self) -> int:
        """Environment steps (samples) one report takes, nominally."""

    def check(self) -> None:
        """What would otherwise be found in mid-run, as agents that do not fit together. Asked once, at the start."""

    def initial_theta(self) -> Vector: ...

    def start(self, agent_id: int) -> AgentState: ...

    def renew(self, state: AgentState, life: int) -> AgentState:
        """An older state to go on from, with streams that no earlier `life` drew from: samples must not count twice."""

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]: ...

    def evaluate(
        self, theta: Floats, statistics: Moments | None, iteration: int, fresh: bool = False
    ) -> list[Evaluation]:
        """theta itself, on a stream of its own: the same iteration gives the same answer; training never notices.

        `fresh`: on another stream, for who asks after the run; no evaluation of the run itself draws from it.
        """

    def export(self, theta: Floats, statistics: Moments | None) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """What policy.safetensors holds: named tensors, and what is needed to act with them."""
