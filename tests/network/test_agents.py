"""Agent processes: they come back by themselves, keep their state if asked, and know when they are not wanted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from federations import site, wait_until

from afedpg.config import from_settings
from afedpg.engine.grpc.keep import StateFile
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import Task, TaskId


def test_a_state_that_was_kept_goes_on_where_it_stood(tmp_path: Path) -> None:
    workload = BuildWorkload(from_settings({"task": "softmax-mdp"}))()
    task = Task(TaskId(0, 1), 0, np.zeros(workload.parameters, np.float32), 0)
    state, _ = workload.work(workload.start(0), task)
    keep = StateFile(tmp_path / "state")
    keep.save(0, "terms", state)
    kept = keep.load(0, "terms")
    assert kept is not None
    assert np.array_equal(workload.work(kept, task)[1].gradient, workload.work(state, task)[1].gradient)
    assert keep.load(1, "terms") is None  # another agent's
    assert keep.load(0, "other terms") is None
    (tmp_path / "state").write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    assert keep.load(0, "terms") is None
    assert StateFile(None).load(0, "terms") is None


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
        assert misfit.wait(60) == 1
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
