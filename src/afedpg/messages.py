"""What agents and the server say to each other. Nothing else crosses between them.

    Task   (server -> agent)   theta~ and the iteration it belongs to
    Report (agent -> server)   a contribution, most often a gradient of the expected return, and where it was taken

The server turns each event into new parameters: Join | Fetch | Report | Rejected | Leave | CloseRound | Restart |
Revoke.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]  # what the server computes with
Floats = NDArray[np.float32]  # what travels
AgentState = dict[str, NDArray[Any]]  # plain flat arrays: an agent that can move, die and come back
Occasion = Literal["evaluation", "second look", "verdict"]  # of an evaluation
OBSERVATIONS = "observations"  # the statistic by which observations are scaled


class TaskId(NamedTuple):
    """Names one hand-out for ever: version alone does not, two Tasks may carry the same one."""

    epoch: int  # how often the server was started
    counter: int


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations, of a report's own samples or of all merged."""

    count: float
    mean: Vector  # [quantities]
    m2: Vector  # [quantities]


Statistics = Mapping[str, Moments]  # by name: "observations", ...
_SINGLE = np.dtype(np.float32)
_NOTHING: Mapping[str, Any] = {}  # shared by what travels without moments, scalars or extras; nobody writes to it


class Group(NamedTuple):
    """A named part of theta, and what the server does with an agent's numbers for it.

    `step`: they are a direction, and the rule's step of it is added. `parameters`: they are the agent's own values, and
    the server moves towards them, theta_g += w (x - theta_g); so nobody need remember what was handed out.
    """

    name: str
    size: int
    kind: str = "step"  # or "parameters"
    longest: float = math.inf  # of a direction: no honest one is longer, and what is longer is shortened to it


class Scalar(NamedTuple):
    """A number that every report carries for the rule; one outside of its bounds is refused."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Contribution:
    """What an estimator makes of a rollout: a vector of theta's length, or one per group, and named numbers."""

    vector: Floats | Mapping[str, Floats]
    scalars: Mapping[str, float] = field(default_factory=dict)
    moments: Statistics = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)  # recorded, nothing more


class Task(NamedTuple):
    """Work for one agent. `theta` may be a view of the server's buffer: valid until the server's next step."""

    task_id: TaskId
    agent_id: int
    theta: Floats  # theta~, [parameters]
    version: int  # the iteration theta~ belongs to
    statistics: Statistics = _NOTHING


class Stats(NamedTuple):
    """What an agent tells of its rollout beside the gradient: recorded, counted as samples, and what `stop_at_return`
    looks at. Theta does not depend on it."""

    steps: int = 0
    returns: tuple[float, ...] = ()  # of the episodes that ended in this rollout
    lengths: tuple[int, ...] = ()
    extra: Mapping[str, float] = _NOTHING

    @property
    def mean_return(self) -> float | None:
        return sum(self.returns) / len(self.returns) if self.returns else None


class Report(NamedTuple):
    task_id: TaskId
    agent_id: int
    payload: NDArray[Any]  # the contribution as the codec encodes it; without one float32 [parameters], uphill
    version: int
    moments: Statistics = _NOTHING
    stats: Stats = Stats()
    scalars: Mapping[str, float] = _NOTHING


class Arrival(NamedTuple):
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
    samples: int  # environment steps behind everything so far, what was dropped included


@dataclass(frozen=True, slots=True)
class Join:
    agent_id: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """An agent that sampled with parameters of its own asks for the newest ones, to compute its contribution at."""

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
    """The server process was started again: whatever was handed out before is void, and so is an open round.

    Who took part then is waited for until it comes back or its Leave is journalled.
    """

    awaits: bool = True  # False in a journal of 0.1.0, whose rounds were closed by the first that came back


@dataclass(frozen=True, slots=True)
class Revoke:
    """An agent is no longer trusted: it leaves, and its observation moments are taken out of the statistics."""

    agent_id: int


Event = Join | Fetch | Report | Rejected | Leave | CloseRound | Restart | Revoke


class Unused(NamedTuple):
    """A report that was believed and not used."""

    agent_id: int
    reason: str


class Suspicion(NamedTuple):
    """How far an agent is from the others, 1 being usual."""

    agent_id: int
    value: float


class Outcome(NamedTuple):
    """What an event did."""

    tasks: list[Task]  # to send out
    arrivals: list[Arrival]  # contributions that went into a server step, a row each
    rejected: Rejected | None = None
    unused: Unused | None = None
    waits: int | None = None  # the agent whose contribution is kept, and who gets no Task before it is used
    suspicion: Suspicion | None = None  # of the agent whose report it was, where the aggregator judges


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


class Codec(Protocol):
    """How a contribution travels. What the encoder remembers is part of the agent's state; decoding needs no memory."""

    def start(self, size: int) -> AgentState:
        """What the encoder remembers, as it is at the start."""

    def encode(self, vector: Floats, state: AgentState) -> tuple[NDArray[Any], AgentState]:
        """The payload, one-dimensional and of float32 or uint8, and the arrays of the state that are new."""

    def decode(self, payload: NDArray[Any], size: int) -> Floats:
        """The vector of `size` numbers; a ValueError where the payload is none. It may come from a liar."""

    def nbytes(self, size: int) -> int:
        """Of a payload, nominally: what a timing model is told before there is one."""


@dataclass(frozen=True)
class Float32:
    """The numbers themselves."""

    def start(self, size: int) -> AgentState:
        return {}

    def encode(self, vector: Floats, state: AgentState) -> tuple[NDArray[Any], AgentState]:
        return vector, {}

    def decode(self, payload: NDArray[Any], size: int) -> Floats:
        if payload.shape != (size,):
            raise ValueError(f"{payload.size} numbers, theta has {size}")
        if payload.dtype != _SINGLE:
            raise ValueError(f"numbers of {payload.dtype}, not float32")
        return payload

    def nbytes(self, size: int) -> int:
        return 4 * size


@dataclass(frozen=True)
class Exchange:
    """What the agents of a run send: which parts theta has, which numbers come along, and how they are encoded."""

    groups: tuple[Group, ...] = ()  # none: theta is one group of steps
    scalars: tuple[Scalar, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)  # name -> quantities
    codec: Codec = Float32()
    late_fetch: bool = False  # agents sample first and ask for their Task then; a report is answered by nothing


class Workload(Protocol):
    """What the agents of a run do: a synthetic problem, or an environment with a policy.

    `work` depends on its two arguments alone and leaves both untouched, so an agent can be computed anywhere, ahead of
    time, and again.
    """

    @property
    def parameters(self) -> int:
        """Length of theta."""

    @property
    def exchange(self) -> Exchange:
        """What a report looks like."""

    @property
    def cost(self) -> float:
        """The share of t_i that one report takes: 1, or n/T where T steps are reported in segments of n."""

    @property
    def steps(self) -> int:
        """Environment steps (samples) one report takes, nominally."""

    def check(self) -> None:
        """What would otherwise be found in mid-run, as agents that do not fit together. Asked once, at the start."""

    def initial_theta(self) -> Vector: ...

    def start(self, agent_id: int) -> AgentState: ...

    def renew(self, state: AgentState, life: int) -> AgentState:
        """An older state to go on from, with streams that no earlier `life` drew from: samples must not count twice."""

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        """What an agent that fetches late does before it asks for a Task; `work` does it where it was not done."""

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]: ...

    def evaluate(
        self, theta: Floats, statistics: Statistics, iteration: int, occasion: Occasion = "evaluation"
    ) -> list[Evaluation]:
        """theta itself, on a stream of its own: the same iteration gives the same answer; training never notices.

        Another occasion has other episodes: "second look" at the best theta of a run, "verdict" for who asks after it.
        """

    def export(self, theta: Floats, statistics: Statistics) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """What policy.safetensors holds: named tensors, and what is needed to act with them."""
