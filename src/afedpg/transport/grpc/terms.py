"""What the server tells an agent about the algorithm, and what stays the agent's own.

The server's terms are numbers and names from a fixed list; they never name code, files or devices. The task, its
keyword arguments, the sampler, the code that computes and the device are the agent's own business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from afedpg import config as configuration
from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.transport.grpc.wire import Expected, Refused
from afedpg.validation import validate

TERMS = {entry.name: section for section, entry in configuration.options() if entry.metadata["term"]}
_STREAM = 1 << 64  # between the seeds of an agent's lives
_MOST_AGENTS = 1 << 20


def terms(config: Config) -> str:
    """As JSON with sorted keys: equal text means equal terms."""
    values = {name: getattr(getattr(config, section) if section else config, name) for name, section in TERMS.items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def agree(own: Config, text: str, agent_id: int, starts: int) -> Config:
    """The agent's own configuration under the server's terms.

    An agent that lost its state and starts again draws from another stream: the same samples twice are not new ones.
    """
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("settings: not JSON") from error
    if not isinstance(given, Mapping) or set(given) != set(TERMS):
        raise Refused("settings: not the ones of this version; use the server's version of afedpg")
    if not 0 <= agent_id < _MOST_AGENTS:
        raise Refused(f"agent: {agent_id}; numbers are below {_MOST_AGENTS}")
    try:
        config = configuration.from_settings(given, own)
        if config.seed >= _STREAM:
            raise Refused(f"settings: seed: {config.seed} is not below 2^64")
        agents = max(own.agents, agent_id + 1)  # as many as it knows of
        return validate(replace(config, agents=agents, seed=config.seed + starts * _STREAM))
    except (ConfigError, OverflowError) as error:
        line = str(error)[:200].encode("unicode_escape").decode()  # it quotes what the server sent
        raise Refused(f"settings: {line}") from error


def expected(workload: Workload) -> Expected:
    """What reports must look like, from one's own copy of the task."""
    exchange = workload.exchange
    scalars = frozenset(scalar.name for scalar in exchange.scalars)
    return Expected(workload.parameters, exchange.statistics, 2 * workload.steps, scalars)
