"""Agent processes: they come back by themselves, keep their state if asked, and know when they are not wanted."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
from federations import site, wait_until

from afedpg.cli import main
from afedpg.config import LONGEST_LEASE, SHORTEST_LEASE, from_settings
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import Task, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc.client import Agent
from afedpg.transport.grpc.connection import Connection
from afedpg.transport.grpc.keep import StateFile
from afedpg.transport.grpc.listener import _options
from afedpg.transport.grpc.membership import AgentOptions
from afedpg.transport.grpc.wire import Refused
from afedpg.validation import validate


def test_a_state_that_was_kept_goes_on_where_it_stood(tmp_path: Path) -> None:
    workload = BuildWorkload(from_settings({"task": "softmax-mdp"}))()
    task = Task(TaskId(0, 1), 0, np.zeros(workload.parameters, np.float32), 0)
    state, _ = workload.work(workload.start(0), task)
    keep = StateFile(tmp_path / "state")
    keep.save(0, "terms", state)
    kept = keep.load(0, "terms")
    assert kept is not None
    assert np.array_equal(workload.work(kept, task)[1].payload, workload.work(state, task)[1].payload)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o600  # nobody else reads what it observed
    assert keep.load(1, "terms") is None  # another agent's
    assert keep.load(0, "other terms") is None
    (tmp_path / "state").write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    assert keep.load(0, "terms") is None
    assert StateFile(None).load(0, "terms") is None


@pytest.mark.parametrize("lease", [SHORTEST_LEASE, LONGEST_LEASE])
def test_a_lease_that_a_server_may_have_is_one_that_agents_and_grpc_accept(lease: float) -> None:
    config = validate(from_settings({"task": "quadratic", "engine": "grpc", "lease": lease}))
    assert all(-(2**31) <= value < 2**31 for _, value in _options(10, config.network.lease))
    agent = Agent(AgentOptions("127.0.0.1:1", config, lambda config: BuildWorkload(config)()))
    try:
        Connection(agent, None)._welcome(pb.Welcome(agent=0, lease_seconds=lease))
        assert agent.lease == lease
        for other in (0.99 * SHORTEST_LEASE, 1.01 * LONGEST_LEASE, float("nan")):
            with pytest.raises(Refused, match="a lease of"):
                Connection(agent, None)._welcome(pb.Welcome(agent=0, lease_seconds=other))
    finally:
        agent.close()


def test_an_agent_outlives_its_server_and_a_misfit_does_not(tmp_path: Path) -> None:
    settings = ("--iterations", 10**6, "--dimension", 20, "--durable")
    with site(tmp_path, *settings, agents=2, tls=True) as federation:
        server = federation.server()
        agent = federation.agent(0, "--state", tmp_path / "state", "--seconds-per-gradient", 0.01)
        wait_until(lambda: federation.gradients() > 5)
        misfit = federation.command(
            "agent", "lq-bandit", "--connect", f"127.0.0.1:{federation.port}",
            "--cert", federation.certs / "agents" / "agent-1", log="misfit.log",
        )  # fmt: skip
        assert misfit.wait(60) == 3
        assert "refused by" in federation.log("misfit")
        server.terminate()
        assert server.wait(60) == 130
        before = federation.gradients()
        resumed = federation.command("resume", federation.run)  # listens where it listened
        wait_until(lambda: federation.gradients() > before + 5)
        assert agent.poll() is None
        agent.terminate()
        assert agent.wait(60) == 130
        assert resumed.poll() is None
        assert (tmp_path / "state").exists()
        status = federation.command("status", f"127.0.0.1:{federation.port}", "--cert", federation.certs / "operator")
        assert status.wait(60) == 0
        assert "agent-0" in federation.log("status")


def test_an_agent_can_lie_to_see_what_the_others_stand(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 10**6, "--dimension", 20, "--aggregator", "slots", agents=3) as federation:
        federation.server()
        for number, attack in enumerate(((), (), ("--attack", "zeros"))):
            federation.agent(number, "--seconds-per-gradient", 0.01, *attack)
        wait_until(lambda: federation.gradients() > 0)
        wait_until(lambda: len(federation.query("SELECT DISTINCT agent FROM arrivals")) == 3)
        wait_until(lambda: sum("suspicion" in agent for agent in federation.status()["agents"]) == 3)
        rows = dict(federation.query("SELECT agent, max(gradient_norm) FROM arrivals GROUP BY agent"))
        names = {agent["agent"]: agent["name"] for agent in federation.status()["agents"]}
        assert {names[agent]: norm > 0 for agent, norm in rows.items()} == {
            "agent-0": True, "agent-1": True, "agent-2": False,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("attack", "line"),
    [
        ("ipm", "attack: ipm knows every agent's contribution; use --engine virtual"),
        ("nosuch", "attack: unknown 'nosuch'; choose from sign-flip"),
        ("zeros:scale=1", "attack: zeros has no parameter 'scale'"),
    ],
)
def test_an_attack_that_an_agent_cannot_make(attack: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("agent", "quadratic", "--connect", "127.0.0.1:1", "--insecure", "--name", "a", "--attack", attack)
    assert main(list(command)) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
