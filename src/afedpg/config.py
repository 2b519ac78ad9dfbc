"""Everything a run can be told: frozen, validated once, written to run.toml, and the command line's options.

A field's `help` is what `afedpg train --help` prints. Imports neither numpy nor torch: `--help` answers at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from afedpg.errors import ConfigError
from afedpg.options import coerce, hints_of
from afedpg.options import option as option

SHORT_NAMES = {
    "swimmer": "Swimmer-v4", "hopper": "Hopper-v4", "walker2d": "Walker2d-v4", "humanoid": "Humanoid-v4",
    "halfcheetah": "HalfCheetah-v4", "ant": "Ant-v4",
}  # fmt: skip
PROBLEMS = ("quadratic", "lq-bandit", "saturating-bandit", "softmax-mdp")
METHODS: dict[str, dict[str, Any]] = {  # with the settings that a method brings along
    "afedpg": {}, "afedpg-vanilla": {}, "fedpg": {}, "pg": {}, "pg-plain": {},
    "a3c": {"estimator": "a3c", "segment": 32, "eta": 7e-4},  # RMSProp's rate in Mnih et al. 2016
    "afedppo": {
        "estimator": "clipped", "schedule": "constant", "eta": 1.0, "steps": 0,
        "activation": "tanh", "mean": "linear", "scale_rewards": True, "scale_advantages": False,
    },
}  # fmt: skip
SINGLE_AGENT = ("pg", "pg-plain")  # baselines of one agent
ESTIMATORS = ("gae", "reinforce", "a3c", "clipped", "natural")
AGGREGATORS = (
    "each", "all", "rennala", "malenia", "fedbuff", "fedasync", "ringmaster", "newest", "clip-centred", "slots",
    "bounded",
)  # fmt: skip
CODECS = ("float32",)
ATTACKS = (
    "sign-flip", "scaled-sign-flip", "noise", "zeros", "copies", "poisoned-moments", "false-drift", "random-values",
    "reward-flip", "random-actions", "observation-noise", "alie", "ipm", "fedpg-attack", "largest-angle", "adaptive",
)  # fmt: skip
SCALINGS = ("shared", "local")
SITES = ("gravity", "friction", "wind", "length", "reward")
SCHEDULES = ("constant", "linear", "global", "fosp")
ENGINES = ("virtual", "local", "ray", "grpc")  # grpc is what `afedpg server` runs
TIMINGS = ("linear", "sqrt", "straggler", "leader", "equal", "list", "lognormal", "pareto", "trace")
TRANSFERS = ("equal", "sqrt", "linear")
SHORTEST_LEASE, LONGEST_LEASE = 0.5, 86400.0  # seconds; gRPC's timers hold 24 days
WIDEST = 1 << 16  # a hidden layer
LONGEST_SECONDS = (2**63 - 1) / 1e9  # virtual time is counted in nanoseconds of 63 bits: 292 years
STEPS_TOGETHER, SHORTEST_ROLLOUT = 1024, 16  # where T follows N: of all agents together, and of one at least
PATHS = {"from_run": "RUN", "trace": "FILE"}  # settings that name a place, and what lies there
SET_BY_RUNS = ("own", "extended")  # settings that nobody gives
OF_COMMANDS = ("seeds", "out", "preset", "workers", "json")  # options beside the settings
PARTS = (  # kind, and the section it is a setting of
    ("method", None), ("aggregator", None), ("codec", None), ("estimator", "agent"), ("timing", "timing"),
    ("attack", None), ("sites", "agent"),
)  # fmt: skip


@dataclass(frozen=True)
class ScheduleConfig:
    """alpha and eta over the run."""

    schedule: str = option("linear", "how alpha and eta change over the run", SCHEDULES)
    alpha: float = option(
        0.1, "the newest gradient's share of the running average (1 - momentum), in (0, 1]", above=0, at_most=1
    )
    eta: float = option(
        3e-2,
        "not a learning rate: every step moves theta by exactly eta (pg-plain: a learning rate; a3c: RMSProp's, 7e-4; "
        "afedppo: a factor of the agents' differences, 1); eta0 of the global and fosp schedules",
        above=0,
    )
    eta_floor: float = option(0.0, "where the linear schedule's eta stops falling", at_least=0)
    literal: bool = option(False, "index the decaying schedules as printed, without the clamp max(v, (k+1)//2)")
    literal_constants: bool = option(
        False, "steps of n contributions (fedpg: N) keep alpha and eta as given; else n times both, constant and linear"
    )


@dataclass(frozen=True)
class TimingConfig:
    """How many virtual seconds each agent takes for a gradient."""

    timing: str = option("linear", "how speeds differ between agents", parts=TIMINGS)
    fastest: float = option(1.0, "seconds per gradient of the fastest agent (the median for lognormal)", above=0)
    spread: float = option(4.0, "t_max / t_min of linear, straggler and leader", at_least=1)
    speeds: tuple[float, ...] = option((), "seconds per gradient of every agent, with --timing list", above=0)
    sigma: float = option(0.5, "lognormal: deviation of log seconds between agents", at_least=0)
    shape: float = option(2.0, "pareto: tail index of every single gradient's seconds; above 1", above=1)
    trace: str = option("", "trace: a CSV of agent,seconds rows, as recorded by a real run")
    silent: tuple[int, ...] = option((), "agents that never answer")
    late: dict[str, float] = option({}, "agents that join later, as AGENT=SECONDS")
    drop: dict[str, float] = option({}, "agents that leave, as AGENT=SECONDS")
    latency: float = option(0.0, "seconds that a message of the first agent takes, a Task or a report", at_least=0)
    bandwidth: float = option(0.0, "bytes per second of the first agent's messages; 0: any number at once", at_least=0)
    transfer: str = option("equal", "the i-th agent's messages take 1, sqrt(i) or i times the first one's", TRANSFERS)
    update_share: float = option(
        0.1, "estimators that fetch late: share of a gradient's seconds from fetch to report", at_least=0, at_most=1
    )


@dataclass(frozen=True)
class AgentConfig:
    """How an agent turns theta~ into a gradient, on a Gymnasium task."""

    hidden: tuple[int, ...] = option(
        (64, 64), "widths of the policy's hidden layers", at_least=1, at_most=WIDEST, term=True
    )
    activation: str = option("relu", "of the policy's hidden layers", ("relu", "tanh"), term=True)
    mean: str = option(
        "tanh", "the Gaussian policy's mean: tanh(MLP), within the action bounds, or MLP", ("tanh", "linear"), term=True
    )
    log_std: float = option(
        0.0, "the Gaussian policy's log standard deviation at the start", at_least=-20, at_most=20, term=True
    )
    steps: int = option(1024, "T, environment steps per gradient; 0: 1,024 / N", at_least=1, at_most=1 << 24, term=True)
    estimator: str = option("gae", "what an agent makes of its rollout", parts=ESTIMATORS, term=True)
    gamma: float = option(0.99, "discount, in (0, 1]", above=0, at_most=1, term=True)
    gae_lambda: float = option(0.95, "GAE's lambda, in [0, 1]", at_least=0, at_most=1, term=True)
    baseline: str = option("mlp", "local value estimate, never sent", ("linear", "mlp", "none"), term=True)
    baseline_hidden: tuple[int, ...] = option(
        (64, 64), "widths of the mlp baseline", at_least=1, at_most=WIDEST, term=True
    )
    baseline_rate: float = option(1e-3, "Adam's rate for the mlp baseline", above=0, at_most=1e3, term=True)
    baseline_epochs: int = option(
        2, "passes over a rollout per fit of the mlp baseline", at_least=1, at_most=10_000, term=True
    )
    scale_advantages: bool = option(True, "advantages to zero mean, unit deviation within a report", term=True)
    scale_observations: bool = option(True, "scale observations to zero mean and unit deviation", term=True)
    scaling: str = option("shared", "by whose statistics: the federation's, or an agent's own", SCALINGS, term=True)
    scale_rewards: bool = option(
        False, "divide rewards by the deviation of the discounted return, shared by the federation", term=True
    )
    sampler: str = option("auto", "rollout code", ("auto", "native", "gymnasium"))
    compute: str = option("auto", "code of gradient and critic", ("auto", "native", "torch"))
    horizon: int = option(
        0, "server steps over which an estimator's rates fall; 0: as many as the run has", at_least=0, term=True
    )
    device: str = option("cpu", "where gradient and critic are computed", ("cpu", "cuda"))
    segment: int = option(
        0, "environment steps per report, where T is reported in parts; 0: T", at_least=0, at_most=1 << 24, term=True
    )
    entropy: float = option(0.01, "a3c: weight of the entropy bonus", at_least=0, at_most=1e6, term=True)
    value_weight: float = option(0.5, "a3c: weight of the value loss", at_least=0, at_most=1e6, term=True)
    sites: str = option("", "how environments differ between agents", parts=SITES, term=True)
    env_kwargs: dict[str, Any] = option(
        {}, "keyword arguments of gymnasium.make, or a TOML file with a table per agent"
    )
    max_episode_steps: int = option(
        0, "an episode is truncated after so many steps; 0: the task's own limit", at_least=0, at_most=2**31, term=True
    )


@dataclass(frozen=True)
class RecordConfig:
    """What is kept of a run, and how often."""

    checkpoint_seconds: float = option(30.0, "real seconds between checkpoints", above=0)
    keep_checkpoints: int = option(2, "how many checkpoints stay", at_least=1)
    journal_mib: float = option(256.0, "MiB of journal after which a checkpoint is written early", above=0)
    keep_reports: bool = option(False, "keep every report of the run in the journal")
    evaluate_every: int = option(0, "evaluate theta every so many iterations per agent; 0 only at the end", at_least=0)
    evaluate_episodes: int = option(10, "episodes per evaluation", at_least=1)
    evaluate_kind: str = option("both", "how theta acts when evaluated", ("both", "sampled", "deterministic"))


@dataclass(frozen=True)
class NetworkConfig:
    """Agents in other processes: how long the server waits for them, and what it believes of a report."""

    lease: float = option(
        15.0, "seconds of silence after which an agent is dropped", at_least=SHORTEST_LEASE, at_most=LONGEST_LEASE
    )
    deadline: float | None = option(
        None, "fedpg: seconds after which a round closes; 0: never; without it, 10 times what the slowest answer took, "
        "and 60 s at least", at_least=0,
    )  # fmt: skip
    max_norm: float = option(1e9, "reports whose gradient is longer are refused", above=0)
    max_delay: int = option(0, "reports with a larger delay are refused; 0: none is", at_least=0)
    max_rate: float = option(1000.0, "reports per second an agent may send", above=0)
    max_share: float = option(
        1.0, "share of the applied gradients that one agent may make up, beyond its first ten", above=0, at_most=1
    )
    durable: bool = option(False, "a Task goes out only once the journal is on the disk: survives a power cut")


@dataclass(frozen=True)
class RayConfig:
    """With --engine ray: the cluster, and what an agent takes of it."""

    ray_address: str = option("", "the cluster to join, as auto or HOST:PORT; without it one starts on this machine")
    agent_cpus: float = option(1.0, "processors of the cluster each agent takes; a share packs more on one", above=0)
    agent_gpus: float = option(0.0, "GPUs of the cluster each agent takes, with --device cuda", at_least=0)


@dataclass(frozen=True)
class Config:
    task: str = option("", "a short name (hopper, halfcheetah, ...), a Gymnasium id or a synthetic problem")
    method: str = option("afedpg", "the algorithm: the server's rule", parts=tuple(METHODS))
    aggregator: str = option("", "when the server steps, and with which contributions; the method's", parts=AGGREGATORS)
    codec: str = option("float32", "how a contribution travels", parts=CODECS, term=True)
    attack: str = option("", "how the attackers lie, to see what the others stand", parts=ATTACKS)
    attackers: tuple[int, ...] = option((), "the agents that lie, with --attack")
    agents: int = option(8, "N, number of agents", at_least=1)
    iterations: int = option(
        100,
        "the run stops after agents x iterations gradients (a3c: times T/segment); fast agents contribute more",
        at_least=1,
    )
    seed: int = option(0, "seeds everything that is random", at_least=0, term=True)
    engine: str = option("virtual", "what decides when agents and server meet", ENGINES)
    dimension: int = option(10, "quadratic: number of parameters", at_least=1, at_most=1 << 28, term=True)
    batch: int = option(
        1, "synthetic problems: samples that one gradient is the mean of", at_least=1, at_most=1 << 20, term=True
    )
    noise: float = option(1.0, "quadratic: deviation of the gradient's noise", at_least=0, at_most=1e9, term=True)
    optima: tuple[float, ...] = option(
        (), "quadratic: the optima of agents 0, 1, ... in turn; without any, all have 1", at_least=-1e9, at_most=1e9,
        term=True,
    )  # fmt: skip
    from_run: str = option("", "start from the theta and the statistics of this run")
    stop_at_return: float | None = option(None, "end early once training's mean return stays at this")
    stop_at_evaluation: float | None = option(None, "end early once theta's last five evaluations have this mean")
    stop_at_seconds: float | None = option(None, "end early once the run's clock, virtual or real, is here", above=0)
    own: tuple[str, ...] = option((), "parts of the run that were given as Python functions; set by the Python API")
    extended: tuple[int, ...] = option((), "iterations and server step before each extension; set by `resume`")
    schedule: ScheduleConfig = ScheduleConfig()
    timing: TimingConfig = TimingConfig()
    agent: AgentConfig = AgentConfig()
    record: RecordConfig = RecordConfig()
    network: NetworkConfig = NetworkConfig()
    ray: RayConfig = RayConfig()

    @property
    def environment(self) -> str:
        """The Gymnasium id behind a short name."""
        return SHORT_NAMES.get(self.task, self.task)

    @property
    def synthetic(self) -> bool:
        return self.task in PROBLEMS

    @property
    def reports(self) -> int:
        """Reports that make up T steps: 1, or more where it is reported in segments."""
        return self.agent.steps // self.report_steps if not self.synthetic else 1

    @property
    def report_steps(self) -> int:
        """Environment steps of one report, nominally: T, a segment of it, or the draws of a synthetic problem."""
        return self.batch if self.synthetic else self.agent.segment or self.agent.steps

    @property
    def gradients(self) -> int:
        """Total contributions to apply."""
        return self.iterations * self.agents * self.reports

    def to_dict(self) -> dict[str, Any]:
        """Without the settings that are None: TOML has no word for it."""
        return {
            name: _without_none(value) if name in SECTIONS else value
            for name, value in _without_none(dataclasses.asdict(self)).items()
        }


SECTIONS = {
    "schedule": ScheduleConfig, "timing": TimingConfig, "agent": AgentConfig, "record": RecordConfig,
    "network": NetworkConfig, "ray": RayConfig,
}  # fmt: skip


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


LIVE = ("local", "ray", "grpc")
USED_BY = {  # settings that mean something to some engines alone
    **dict.fromkeys((entry.name for entry in fields(TimingConfig)), ("virtual",)),
    **dict.fromkeys(("attack", "attackers"), ("virtual", "local", "ray")),  # of grpc, `afedpg agent --attack`
    "deadline": LIVE, "durable": LIVE, "lease": ("local", "grpc"), "max_rate": ("local", "grpc"),
    **dict.fromkeys((entry.name for entry in fields(RayConfig)), ("ray",)),
}  # fmt: skip


def applies_to(engine: str, name: str) -> bool:
    return engine in USED_BY.get(name, ENGINES)


def options() -> Iterator[tuple[str | None, dataclasses.Field[Any]]]:
    """Every setting as (section, field); names are unique across sections, so the command line needs no prefixes."""
    for entry in fields(Config):
        if entry.name not in SECTIONS:
            yield None, entry
    for section, kind in SECTIONS.items():
        for entry in fields(kind):
            yield section, entry


def hint_of(section: str | None, name: str) -> Any:
    return hints_of(SECTIONS[section] if section else Config)[name]


def from_settings(settings: Mapping[str, Any], base: Config = Config()) -> Config:
    """`base` with flat settings laid over it: {"agents": 4, "alpha": 0.1}."""
    homes = {entry.name: section for section, entry in options()}
    for name in settings:
        if name not in homes:
            raise ConfigError(f"{name}: {_why_no_setting(name.replace('-', '_'), homes)}")
    config = base
    settings = {**METHODS.get(str(settings.get("method", "")), {}), **settings}
    for section in (None, *SECTIONS):
        mine = {name: value for name, value in settings.items() if homes[name] == section}
        if section is None:
            config = replace(config, **coerce(Config, mine))
        else:
            part = getattr(config, section)
            config = replace(config, **{section: replace(part, **coerce(type(part), mine))})
    return config


def _why_no_setting(name: str, known: Collection[str]) -> str:
    if name in known:
        return f"no such setting; it is written {name}"
    if name in OF_COMMANDS:
        return "no setting of a run, which would keep it, but an argument of the command or function that trains"
    return "no such setting; `afedpg train --help` lists them"


def resolved(config: Config) -> Config:
    """With the setting that follows from others: T from N where it is 0."""
    steps = config.agent.steps or max(SHORTEST_ROLLOUT, STEPS_TOGETHER // max(1, config.agents))
    return replace(config, agent=replace(config.agent, steps=steps))


def absolute_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Paths from the root on: run.toml must mean the same wherever the run is resumed from."""
    places = {name: value for name, value in settings.items() if name in PATHS and isinstance(value, (str, Path))}
    return {**settings, **{name: str(Path(place).absolute()) for name, place in places.items() if place}}


def from_dict(document: Mapping[str, Any]) -> Config:
    """The inverse of `Config.to_dict`, as read from run.toml."""
    return from_settings(flat(document))


def flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without their sections."""
    settings: dict[str, Any] = {}
    for name, value in document.items():
        settings |= value if name in SECTIONS and isinstance(value, Mapping) else {name: value}
    return settings
