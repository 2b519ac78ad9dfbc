"""A run on a Ray cluster from its start, or from its folder, to its result."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

from afedpg.config import Config
from afedpg.engine.cost import Cost, check_memory
from afedpg.engine.process import Interruption
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.runs.live_session import Parts, keep_record, new_parts, restored_parts, run_live
from afedpg.runs.parts import Own, parts_of
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.result import Result
from afedpg.server.rules import ServerRule
from afedpg.transport.ray.cluster import cluster, room, starts_here, store_bytes
from afedpg.transport.ray.pool import RayPool


def run_ray(new: NewRun) -> Result:
    config = new.config
    build = _sendable(config, new.own)
    parts = new_parts(_on_server(config), new.own, new.on_arrival)._replace(config=config)
    cost = _cost(config, parts.workload, parts.federation.rule)
    with cluster(config, parts.workload):
        keep_record(parts, new.out, numbered=new.numbered)
        new.announce(cost)
        return serve(parts, build)


def resume_ray(stored: StoredRun) -> Result:
    """The server stands where it stood, bit for bit; agents go on from their states in the newest checkpoint."""
    config = stored.config
    build = _sendable(config, stored.own)
    workload, rule = parts_of(_on_server(config), stored.own)
    cost = _cost(config, workload, rule)
    with cluster(config, workload):  # first: it may not be there, and the folder stays as it is
        parts = restored_parts(stored, _on_server(config))._replace(config=config)
        stored.announce(replace(cost, done=parts.federation.server.gradients))
        return serve(parts, build)


def serve(parts: Parts, build: BuildWorkload) -> Result:
    with Interruption().watched() as interruption, contextlib.closing(parts.federation):
        server, recorder, network = parts.federation.server, parts.federation.recorder, parts.config.network
        rule = parts.federation.rule
        sync = recorder.journal.sync if network.durable and recorder is not None else None
        first = min(room(parts.config), parts.config.agents) if rule.synchronous else 0
        build = replace(build, contributions=rule.contributions(parts.config.agents))
        pool = RayPool(build, server.epoch, first, sync)
        stored = 0 if parts.tree is None else parts.tree["server"]["gradients"]
        for slot in pool.slots:
            slot.behind = server.gradients > stored
        # Ray itself watches its actors and nodes: a long rollout is not a silent agent.
        watched = replace(parts.config, network=replace(network, lease=math.inf))
        return run_live(parts._replace(config=watched), pool.transport, interruption, [pool.watch], pool)


def _on_server(config: Config) -> Config:
    """The server evaluates, and its machine need not have what the agents' machines have."""
    return replace(config, agent=replace(config.agent, device="cpu"))


def _cost(config: Config, workload: Workload, rule: ServerRule) -> Cost:
    """With the actors and their object store, if they run on this machine."""
    if not starts_here(config):
        return check_memory(config, workload, rule, 1)
    processes = 1 if config.synthetic else config.agents  # without torch they weigh little
    return check_memory(config, workload, rule, processes, store_bytes(config, workload))


def _sendable(config: Config, own: Own) -> BuildWorkload:
    """Ray sends functions by value where it cannot import them; found out here rather than on a node."""
    import ray  # here: transport.ray, imported above, says in one line that it is not installed

    build = own.workload(config)
    try:
        ray.cloudpickle.dumps(build)
    except Exception as error:
        raise ConfigError(f"make_env, make_policy: Ray cannot send them to other machines: {error}") from error
    return build
