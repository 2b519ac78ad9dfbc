from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from federations import alive, wait_until

sys.path.insert(0, str(Path(__file__).parent))

os.environ |= {  # before Ray is imported
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(16),  # or Ray would write one into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 means 127.0.0.1
}


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> Iterator[None]:
    """Of Ray: neither a child, nor one whose parent has gone."""
    before = _ours()  # what other tests keep, such as multiprocessing's resource tracker
    yield
    wait_until(lambda: not _ours() - before, what="Ray's processes are gone")


def _ours() -> set[psutil.Process]:
    """Recognized by the token, which every process of these tests has inherited."""
    token, found = os.environ["RAY_AUTH_TOKEN"], set()
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("RAY_AUTH_TOKEN") == token and alive(process):
                found.add(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """A Ray of the caller's own, as a notebook has one; much cheaper than one per test."""
    import ray

    ray.init(
        address="local", num_cpus=8, _node_ip_address="127.0.0.1", include_dashboard=False, log_to_driver=False,
        object_store_memory=100 << 20,
    )  # fmt: skip
    yield
    ray.shutdown()
