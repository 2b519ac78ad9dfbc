"""A Ray cluster for the length of a run: the user's own, or one on this machine's loopback."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
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
        _check_joined(config.ray.ray_address)
        _warn_of_waiting(config)
        yield
        return
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(_restore_signal, signal.getsignal(signal.SIGTERM))  # Ray takes it
        if config.ray.ray_address:
            _knock(config.ray.ray_address)
            _init(f"ray_address: no cluster at {config.ray.ray_address}", address=config.ray.ray_address, **common)
        else:
            short = "/tmp" if os.access("/tmp", os.W_OK) else None  # sockets lie in it: 107 characters with their names
            place = tempfile.mkdtemp(prefix="ray-", dir=short)
            afterwards.callback(shutil.rmtree, place, ignore_errors=True)
            afterwards.enter_context(_environment())
            with _loopback():
                _init("engine: Ray cannot start here", **_alone(config, workload), _temp_dir=place, **common)
        afterwards.callback(ray.shutdown)
        _warn_of_waiting(config)
        yield


def starts_here(config: Config) -> bool:
    """Whether `cluster` will start one on this machine."""
    return not config.ray.ray_address and not ray.is_initialized()


def store_bytes(config: Config, workload: Workload) -> int:
    share = 4 * workload.parameters + sum(array.nbytes for array in workload.start(0).values())
    return max(LEAST_STORE, SHARES * config.agents * share)


def _alone(config: Config, workload: Workload) -> dict[str, Any]:
    """This machine as a cluster: reached from itself only, with room for every agent however few its cores."""
    return {
        "address": "local",  # whatever RAY_ADDRESS says
        "num_cpus": max(os.cpu_count() or 1, math.ceil(config.agents * config.ray.agent_cpus)),
        "object_store_memory": store_bytes(config, workload),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """What a cluster of the run's own reads from there. With a token of its own: Ray would leave one in the home folder
    that every user of the machine can read.
    """
    before = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_worker_niceness", "0")  # agents are the work, not something beside it
    if "RAY_AUTH_TOKEN_PATH" not in before:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    _read_environment()
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]  # Ray itself sets some
        os.environ |= before
        _read_environment()


def _read_environment() -> None:
    """Ray remembers what it read before."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


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


def _check_joined(address: str) -> None:
    """The process's own Ray is used; it must be the one that was asked for."""
    if not address or address == "auto":
        return
    _knock(address)
    host, _, port = address.rpartition(":")
    joined = ray.get_runtime_context().gcs_address
    if f"{socket.gethostbyname(host)}:{port}" != joined:
        raise ConfigError(
            f"ray_address: {address}, but this process has joined {joined}; leave it out, or call ray.shutdown() before"
        )


def _init(otherwise: str, **settings: Any) -> None:
    try:
        ray.init(**settings)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(f"{otherwise}: {str(error).strip().splitlines()[0]}") from error


def room(config: Config) -> int:
    """How many agents the nodes could take, if nothing else ran there."""
    needs = {"CPU": config.ray.agent_cpus, "GPU": config.ray.agent_gpus}
    needs = {kind: amount for kind, amount in needs.items() if amount}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    # Rounded first: 7 / 0.07 is 99.99...
    return sum(min(int(round(node.get(kind, 0) / amount, 6)) for kind, amount in needs.items()) for node in nodes)


def _warn_of_waiting(config: Config) -> None:
    there = room(config)
    if there < config.agents:
        gpus = f" and {config.ray.agent_gpus:g} GPUs" if config.ray.agent_gpus else ""
        _log.warning(
            "the cluster has room for %d of %d agents at %g processors%s each; the others wait for nodes to join "
            "(with smaller --agent-cpus%s more fit on one)",
            there, config.agents, config.ray.agent_cpus, gpus, " or --agent-gpus" if gpus else "",
        )  # fmt: skip


def _restore_signal(handler: Any) -> None:
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
