"""What the server tells an agent about the algorithm, and what stays the agent's own.

The server's terms are numbers and names from a fixed list; they never name code, files or devices. The task, its
keyword arguments, the sampler, the code that computes and the device are the agent's own business. An estimator, a
codec or sites that do not ship are given on both sides: the terms have the name and the values, and the agent compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from afedpg import config as configuration
from afedpg.config import Config
from afedpg.engine.workloads import CODECS, BuildWorkload
from afedpg.errors import ConfigError
from afedpg.identity import identity
from afedpg.messages import Workload
from afedpg.parts import build as make_part
from afedpg.parts import chosen, parse
from afedpg.server.schedules import server_steps
from afedpg.transport.grpc.wire import Expected, Refused
from afedpg.validation import validate

TERMS = {entry.name: section for section, entry in configuration.options() if entry.metadata["term"]}
_STREAM = 1 << 64  # between the seeds of an agent's lives
_MOST_AGENTS = 1 << 20
_CUSTOM = "custom:"


def terms(config: Config, contributions: int = 1, custom: Mapping[str, str] = MappingProxyType({})) -> str:
    """As JSON with sorted keys: equal text means equal terms. Server steps are made of so many contributions;
    `custom`: see `custom_parts`.
    """
    values = {name: getattr(getattr(config, section) if section else config, name) for name, section in TERMS.items()}
    if not config.synthetic:  # agents with an estimator, which do not know how long the run is
        values["horizon"] = config.agent.horizon or server_steps(config, contributions)
    values |= {kind: f"{_CUSTOM}{name}" for kind, name in custom.items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def custom_parts(build: BuildWorkload) -> dict[str, str]:
    """Estimator, codec and sites that do not ship, by kind: a qualified name and the values it carries."""
    found: dict[str, str] = {}
    for kind in _SHIPPED:
        part, text = getattr(build, kind), chosen(build.config).get(kind, "")
        if part is None and text and parse(kind, text).file:
            part = make_part(kind, text, {})
        if part is not None:
            found[kind] = identity(part).text
    return found


def _agree_on_parts(own: Config, given: Mapping[str, Any], custom: Mapping[str, str]) -> dict[str, str]:
    """The agent's own text for each part, once it is seen to be the federation's."""
    agreed: dict[str, str] = {}
    for kind, shipped in _SHIPPED.items():
        text = given[kind]
        if not isinstance(text, str):
            raise Refused(f"settings: {kind}: no text")
        if text.startswith(_CUSTOM) or kind in custom:
            mine = f"{_CUSTOM}{custom[kind]}" if kind in custom else chosen(own).get(kind, "none")
            if mine != text:
                theirs = text.removeprefix(_CUSTOM)
                raise Refused(
                    f"settings: {kind}: the federation has {theirs or 'none'}, this agent {mine.removeprefix(_CUSTOM)}"
                )
            agreed[kind] = chosen(own).get(kind, "")
            continue
        if not text and kind == "sites":
            agreed[kind] = ""
            continue
        if parse(kind, text).file:
            raise Refused(f"settings: {kind}: a server names no file")
        make_part(kind, text, shipped())
        agreed[kind] = text
    return agreed


def _estimators() -> Mapping[str, Any]:
    from afedpg.agent.estimators.shipped import SHIPPED

    return SHIPPED


def _families() -> Mapping[str, Any]:
    from afedpg.sampling.sites import FAMILIES

    return FAMILIES


_SHIPPED: dict[str, Callable[[], Mapping[str, Any]]] = {
    "estimator": _estimators, "codec": lambda: CODECS, "sites": _families,
}  # fmt: skip


def agree(
    own: Config, text: str, agent_id: int, starts: int, custom: Mapping[str, str] = MappingProxyType({})
) -> Config:
    """The agent's own configuration under the server's terms; `custom`: parts of its own that do not ship.

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
        config = configuration.from_settings({**given, **_agree_on_parts(own, given, custom)}, own)
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
