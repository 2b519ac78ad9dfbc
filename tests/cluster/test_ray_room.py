"""What a cluster has room for, and what a run takes of this machine: without a Ray that runs."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
import ray

from afedpg.config import Config
from afedpg.engine.cost import WORKER_BYTES
from afedpg.errors import ConfigError
from afedpg.runs.parts import Own, configure, parts_of
from afedpg.runs.ray import _cost
from afedpg.transport.ray import cluster


def configured(task: str = "quadratic", **settings: Any) -> Config:
    return configure(task, None, {"engine": "ray", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ray_address": "ray://head:10001"}, "ray_address: ray://head:10001; run this on a machine of the cluster"),
        ({"ray_address": "auto", "engine": "local"}, "ray_address: only used with --engine ray"),
        ({"agent_cpus": 1.5}, "agent_cpus: 1.5; a share of one, or whole ones"),
        ({"agent_cpus": 0}, "agent_cpus: 0.* must be above 0"),
        ({"device": "cuda"}, "agent_gpus: with --device cuda every agent needs a share of a GPU"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(**settings)


@pytest.mark.parametrize(
    ("settings", "agents"),
    [({}, 11), ({"agent_cpus": 2}, 5), ({"agent_cpus": 0.07}, 157), ({"agent_cpus": 0.5, "agent_gpus": 0.25}, 8)],
)
def test_room_is_counted_node_by_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], agents: int
) -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 7.0, "GPU": 2.0}},
        {"Alive": True, "Resources": {"CPU": 4.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
        {"Alive": True, "Resources": {}},
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert cluster.room(configured(**settings)) == agents
    with caplog.at_level(logging.WARNING, "afedpg"):
        cluster._warn_of_waiting(configured(**settings, agents=agents))
        assert caplog.text == ""
        cluster._warn_of_waiting(configured(**settings, agents=agents + 1))
    assert f"room for {agents} of {agents + 1} agents" in caplog.text
    assert ("GPU" in caplog.text) == ("agent_gpus" in settings)


def test_the_cost_counts_actors_that_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afedpg.engine.cost._resident", lambda: 0)  # it may grow from one call to the next
    here = configured("CartPole-v1", agents=3)
    away = configured("CartPole-v1", agents=3, ray_address="auto")
    workload, rule = parts_of(here, Own())
    more = _cost(here, workload, rule).memory - _cost(away, workload, rule).memory
    assert more == 3 * WORKER_BYTES + cluster.store_bytes(here, workload)


def test_the_variables_of_a_local_cluster_are_gone_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_worker_niceness", "3")
    before = dict(os.environ)
    tokens = set()
    for _ in range(2):
        with cluster._environment():
            os.environ["RAY_SET_BY_RAY"] = "1"
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
            assert before.items() <= dict(os.environ).items()  # what the user has set stays
        assert dict(os.environ) == before
    assert len(tokens) == 2


def test_a_ray_that_cannot_start_here_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**settings: Any) -> None:
        raise OSError("AF_UNIX path length cannot exceed 107 bytes\nand more")

    monkeypatch.setattr(ray, "init", init)
    config = configured()
    with (
        pytest.raises(ConfigError, match=r"^engine: Ray cannot start here: AF_UNIX path length .* 107 bytes$"),
        cluster.cluster(config, Own().workload(config)()),
    ):
        pass
