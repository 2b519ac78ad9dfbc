"""How much a federation weighs: bytes on the line, connections, an agent's memory and its idling. Only with --long."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from faulty_proxy import FaultyProxy
from federations import site, wait_until

from afedpg.bench.network import hold

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _only_long(long: bool) -> None:
    if not long:
        pytest.skip("takes minutes: only with --long")


@pytest.mark.parametrize(("parameters", "gradients"), [(4_868, 600), (727_074, 60)])
def test_the_accounting_agrees_with_the_wire(tmp_path: Path, parameters: int, gradients: int) -> None:
    """What run.db says a gradient costs, against what TCP carried, TLS and all, and against the service's own count."""
    settings = ("--iterations", 10**6, "--dimension", parameters)
    with site(tmp_path, *settings, agents=1, tls=True) as federation, FaultyProxy(federation.port) as proxy:
        server = federation.server()
        federation.agent(0, port=proxy.port)
        wait_until(lambda: federation.gradients() > gradients, 120.0)
        server.terminate()
        server.wait(60)
        ((up, down),) = federation.query("SELECT sum(bytes_up), sum(bytes_down) FROM arrivals")
        (agent,) = federation.status()["agents"]
        for accounted, counted, carried in (
            (up, agent["bytes_up"], proxy.bytes_up), (down, agent["bytes_down"], proxy.bytes_down),
        ):  # fmt: skip
            assert accounted == pytest.approx(counted, rel=0.02)
            assert accounted == pytest.approx(carried, rel=0.03)


def test_five_hundred_agents_stay_connected_for_a_minute() -> None:
    assert hold(500, 60.0) == 500


def test_an_agent_is_light_and_idles_quietly(tmp_path: Path) -> None:
    """fedpg makes one agent wait for the other, which takes for ever."""
    settings = ("--method", "fedpg", "--iterations", 1000, "--preset", "tuned")
    with site(tmp_path, *settings, task="hopper", agents=2, tls=True) as federation:
        federation.server()
        idle = psutil.Process(federation.agent(0).pid)
        federation.agent(1, "--seconds-per-gradient", 1000)
        wait_until(lambda: federation.log().count("joined") == 2, 120.0)
        time.sleep(10.0)  # its one gradient is done by then
        before = sum(idle.cpu_times()[:2])
        time.sleep(20.0)
        assert (sum(idle.cpu_times()[:2]) - before) / 20.0 < 0.01
        assert idle.memory_info().rss < 500 * MIB
