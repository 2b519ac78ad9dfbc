"""Actors and nodes that are killed in mid-run: it ends, every gradient counts once, and the journal gives the bits."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from federations import Site, site, wait_until
from nodes import actors, nodes
from twin import check_draws

from afedpg.runs.replay import replay

SWIMMER = ("swimmer", "--preset", "paper", "--evaluate-episodes", 1)
LARGE = ("quadratic", "--dimension", 15_000)  # states too large to travel with the reports
ENDLESS = 10**6  # iterations


def end(federation: Site, train: subprocess.Popen[bytes], total: int | None) -> None:
    """By itself after `total` gradients, or by SIGTERM; no gradient is missing, none is there twice."""
    if total is None:
        train.terminate()
    assert train.wait(600) == (130 if total is None else 0), federation.log("train")[-3000:]
    rows = federation.query("SELECT gradient, task_id FROM arrivals ORDER BY gradient")
    assert total in (None, len(rows))
    assert [gradient for gradient, _ in rows] == list(range(1, len(rows) + 1))
    assert len({task_id for _, task_id in rows}) == len(rows)
    assert replay(federation.run).agrees


def test_a_node_is_killed_and_another_joins_in_mid_run(tmp_path: Path, long: bool) -> None:
    """Agents of the dead node wait until there is room, and go on there."""
    count, cpus, iterations = (3, 4, 100) if long else (2, 2, ENDLESS)
    task = SWIMMER if long else LARGE
    agents = count * cpus
    with nodes(count, cpus) as cluster, site(tmp_path) as federation:
        train = federation.command(
            "train", *task, "--engine", "ray", "--ray-address", cluster.address, "--agents", agents,
            "--iterations", iterations, "--checkpoint-seconds", 2, "--out", federation.run,
        )  # fmt: skip
        wait_until(lambda: federation.gradients() > 0, 200.0)
        wait_until(lambda: _there(federation) == agents, 200.0, "all agents are there")
        cluster.kill(cluster.nodes[0])
        wait_until(lambda: _there(federation) == agents - cpus, 100.0, "its agents are away")
        before = federation.gradients()
        wait_until(lambda: federation.gradients() > before, what="the others work on")
        cluster.add()
        wait_until(lambda: _there(federation) == agents, 200.0, "all agents are back")
        assert "is placed again" in federation.log("train")
        assert "its newest state was lost with its node" in federation.log("train") or long
        end(federation, train, agents * iterations if long else None)


def _there(federation: Site) -> int:
    return sum(agent["state"] != "away" for agent in federation.status()["agents"])


def test_random_actors_are_killed_again_and_again(tmp_path: Path, long: bool) -> None:
    """The short version is in test_ray_engine.py, with the bits of virtual time."""
    if not long:
        pytest.skip("takes minutes: only with --long")
    agents, iterations = 4, 125
    with site(tmp_path) as federation:
        settings = ("--agents", agents, "--iterations", iterations, "--keep-reports", "--out", federation.run)
        train = federation.command("train", *SWIMMER, "--engine", "ray", *settings)
        wait_until(lambda: federation.gradients() > 0, 120.0)
        generator, deadline, kills = random.Random(0), time.monotonic() + 900, 0
        while train.poll() is None:
            assert time.monotonic() < deadline, federation.log("train")[-3000:]
            before = federation.gradients()
            if found := actors(train.pid):
                with contextlib.suppress(psutil.NoSuchProcess):  # the run may have ended meanwhile
                    generator.choice(found).kill()
                    kills += 1
            time.sleep(2.0)
            # Who dies ten times without a gradient ends the run, and on a slow machine an actor starts for longer.
            wait_until(
                lambda enough=before + agents: train.poll() is not None or federation.gradients() >= enough, 200.0
            )
        assert kills >= 3
        end(federation, train, agents * iterations)
        check_draws(federation.run)
