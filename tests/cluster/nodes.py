"""A Ray cluster of several nodes on this machine's loopback, whose nodes can be killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from federations import alive, children, wait_until
from ray.cluster_utils import Cluster

STORE_BYTES = 80 << 20
NOTICE = {  # a dead node in some five seconds instead of twenty
    "RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}  # fmt: skip


def actors(pid: int) -> list[psutil.Process]:
    return children(pid, lambda child: child.name().startswith("ray::Actor"))


class Nodes:
    """The head takes no agents; every node has `cpus`, however many the machine has."""

    def __init__(self, count: int, cpus: int) -> None:
        self._cpus = cpus
        self._others = set(children(os.getpid()))  # what other tests keep
        self._cluster = Cluster()
        self._add(num_cpus=0, include_dashboard=False)
        self.nodes = [self.add() for _ in range(count)]

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self) -> Any:
        return self._add(num_cpus=self._cpus)

    def kill(self, node: Any) -> None:
        """As a power cut does: everything at once, and no last words."""
        self._cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        left = set(children(os.getpid())) - self._others
        self._cluster.shutdown()
        wait_until(lambda: not any(alive(process) for process in left), what="the nodes are gone")

    def _add(self, **settings: Any) -> Any:
        """Ray picks ports which another test may take meanwhile: a node that does not come up is tried again."""
        for last in (False, False, True):
            before = set(children(os.getpid()))
            try:
                return self._cluster.add_node(node_ip_address="127.0.0.1", object_store_memory=STORE_BYTES, **settings)
            except Exception as error:
                for process in set(children(os.getpid())) - before:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                if last or "timed out during startup" not in str(error):
                    self.close()
                    raise


@contextlib.contextmanager
def nodes(count: int, cpus: int) -> Iterator[Nodes]:
    place = tempfile.mkdtemp(prefix="ray-")  # a test's own folder has too long a name for a socket
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (NOTICE | {"RAY_TMPDIR": place}).items():
            patch.setenv(name, value)
        made = Nodes(count, cpus)
        try:
            yield made
        finally:
            made.close()
            shutil.rmtree(place)
