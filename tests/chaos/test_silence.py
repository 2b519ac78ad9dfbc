"""Agents that freeze, and lines that die without saying so: noticed within the lease, nobody else slows down, and the
agent comes back by itself.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy
from federations import Site, site, wait_until

LEASE = 1.5  # seconds; the default is 15
GRACE = 1.0  # for a busy machine
FOR_EVER = 10_000_000


@contextmanager
def two_agents(folder: Path, lease: float) -> Iterator[tuple[Site, FaultyProxy, int]]:
    """A server, an agent that stays well, and one behind a proxy; both at work."""
    settings = ("--iterations", FOR_EVER, "--dimension", 100, "--lease", lease)
    with site(folder, *settings, agents=2, tls=True) as federation, FaultyProxy(federation.port) as proxy:
        federation.server()
        federation.agent(0, "--seconds-per-gradient", 0.02)
        victim = federation.agent(1, "--seconds-per-gradient", 0.02, port=proxy.port)
        wait_until(lambda: min(_arrived(federation, 0), _arrived(federation, 1)) > 5)
        yield federation, proxy, victim.pid


def _arrived(federation: Site, number: int) -> int:
    try:
        return int(federation.query(f"SELECT count(*) FROM arrivals WHERE agent = {number}")[0][0])
    except Exception:  # run.db is not there yet
        return 0


def _goings(federation: Site) -> int:
    return len(re.findall(r"agent 1 \(agent-1\) (?:dropped|left)", federation.log()))


def _rate(federation: Site, seconds: float) -> float:
    """Gradients per second of the agent that stays well."""
    first, started = _arrived(federation, 0), time.monotonic()
    time.sleep(seconds)
    return (_arrived(federation, 0) - first) / (time.monotonic() - started)


def _suffer(
    federation: Site, lease: float, long: bool, break_it: Callable[[], None], mend_it: Callable[[], None]
) -> None:
    goings = _goings(federation)
    break_it()
    took = wait_until(lambda: _goings(federation) > goings, lease + 10.0)
    if long:  # a machine that is busy with a whole test suite may be late
        assert took < lease + GRACE
    arrived = _arrived(federation, 1)
    mend_it()
    wait_until(lambda: _arrived(federation, 1) > arrived + 3, lease + 45.0)


def test_silence_is_noticed_and_whoever_was_silent_comes_back(tmp_path: Path, long: bool) -> None:
    lease = 15.0 if long else LEASE
    with two_agents(tmp_path, lease) as (federation, proxy, pid):
        before = _rate(federation, 2.0) if long else 0.0
        _suffer(federation, lease, long, lambda: os.kill(pid, signal.SIGSTOP), lambda: os.kill(pid, signal.SIGCONT))
        assert "silent for" in federation.log()  # the lease, not gRPC's own pings: they would say that it hung up
        for fault in ("stall", "half-open", "cut") if long else ("stall", "cut"):
            _suffer(
                federation, lease, long, lambda fault=fault: setattr(proxy, "fault", fault),  # type: ignore[misc]
                lambda: setattr(proxy, "fault", "none"),
            )  # fmt: skip
        os.kill(pid, signal.SIGSTOP)
        if long:
            assert _rate(federation, 6.0) > 0.5 * before  # half, not all: this machine may be shared
        else:  # a machine that is busy with a whole test suite may be slow
            arrived = _arrived(federation, 0)
            wait_until(lambda: _arrived(federation, 0) > arrived + 3, what="the other works on")


def test_a_slow_line_slows_its_own_agent_only(tmp_path: Path, long: bool) -> None:
    if not long:
        pytest.skip("a slow line takes its time: only with --long")
    with two_agents(tmp_path, 15.0) as (federation, proxy, _):
        before = _rate(federation, 3.0)
        proxy.fault = "slow"
        time.sleep(5.0)
        goings = _goings(federation)
        assert _rate(federation, 5.0) > 0.5 * before
        assert _goings(federation) == goings  # slow, not silent: it keeps its place
