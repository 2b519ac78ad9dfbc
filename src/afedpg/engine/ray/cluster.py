"""A Ray cluster for the length of a run: the user's own, or one on this machine's loopback."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import ray

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.messages import Workload

LEAST_STORE = 128 << 20  # bytes of a local object store; Ray refuses less than 75 MiB
SHARES = 4  # of an agent in it: theta~, a gradient, its state, and the next of one of them
KNOCK_SECONDS = 10.0
_log = logging.getLogger("afedpg")


@contextlib.contextmanager
def cluster(config: Config, workload: Workload) -> Iterator[None]:
    """Ray's own, if this process has called ray.init already; it then stays as it is."""
    if ray.is_initialized():
        _warn_of_waiting(config)
        yield
        return
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(_restore_signal, signal.getsignal(signal.SIGTERM))  # Ray takes it
        if config.ray.ray_address:
            _knock(config.ray.ray_address)
            _init(address=config.ray.ray_address, **common)
        else:
            place = tempfile.mkdtemp(prefix="ray-")  # short: sockets lie in it
            afterwards.callback(shutil.rmtree, place, ignore_errors=True)
            with _loopback():
                _init(**_alone(config, workload), _temp_dir=place, **common)
        afterwards.callback(ray.shutdown)
        _warn_of_waiting(config)
        yield


def _alone(config: Config, workload: Workload) -> dict[str, Any]:
    """This machine as a cluster: reached from itself only, with room for every agent however few its cores."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")  # agents are the work, not something beside it
    share = 4 * workload.parameters + sum(array.nbytes for array in workload.start(0).values())
    return {
        "address": "local",  # whatever RAY_ADDRESS says
        "num_cpus": max(os.cpu_count() or 1, math.ceil(config.agents * config.ray.agent_cpus)),
        "object_store_memory": max(LEAST_STORE, SHARES * config.agents * share),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Ray makes the outer address of 127.0.0.1 and listens on every interface, unless it has no other machines."""
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _knock(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host, int(port)), KNOCK_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConfigError(f"ray_address: nothing answers at {address}: {error}") from error


def _init(**settings: Any) -> None:
    try:
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = settings["address"]
        raise ConfigError(f"ray_address: no cluster at {where}: {str(error).strip().splitlines()[0]}") from error


def room(config: Config) -> int:
    """How many agents the nodes could take, if nothing else ran there."""
    needs = {"CPU": config.ray.agent_cpus, "GPU": config.ray.agent_gpus}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(min(int(node.get(kind, 0) / amount) for kind, amount in needs.items() if amount) for node in nodes)


def _warn_of_waiting(config: Config) -> None:
    if room(config) < config.agents:
        _log.warning(
            "the cluster has room for %d of %d agents at %g processors each; the others wait for nodes to join "
            "(--agent-cpus 0.5 would place more on one)",
            room(config), config.agents, config.ray.agent_cpus,
        )  # fmt: skip


def _restore_signal(handler: Any) -> None:
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
