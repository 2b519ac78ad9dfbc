"""Whether every setting makes sense, alone and with the others; a ConfigError that names the field if not."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection
from itertools import pairwise
from typing import Any

from afedpg.config import (
    LIVE,
    LONGEST_SECONDS,
    METHODS,
    PROBLEMS,
    SINGLE_AGENT,
    TIMINGS,
    USED_BY,
    AgentConfig,
    Config,
    applies_to,
    options,
)
from afedpg.errors import ConfigError
from afedpg.options import default_of, digits

READ_BY: dict[str, dict[str, tuple[str, ...]]] = {  # settings that some choices alone read
    "timing": {
        "trace": ("trace",), "sigma": ("lognormal",), "shape": ("pareto",), "spread": ("linear", "straggler", "leader"),
        "fastest": ("linear", "sqrt", "straggler", "leader", "equal", "lognormal", "pareto"),
    },
    "schedule": {"eta_floor": ("linear",), "literal": ("global", "fosp")},
    "task": {"noise": ("quadratic",), "dimension": ("quadratic",), "batch": PROBLEMS},
    "estimator": {  # one's own may read any
        "entropy": ("a3c",), "value_weight": ("a3c",), "update_share": ("clipped",), "horizon": ("clipped",),
        "gae_lambda": ("gae", "natural", "clipped"),
        **dict.fromkeys(("baseline", "baseline_rate", "baseline_epochs"), ("gae", "natural")),
    },
}  # fmt: skip
OF_ROLLOUTS = ("entropy", "value_weight", "update_share", "horizon", "env_kwargs", "device")  # no problem reads them
ASK_NOTHING = ("eta_floor", "literal", "horizon", "env_kwargs", "device")  # by their defaults, which may be named
_BY_ITSELF = "draws its gradients itself; leave it out, or name a task"  # of a synthetic problem
SLOWEST = 1e-3  # bytes per second that messages can have in virtual time
MOST_LAYERS, MOST_WEIGHTS = 32, 1 << 28  # of a network's hidden layers: an agent's machine must not be asked for more


def validate(config: Config) -> Config:
    """The config itself if every setting makes sense; a ConfigError that names the field if not."""
    for section, entry in options():
        part = config if section is None else getattr(config, section)
        check_entry(entry, getattr(part, entry.name))
    _check_layers("hidden", config.agent.hidden)
    _check_layers("baseline_hidden", config.agent.baseline_hidden)
    _check_run(config)
    _check_timing(config)
    _check_attack(config)
    _check_ray(config)
    return config


def check_applicable(config: Config) -> Config:
    """The config itself if its engine reads all that was set. Apart from `validate`: a stored run opens as it is."""
    own = {name.partition(":")[0] for name in config.own}
    for section, entry in options():
        value = getattr(config if section is None else getattr(config, section), entry.name)
        given = value != default_of(entry) or entry.name in own
        engines = " or ".join(
            "`afedpg server`" if engine == "grpc" else f"--engine {engine}" for engine in USED_BY.get(entry.name, ())
        )
        _require(not given or applies_to(config.engine, entry.name), f"{entry.name}: only used with {engines}")
    usual = METHODS.get(config.method, {}).get("estimator", AgentConfig.estimator)
    ignored = config.synthetic and ("estimator" in own or config.agent.estimator != usual)
    _require(not ignored, f"estimator: {config.task} {_BY_ITSELF}")
    return config


def check_effect(config: Config, named: Collection[str]) -> Config:
    """The config itself if something reads what a user named. Apart again: presets may carry more than a run reads."""
    own = {entry.partition(":")[0] for entry in config.own}
    for section, entry in options():
        name, value = entry.name, getattr(config if section is None else getattr(config, section), entry.name)
        if name in named and not (name in ASK_NOTHING and value == default_of(entry)):
            _require(not config.synthetic or name not in OF_ROLLOUTS, f"{name}: {config.task} {_BY_ITSELF}")
            _check_read(config, own, name, value)
    mixes = config.method != "afedppo" or "method" in own
    _require(mixes or "alpha" not in {*named, *own}, "alpha: afedppo mixes nothing, so it has none; leave it out")
    return config


def _check_read(config: Config, own: Collection[str], name: str, value: Any) -> None:
    kind = next((kind for kind, names in READ_BY.items() if name in names), "")
    if not kind or (kind == "estimator" and (config.synthetic or "estimator" in own)):
        return
    parts = {
        "timing": config.timing.timing if "timing" not in own else "one of its own", "task": config.task,
        "schedule": config.schedule.schedule, "estimator": config.agent.estimator,
    }  # fmt: skip
    file, chosen = ".py:" in parts[kind], parts[kind].partition(":")[0]
    ways = (*READ_BY[kind][name], *((f"clipped:entropy={value:g}",) if name == "entropy" else ()))
    reads = chosen in READ_BY[kind][name] or (file and kind == "estimator")
    where = "" if kind == "task" else f"--{kind} "
    _require(reads, f"{name}: only used with {where}{' or '.join(ways)}; this run has {chosen}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def check_entry(entry: dataclasses.Field[Any], value: Any) -> None:
    choices, parts = entry.metadata["choices"], entry.metadata["parts"]
    if parts and value:
        name = str(value).partition(":")[0]
        known = name in parts or ".py:" in str(value)
        _require(known, f"{entry.name}: unknown '{value}'; choose from {', '.join(parts)}, or give FILE.py:NAME")
    _require(not choices or value in choices, f"{entry.name}: unknown '{value}'; choose from {', '.join(choices)}")
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            _require(math.isfinite(number), f"{entry.name}: {number} is not a finite number")
            _check_bounds(entry, number)


def _check_bounds(entry: dataclasses.Field[Any], number: float) -> None:
    above, at_least, at_most = (entry.metadata[name] for name in ("above", "at_least", "at_most"))
    inside = (above is None or number > above) and (at_least is None or number >= at_least)
    if inside and (at_most is None or number <= at_most):
        return
    if at_most is not None:
        low = f"({above}" if above is not None else f"[{at_least}"
        raise ConfigError(f"{entry.name}: {number} is outside {low}, {at_most}]")
    if above is not None:
        raise ConfigError(f"{entry.name}: {number} must be above {above}")
    negative = f"{number} is negative" if at_least == 0 else f"{number}; at least {at_least} is needed"
    raise ConfigError(f"{entry.name}: {negative}")


def _check_run(config: Config) -> None:
    schedule = config.schedule
    told = config.engine in LIVE and config.seed >= 1 << 64  # agents that start again add multiples of it
    _require(not told, f"seed: {config.seed}; agents take seeds below 2^64")
    _require(len(config.extended) % 2 == 0, "extended: pairs of iterations and a server step; only `resume` sets it")
    _require(bool(config.task), "task: name one, for example swimmer, CartPole-v1 or quadratic")
    segment, steps = config.agent.segment, config.agent.steps
    if segment and not config.synthetic:
        _require(steps % segment == 0, f"segment: T = {steps} steps are not a whole number of segments of {segment}")
    _require(not config.optima or config.task == "quadratic", "optima: only used with quadratic")
    share, agents = config.network.max_share, config.agents
    reachable = share <= 0 or share * agents >= 1
    _require(reachable, f"max_share: {share} of the gradients each, by {agents} agents: the run could not end")
    floor = schedule.eta_floor
    _require(floor <= schedule.eta, f"eta_floor: {floor} is outside [0, eta = {schedule.eta}]")
    single = config.method in SINGLE_AGENT and config.agents > 1
    _require(not single, f"agents: {config.method} is the single-agent baseline; use --agents 1")
    record = config.record
    judged = config.stop_at_evaluation is None or record.evaluate_every > 0
    _require(judged, "stop_at_evaluation: theta is evaluated at the end alone; set evaluate_every too")


def _check_timing(config: Config) -> None:
    timing = config.timing
    name, colon, _ = timing.timing.partition(":")
    _require(name not in TIMINGS or not colon, f"timing: {name} has no parameters; it reads settings, see `--help`")
    if timing.timing == "list" or timing.speeds:
        _require(timing.timing == "list", "speeds: only used with --timing list")
        fits = len(timing.speeds) == config.agents
        _require(fits, f"speeds: {len(timing.speeds)} given for {config.agents} agents; give one per agent")
    times = {
        "fastest": timing.fastest,
        "spread": timing.fastest * timing.spread,
        "speeds": max(timing.speeds, default=0),
    }
    for name, seconds in times.items():
        lasts = "seconds per gradient; virtual time ends after 292 years"
        _require(seconds < LONGEST_SECONDS, f"{name}: {seconds:g} {lasts}")
    slow = 0 < timing.bandwidth < SLOWEST
    _require(not slow, f"bandwidth: {timing.bandwidth:g}; at least {SLOWEST:g} bytes per second, or 0 for any number")
    costs = timing.latency > 0 or timing.bandwidth > 0
    _require(costs or timing.transfer == "equal", "transfer: only used with --latency or --bandwidth")
    _require(
        timing.latency < LONGEST_SECONDS, f"latency: {timing.latency:g} seconds; virtual time ends after 292 years"
    )
    _require(timing.timing != "trace" or bool(timing.trace), "trace: name the CSV file to play back")
    named = {
        "silent": {str(agent): 0.0 for agent in timing.silent},
        "late": timing.late,
        "drop": timing.drop,
    }
    _check_once("silent", timing.silent)
    for name, agents in named.items():
        for agent, seconds in agents.items():
            check_agent(name, agent, config.agents)
            possible = 0 <= seconds < LONGEST_SECONDS
            _require(possible, f"{name}: {seconds} seconds; must be a time within 292 years, and not negative")
    for agent, seconds in timing.drop.items():
        _require(seconds > timing.late.get(agent, 0.0), f"drop: agent {agent} would leave before it has joined")
    working = config.agents - len(set(timing.silent) | {int(agent) for agent in timing.drop})
    _require(len(set(timing.silent)) < config.agents, "silent: every agent is silent; nothing would ever arrive")
    _require(working > 0, "drop: every agent that answers leaves; the run could not end")


def check_agent(setting: str, name: str, agents: int) -> None:
    number = agent_number(name)
    known = number is not None and number < agents
    _require(known, f"{setting}: there is no agent {name:.32}; agents are 0 to {agents - 1}")


def agent_number(name: str) -> int | None:
    """None unless it is written as `str` writes it, by which its settings are found: 03 would be nobody's."""
    number = digits(name)
    return number if str(number) == name else None


def _check_once(name: str, agents: tuple[int, ...]) -> None:
    for agent, count in Counter(agents).items():
        _require(count == 1, f"{name}: agent {agent} is named {count} times; once is enough")


def _check_attack(config: Config) -> None:
    liars = set(config.attackers)
    _require(bool(config.attack) == bool(liars), "attack: say how with --attack NAME and who with --attackers 2,5")
    for agent in config.attackers:
        check_agent("attackers", str(agent), config.agents)
    _check_once("attackers", config.attackers)
    _require(len(liars) < config.agents, "attackers: every agent lies; there is nothing to see")


def _check_ray(config: Config) -> None:
    address, takes = config.ray.ray_address, {"agent_cpus": config.ray.agent_cpus, "agent_gpus": config.ray.agent_gpus}
    remote = "://" in address
    _require(not remote, f"ray_address: {address}; run this on a machine of the cluster, with --ray-address auto")
    for name, amount in takes.items():
        whole = 0 <= amount <= 1 or amount == int(amount) > 0
        _require(whole, f"{name}: {amount}; a share of one, or whole ones")
    lent = config.engine != "ray" or config.agent.device != "cuda" or config.ray.agent_gpus > 0
    _require(lent, "agent_gpus: with --device cuda every agent needs a share of a GPU, for example --agent-gpus 0.1")


def _check_layers(name: str, widths: tuple[int, ...]) -> None:
    weights = sum(rows * columns for rows, columns in pairwise(widths))
    fits = len(widths) <= MOST_LAYERS and weights <= MOST_WEIGHTS
    _require(fits, f"{name}: at most {MOST_LAYERS} layers and {MOST_WEIGHTS} weights are possible")
