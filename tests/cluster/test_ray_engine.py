"""`--engine ray`: the same fold, whatever happens to its actors. Inside a Ray that was there before and stays."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
import torch
from federations import wait_until
from nodes import actors
from twin import check_draws

import afedpg
from afedpg.config import from_settings
from afedpg.engine.workloads import BuildWorkload, MakeEnv
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import AgentState, Arrival, Report, Task, Vector
from afedpg.record import checkpoint
from afedpg.record.folder import RunFolder
from afedpg.record.journal import Journal
from afedpg.record.recorder import Recorder
from afedpg.record.states import unstack_states
from afedpg.runs import ray as runs
from afedpg.runs.live_session import Parts, new_parts
from afedpg.runs.parts import Own, configure
from afedpg.runs.ray import serve
from afedpg.runs.replay import replay
from afedpg.runs.train import resume
from afedpg.transport.ray import pool as pools
from afedpg.transport.ray.pool import RayPool

pytestmark = pytest.mark.usefixtures("session")
ONE = {"agents": 1, "iterations": 40, "dimension": 30}


@pytest.fixture(autouse=True)
def no_actor_is_left() -> Iterator[None]:
    """Nor does the next test meet one that is still ending."""
    yield
    wait_until(lambda: not actors(os.getpid()))


def test_one_agent_gives_the_bits_of_virtual_time_though_its_actor_dies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next actor goes on from the state the last one reported with: no draw is lost, none is used twice."""

    def kill(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient in (10, 25):
            for actor in actors(os.getpid()):
                actor.kill()

    with caplog.at_level(logging.WARNING, "afedpg"):
        done = afedpg.train("quadratic", engine="ray", out=tmp_path / "run", on_arrival=kill, **ONE)
    assert caplog.text.count("is placed again") == 2
    assert done.sha256 == afedpg.train("quadratic", **ONE).sha256
    assert replay(tmp_path / "run").agrees
    check_draws(tmp_path / "run")
    with sqlite3.connect(tmp_path / "run" / "run.db") as database:
        rows = database.execute("SELECT gradient, task_id FROM arrivals ORDER BY gradient").fetchall()
    assert [gradient for gradient, _ in rows] == list(range(1, 41))
    assert len({task_id for _, task_id in rows}) == 40
    assert ray.is_initialized()


def test_its_rates_fall_over_the_servers_steps() -> None:
    settings = {**SMALL, "method": "afedppo", "aggregator": "fedbuff:size=2", "iterations": 6, "agents": 1}
    there = afedpg.train("CartPole-v1", **settings)
    assert there.sha256 == afedpg.train("CartPole-v1", **{**settings, "engine": "virtual"}, workers=1).sha256


def test_an_interrupted_run_goes_on_with_its_agents_states(tmp_path: Path) -> None:
    """The checkpoint has each state from before the Task that was out: the bits are those of a run in one piece."""

    def interrupt(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient == 20:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(AfedpgError, match="interrupted after gradient 20 of 40; go on with: afedpg resume"):
        afedpg.train("quadratic", engine="ray", out=tmp_path / "run", on_arrival=interrupt, **ONE)
    with pytest.raises(ConfigError, match="ray_address: nothing answers"):
        resume(tmp_path / "run", cluster={"ray_address": "127.0.0.1:1"})
    assert resume(tmp_path / "run", cluster={"agent_cpus": 0.25}).sha256 == afedpg.train("quadratic", **ONE).sha256
    assert replay(tmp_path / "run").agrees


def test_an_interrupted_checkpoint_has_no_state_from_after_a_report_that_came_too_late(tmp_path: Path) -> None:
    """The other agents' reports are there by the time the interruption is noticed, and count no more."""

    applied = Counter[int]()

    def interrupt(arrival: Arrival, seconds: float, theta: Vector) -> None:
        applied[arrival.agent] += 1
        if len(applied) == 3:
            time.sleep(0.5)
            signal.raise_signal(signal.SIGTERM)

    settings = {**ONE, "agents": 3, "iterations": 10**6}
    with pytest.raises(AfedpgError, match="interrupted after gradient"):
        afedpg.train("quadratic", engine="ray", out=tmp_path, on_arrival=interrupt, **settings)
    _, tree = checkpoint.load_latest(RunFolder(tmp_path).checkpoints)
    states = unstack_states(tree["engine"]["agents"])
    full = len(states[0]["draws"])
    assert [int(state["used"][0]) for state in states] == [(applied[agent] - 1) % full + 1 for agent in range(3)]


def test_a_run_that_was_killed_goes_on_with_other_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal is ahead of its agents' states: the samples between were used."""

    def die(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient == 20:
            raise KeyError("as if killed: no last checkpoint")

    with pytest.raises(KeyError, match="as if killed"):
        afedpg.train("quadratic", engine="ray", out=tmp_path / "run", on_arrival=die, **ONE)
    lives: list[int] = []
    place = RayPool.place
    monkeypatch.setattr(RayPool, "place", lambda pool, *how: (lives.append(how[-1]), place(pool, *how))[1])
    done = resume(tmp_path / "run")
    assert lives == [1]
    assert done.gradients == 40
    assert done.sha256 != afedpg.train("quadratic", **ONE).sha256
    assert replay(tmp_path / "run").agrees
    check_draws(tmp_path / "run")


@pytest.mark.parametrize("dimension", [20, pools.INLINE_BYTES // 4 + 1], ids=["inline", "stored"])
def test_a_round_of_fedpg_stores_a_large_theta_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    put, stored, syncs = ray.put, [], []
    monkeypatch.setattr(ray, "put", lambda value: (stored.append(type(value)), put(value))[1])
    monkeypatch.setattr(Recorder, "_journalled", lambda recorder: recorder.journal.next_sequence)  # run.db's own syncs
    sync = Journal._sync
    monkeypatch.setattr(Journal, "_sync", lambda journal: (syncs.append(1), sync(journal))[1])
    settings = {"method": "fedpg", "agents": 3, "iterations": 8, "dimension": dimension}
    done = afedpg.train("quadratic", engine="ray", durable=True, out=tmp_path / "run", **settings)
    assert (done.iteration, done.gradients) == (8, 24)  # all three in every round
    assert stored.count(np.ndarray) == (8 if dimension > 20 else 0)  # a Task of the last theta~ is never sent
    assert 8 <= len(syncs) <= 8 + 3  # once per round, however many Tasks it brings, and for agents that join
    assert done.sha256 == afedpg.train("quadratic", **settings).sha256


def test_a_round_of_fedpg_goes_on_without_an_actor_that_dies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def kill(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient == 9:
            actors(os.getpid())[0].kill()

    settings = {"method": "fedpg", "agents": 3, "iterations": 20, "engine": "ray", "out": tmp_path / "run"}
    with caplog.at_level(logging.WARNING, "afedpg"):
        done = afedpg.train("quadratic", on_arrival=kill, **settings)
    assert caplog.text.count("is placed again") == 1
    assert done.gradients >= 60
    assert done.iteration >= 20  # rounds of two, until it is back
    assert replay(tmp_path / "run").agrees
    check_draws(tmp_path / "run")


def corridor(length: int) -> MakeEnv:
    """Made in here, so that it cannot be imported: Ray sends its code."""

    class Corridor(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Box(-1, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)
        at = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.at = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.at += 1
            return np.full(1, self.at / length, np.float32), float(action), self.at == length, False, {}

    return lambda agent: Corridor()


SMALL = {"engine": "ray", "agents": 1, "iterations": 3, "steps": 16, "evaluate_episodes": 1, "hidden": (4,)}


def test_an_environment_of_ones_own_is_sent_even_if_it_is_a_closure(tmp_path: Path) -> None:
    settings = {**SMALL, "make_env": corridor(5)}
    done = afedpg.train("corridor", **settings, out=tmp_path / "run")
    assert done.samples == 48
    assert done.sha256 == afedpg.train("corridor", **settings | {"engine": "virtual"}).sha256


@pytest.mark.parametrize(
    ("build_fails", "message"),
    [(False, "^agent 0: the door is locked$"), (True, "agent 0 failed 5 times in a row: KeyError: 'no such door'")],
    ids=["work", "start"],
)
def test_an_agent_that_fails_is_not_started_for_ever(
    monkeypatch: pytest.MonkeyPatch, build_fails: bool, message: str
) -> None:
    """What the work itself says is wrong ends the run at once; what may be the node's fault gets five trials."""

    class Broken(BuildWorkload):
        def __call__(self) -> Any:
            if build_fails:
                raise KeyError("no such door")
            return self

        def start(self, agent_id: int) -> AgentState:
            return {}

        def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
            raise AfedpgError(f"agent {task.agent_id}: the door is locked")

    monkeypatch.setattr(pools, "LONGEST_PAUSE", 0.1)
    config = configure("quadratic", None, {"engine": "ray", "agents": 1})
    with pytest.raises(AfedpgError, match=message):
        serve(new_parts(config, Own(), None), Broken(config))


@pytest.mark.parametrize("at_start", [True, False], ids=["start", "work"])
def test_one_agent_that_always_dies_ends_the_run_though_others_work(
    monkeypatch: pytest.MonkeyPatch, at_start: bool
) -> None:
    """As after a crash in native code: no exception that could be counted."""

    class Deadly(BuildWorkload):
        def __call__(self) -> Any:
            workload = super().__call__()

            def start(agent_id: int) -> AgentState:
                if agent_id == 1 and at_start:
                    os._exit(1)
                return type(workload).start(workload, agent_id)

            def work(state: AgentState, task: Task) -> tuple[AgentState, Report]:
                if task.agent_id == 1:
                    os._exit(1)
                return type(workload).work(workload, state, task)

            return SimpleNamespace(start=start, work=work)

    monkeypatch.setattr(pools, "MOST_DEATHS", 3)
    config = configure("quadratic", None, {"engine": "ray", "agents": 2, "iterations": 10**6})
    with pytest.raises(AfedpgError, match=r"^agent 1 died 3 times in a row without a gradient, at last .*: out of"):
        serve(new_parts(config, Own(), None), Deadly(config))


def test_the_log_says_what_agents_wait_for(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """More of a processor each than are free, because somebody else has them."""
    monkeypatch.setattr(pools, "PATIENCE", 0.2)

    @ray.remote(num_cpus=7)
    class Busy:
        def ready(self) -> None:
            pass

    def make_room() -> None:
        wait_until(lambda: "wait for room" in caplog.text)
        ray.kill(busy)

    busy = Busy.remote()
    ray.get(busy.ready.remote())
    wait_until(lambda: ray.available_resources().get("CPU") == 1, what="Ray itself knows what is free")
    other = threading.Thread(target=make_room)
    other.start()
    with caplog.at_level(logging.WARNING, "afedpg"):
        done = afedpg.train("quadratic", engine="ray", agents=2, agent_cpus=4, iterations=3)
    other.join()
    assert "2 of 2 agents wait for room: each takes CPU 4, free are CPU 1; short of CPU" in caplog.text
    assert done.gradients == 6


@pytest.mark.parametrize("passes", range(6))
def test_an_agent_that_is_cancelled_while_others_gather_does_not_go_on(passes: int) -> None:
    """Or the end of the run would wait for it for ever."""

    async def cancel() -> None:
        pool = RayPool(Own().workload(from_settings({"task": "quadratic", "agents": 2, "engine": "ray"})), first=2)
        waits, again = (asyncio.ensure_future(pool.gathered(0)) for _ in range(2))
        await asyncio.sleep(0.01)
        assert not waits.done()  # one agent that came twice is not two
        other = asyncio.ensure_future(pool.gathered(1))
        for _ in range(passes):
            await asyncio.sleep(0)
        asked = waits.cancel()
        await asyncio.wait([waits, again, other])
        assert waits.cancelled() == asked

    asyncio.run(cancel())


def test_a_server_without_a_gpu_has_agents_that_use_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[Parts, BuildWorkload]] = []
    monkeypatch.setattr(runs, "serve", lambda *what: served.append(what))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    afedpg.train("CartPole-v1", **SMALL, device="cuda", agent_gpus=0.5)
    ((parts, build),) = served
    assert parts.config.agent.device == build.config.agent.device == "cuda"


def test_another_cluster_than_the_one_joined_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"ray_address: {address}, but this process has joined 127.0.0.1:"):
            afedpg.train("quadratic", engine="ray", ray_address=address, **ONE)


def test_where_nothing_listens_is_found_out_at_once() -> None:
    with pytest.raises(ConfigError, match=r"ray_address: nothing answers at 127\.0\.0\.1:1: "):
        afedpg.train("quadratic", engine="ray", ray_address="127.0.0.1:1", **ONE)


def test_what_cannot_be_sent_is_found_out_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="make_env, make_policy: Ray cannot send them"):
        afedpg.train("corridor", **SMALL, make_env=lambda agent: lock)


def test_a_state_that_is_slow_to_come_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One checkpoint does without it, the next one has it."""
    go_on = tmp_path / "go on"

    @ray.remote
    def slow() -> AgentState:
        while not go_on.exists():
            time.sleep(0.02)
        return workload.start(0)

    config = from_settings({"task": "quadratic", "agents": 1, "engine": "ray"})
    workload = Own().workload(config)()
    pool = RayPool(Own().workload(config))
    (slot,) = pool.slots
    slot.newest = slow.remote()
    monkeypatch.setattr(pools, "FETCH_SECONDS", 0.1)
    with caplog.at_level(logging.WARNING, "afedpg"):
        early = pool.to_tree()
    assert "older states of 1 agents" in caplog.text
    monkeypatch.undo()
    go_on.touch()
    ray.wait([slot.newest], timeout=60)
    late = pool.to_tree()
    assert (early["behind"].tolist(), late["behind"].tolist(), slot.behind) == ([True], [False], False)
    assert unstack_states(late["agents"])[0].keys() == workload.start(0).keys()


def test_a_lost_state_is_replaced_by_the_last_one_fetched_with_other_streams(caplog: pytest.LogCaptureFixture) -> None:
    config = from_settings({"task": "quadratic", "agents": 2, "engine": "ray"})
    workload = Own().workload(config)()
    pool = RayPool(Own().workload(config))
    kept, lost = pool.slots
    kept.newest = ray.put(workload.start(0))
    lost.state = workload.start(1)

    @ray.remote(max_retries=0)
    def fails() -> None:
        raise KeyError("gone")

    lost.newest = fails.remote()
    ray.wait([lost.newest], timeout=60)
    with caplog.at_level(logging.WARNING, "afedpg"):
        tree = pool.to_tree()
    assert "agent 1: its newest state was lost" in caplog.text
    assert (kept.behind, lost.behind) == (False, True)
    again = RayPool(Own().workload(config))
    again.from_tree(tree)
    assert [slot.behind for slot in again.slots] == [False, True]
    for slot, agent_id in zip(again.slots, (0, 1), strict=True):
        assert slot.state is not None
        assert {key: array.tobytes() for key, array in slot.state.items()} == {
            key: array.tobytes() for key, array in workload.start(agent_id).items()
        }
