"""What a run will take, known and checked before it starts."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.record.journal import SEGMENT_BYTES
from afedpg.server.rules import ServerRule

WORKER_BYTES = 400 * 2**20  # what a worker process with torch and an environment weighs


@dataclass(frozen=True)
class Cost:
    """What a run will take, known before it starts."""

    gradients: int
    parameters: int
    memory: int  # bytes, of this process and the workers it starts
    disk: int  # bytes, at most
    done: int = 0  # gradients of an earlier session
    objective: str = ""  # whose returns are optimized, where agents differ
    batch: int = 1  # gradients of a server step


def check_memory(config: Config, workload: Workload, rule: ServerRule, workers: int, store: int = 0) -> Cost:
    """N x parameters and N agent states must fit; refused here, not halfway through the run. `store`: bytes set aside
    for what processes share.
    """
    vector = workload.parameters
    server = 4 * 8 * vector + 8 * vector * rule.aggregator.vectors(config.agents)
    memory = config.agents * (4 * vector + 1024) + server + store + (WORKER_BYTES * workers if workers > 1 else 0)
    _refuse_beyond_memory(config, vector, memory)  # before even one agent is made, to see how much it remembers
    state = sum(array.nbytes for array in workload.start(0).values())
    memory += config.agents * state
    _refuse_beyond_memory(config, vector, memory)
    stored = config.record.keep_checkpoints * (config.agents * (4 * vector + state) + 4 * 8 * vector)
    journal = max(SEGMENT_BYTES, 4 * vector * config.gradients)  # written in whole segments
    if not config.record.keep_reports:
        journal = min(journal, round((config.record.keep_checkpoints + 1) * config.record.journal_mib * 2**20))
    memory += _resident()
    disk = stored + journal + 200 * config.gradients
    batch = rule.contributions(config.agents)
    return Cost(config.gradients, vector, memory, disk, objective=_objective(config, rule), batch=batch)


def _objective(config: Config, rule: ServerRule) -> str:
    given = {entry.partition(":")[0] for entry in config.own}
    alike = not (config.agent.sites or config.agent.env_kwargs.get("agents") or given & {"sites", "make_env"})
    if alike and len(set(config.optima)) < 2:
        return ""
    fair = rule.aggregator.weigh == "agents"
    return "the mean over agents, however often each arrives" if fair else "a mean weighted by arrivals"


def _resident() -> int:
    """Bytes that Python, numpy and, for environments, torch take already."""
    return int(psutil.Process().memory_info().rss)


def _refuse_beyond_memory(config: Config, parameters: int, memory: int) -> None:
    free = psutil.virtual_memory().available
    if memory > free:
        raise ConfigError(
            f"agents: {config.agents} agents x {parameters} parameters need about {memory / 2**30:.1f} GiB of memory, "
            f"{free / 2**30:.1f} GiB are free; use fewer agents or a smaller network"
        )
