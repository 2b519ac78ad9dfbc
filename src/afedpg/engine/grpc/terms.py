"""What the server tells an agent about the algorithm, and what stays the agent's own.

The server's terms are numbers and names from a fixed list; they never name code, files or devices. The task, its
keyword arguments, the sampler and the device are the agent's own business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from afedpg import config as configuration
from afedpg.config import Config
from afedpg.engine.grpc.wire import Expected, Refused
from afedpg.errors import ConfigError
from afedpg.messages import Workload

RUN_TERMS = ("method", "seed", "dimension", "noise")
AGENT_TERMS = (
    "hidden", "log_std", "steps", "estimator", "gamma", "gae_lambda", "baseline", "baseline_hidden", "baseline_rate",
    "baseline_epochs", "scale_advantages", "scale_observations", "segment", "entropy", "value_weight",
)  # fmt: skip
_STREAM = 1 << 64  # between the seeds of an agent's lives
_MOST_AGENTS = 1 << 20
_LARGEST = {  # beyond what anybody trains with; an agent's machine must not be asked for more
    "seed": _STREAM - 1, "dimension": 1 << 28, "noise": 1e9, "log_std": 20.0, "steps": 1 << 24, "segment": 1 << 24,
    "baseline_rate": 1e3, "baseline_epochs": 10_000, "entropy": 1e6, "value_weight": 1e6,
}  # fmt: skip
_MOST_LAYERS, _WIDEST, _MOST_WEIGHTS = 32, 1 << 16, 1 << 28  # of `hidden` and `baseline_hidden`


def terms(config: Config) -> str:
    """As JSON with sorted keys: equal text means equal terms."""
    run = {name: getattr(config, name) for name in RUN_TERMS}
    agent = {name: getattr(config.agent, name) for name in AGENT_TERMS}
    return json.dumps({**run, **agent}, sort_keys=True, separators=(",", ":"))


def check_terms(config: Config) -> None:
    """Terms that an agent agrees to. The server asks first: what no agent agrees to need not be served."""
    values = {name: getattr(config, name) for name in RUN_TERMS} | {
        name: getattr(config.agent, name) for name in AGENT_TERMS
    }
    for name, largest in _LARGEST.items():
        if abs(values[name]) > largest:
            raise ConfigError(f"{name}: {values[name]} is more than agents agree to, {largest}")
    for name in ("hidden", "baseline_hidden"):
        widths = values[name]
        weights = sum(rows * columns for rows, columns in pairwise(widths))
        if len(widths) > _MOST_LAYERS or max(widths, default=0) > _WIDEST or weights > _MOST_WEIGHTS:
            most = f"{_MOST_LAYERS} layers, {_WIDEST} wide, {_MOST_WEIGHTS} weights"
            raise ConfigError(f"{name}: a larger network than agents agree to ({most})")


def agree(own: Config, text: str, agent_id: int, starts: int) -> Config:
    """The agent's own configuration under the server's terms.

    An agent that lost its state and starts again draws from another stream: the same samples twice are not new ones.
    """
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("settings: not JSON") from error
    if not isinstance(given, Mapping) or set(given) != {*RUN_TERMS, *AGENT_TERMS}:
        raise Refused("settings: not the ones of this version; use the server's version of afedpg")
    if not 0 <= agent_id < _MOST_AGENTS:
        raise Refused(f"agent: {agent_id}; numbers are below {_MOST_AGENTS}")
    try:
        config = configuration.from_settings(given, own)
        check_terms(config)
        agents = max(own.agents, agent_id + 1)  # as many as it knows of
        return configuration.validate(replace(config, agents=agents, seed=config.seed + starts * _STREAM))
    except (ConfigError, OverflowError) as error:
        line = str(error)[:200].encode("unicode_escape").decode()  # it quotes what the server sent
        raise Refused(f"settings: {line}") from error


def expected(config: Config, workload: Workload) -> Expected:
    """What reports must look like, from the server's own copy of the task."""
    size = observations(workload) if config.agent.scale_observations and not config.synthetic else None
    return Expected(workload.parameters, size, 2 * workload.steps)


def observations(workload: Workload) -> int | None:
    """Length of an observation, where the workload has any."""
    environments = getattr(workload, "environments", None)
    size: int | None = None if environments is None else environments.observations.size
    return size
