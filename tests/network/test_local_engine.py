"""`train --engine local`: the same federation on one machine, and nothing is left behind however it ends."""

from __future__ import annotations

import csv
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from federations import alive, children, site, wait_until
from twin import check_draws

import afedpg
from afedpg.config import METHODS
from afedpg.errors import BrokenPart
from afedpg.messages import Arrival, Vector
from afedpg.record.database import read_arrivals
from afedpg.runs.replay import replay

# A short eta: with that of afedppo, which is 1, the quadratic diverges until every report is refused.
SETTINGS = ("quadratic", "--engine", "local", "--iterations", 10**6, "--dimension", 50, "--eta", 0.01, "--keep-reports")


def test_one_local_agent_gives_the_bits_of_virtual_time(tmp_path: Path) -> None:
    """With one agent there is one order of events: a real federation and a simulated one are the same fold."""
    settings = {"agents": 1, "iterations": 60, "dimension": 30}
    local = afedpg.train("quadratic", engine="local", out=tmp_path / "local", **settings)
    virtual = afedpg.train("quadratic", **settings)
    assert local.sha256 == virtual.sha256
    assert replay(tmp_path / "local").agrees
    with (tmp_path / "local" / "trace.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 60
    trace = str(tmp_path / "local" / "trace.csv")
    again = afedpg.train("quadratic", timing="trace", trace=trace, **settings)  # real seconds, played back
    assert again.sha256 == virtual.sha256
    assert 0 < again.seconds <= local.seconds


def test_segments_are_played_back_as_fast_as_they_were(tmp_path: Path) -> None:
    """A trace holds seconds per gradient, whatever share of one a report is: here T/n = 8 reports."""
    settings = {
        "method": "a3c", "agents": 1, "iterations": 10, "steps": 256, "segment": 32, "hidden": (4,),
        "evaluate_episodes": 1, "evaluate_kind": "sampled",
    }  # fmt: skip
    arrived: list[float] = []
    afedpg.train(
        "CartPole-v1", engine="local", out=tmp_path / "local", **settings,
        on_arrival=lambda arrival, seconds, theta: arrived.append(seconds),
    )  # fmt: skip
    real = np.diff(arrived)
    arrived.clear()
    afedpg.train(
        "CartPole-v1", timing="trace", trace=str(tmp_path / "local" / "trace.csv"), **settings,
        on_arrival=lambda arrival, seconds, theta: arrived.append(seconds),
    )  # fmt: skip
    played = np.diff(arrived)
    assert played.sum() <= real.sum() * 1.01  # what the server took in between is not in it
    assert np.median(played) > np.median(real) / 4  # a single stop of the server, as for the disk, says nothing


def test_the_attackers_lie_and_the_others_do_not(tmp_path: Path) -> None:
    """Until everybody has contributed: agents come one after the other."""
    seen: set[int] = set()

    def goes_on(arrival: Arrival, seconds: float, theta: Vector) -> bool:
        seen.add(arrival.agent)
        return len(seen) < 3

    settings = {"agents": 3, "iterations": 10**6, "attack": "zeros", "attackers": (0, 2)}
    afedpg.train("quadratic", engine="local", on_arrival=goes_on, out=tmp_path / "local", **settings)
    rows = read_arrivals(tmp_path / "local" / "run.db")
    assert set(rows["agent"]) == {0, 1, 2}
    np.testing.assert_array_equal(rows["gradient_norm"] == 0, np.isin(rows["agent"], (0, 2)))


def agents_of(pid: int) -> list[psutil.Process]:
    return children(pid, lambda child: "spawn_main" in " ".join(child.cmdline()))


@pytest.mark.parametrize("method", METHODS)
def test_agents_are_replaced_and_none_is_left_behind(tmp_path: Path, method: str, long: bool) -> None:
    if method not in ("afedpg", "fedpg", "a3c") and not long:
        pytest.skip("much like afedpg; runs with --long")
    alone = method in ("pg", "pg-plain")
    how = ("--method", method, "--agents", 1 if alone else 2)
    with site(tmp_path) as federation:
        train = federation.command("train", *SETTINGS, *how, "--out", federation.run, log="server.log")
        wait_until(lambda: federation.gradients() > 20)
        first = agents_of(train.pid)
        assert len(first) == (1 if alone else 2)
        first[0].kill()  # one that dies is replaced
        wait_until(lambda: len({agent.pid for agent in agents_of(train.pid)} - {agent.pid for agent in first}) == 1)
        agents = agents_of(train.pid)
        train.kill()
        train.wait()
        wait_until(lambda: not any(alive(agent) for agent in agents), what="the agents ended with their parent")

        before = federation.gradients()
        resumed = federation.command("resume", federation.run)
        wait_until(lambda: federation.gradients() > before + 20)
        agents = agents_of(resumed.pid)
        resumed.send_signal(signal.SIGINT)
        assert resumed.wait(60) == 130
        assert not any(alive(agent) for agent in agents)
        assert replay(federation.run).agrees
        check_draws(federation.run)


PART = """
import numpy as np
from afedpg.agent.estimators.estimator import Estimator
from afedpg.messages import Contribution


class Part(Estimator):
    def estimate(self, tools, state, task, rollout):
        return {}, Contribution(np.ones(tools.parameters - SHORT, np.float32))
"""


@pytest.mark.usefixtures("compiled")
def test_a_part_that_is_broken_ends_the_run_with_one_line(tmp_path: Path) -> None:
    """In every agent, as often as it would be started again; corrected, the run goes on."""
    part = tmp_path / "own.py"
    part.write_text(PART.replace("SHORT", "1"))
    settings = ("--agents", 3, "--iterations", 2, "--steps", 16, "--hidden", 4, "--baseline", "linear")
    with site(tmp_path) as federation:
        how = ("--engine", "local", "--estimator", f"{part}:Part", "--out", federation.run)
        train = federation.command("train", "CartPole-v1", *settings, *how)
        assert train.wait(100) == BrokenPart.exit_code
        _, *said = federation.log("train").splitlines()  # the first line is what the run needs
        where = f"(after gradient 0 of 6); correct its code, then go on with: afedpg resume {federation.run}"
        assert said == [f"afedpg: estimator: Part sent 29 numbers, theta has 30 {where}"]
        part.write_text(PART.replace("SHORT", "0"))
        assert federation.command("resume", federation.run).wait(100) == 0, federation.log("resume")
        assert federation.gradients() == 6
