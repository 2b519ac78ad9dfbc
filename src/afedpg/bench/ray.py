"""The ray engine: gradients per second one server takes in, and whole training against the local engine.

server   8 actors without work, journal and run.db on, against the same calls with nothing behind them: actors that
         answer a vector with another one, awaited by a bare loop
train    Hopper with 2 agents on 2 cores against `--engine local`, in environment steps per second

Subject and reference take turns, so that a busy machine slows both. `server_us` is the processor time of the server's
one thread per gradient: what bounds a server that has a core to itself.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from afedpg.bench.rows import check_tasks, compared
from afedpg.config import Config
from afedpg.engine.workloads import BuildWorkload
from afedpg.messages import AgentState, Arrival, Floats, Report, Stats, Task, Vector
from afedpg.runs.live_session import keep_record, new_parts
from afedpg.runs.parts import Own, configure
from afedpg.runs.train import run as train_run

SIZES = {"swimmer": 4_868, "hopper": 69_638, "walker2d": 274_956, "humanoid": 727_074}
TRAINED = "hopper"
ACTORS = 8
SECONDS = 4.0
AGENTS, ITERATIONS = 2, 60


class Idle:
    """An agent whose every report is ready made."""

    def __init__(self, parameters: int) -> None:
        self._gradient = np.full(parameters, 1e-3, np.float32)

    def start(self, agent_id: int) -> AgentState:
        return {"state": np.zeros(1)}

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        return state, Report(task.task_id, task.agent_id, self._gradient, task.version, stats=Stats(1))


@dataclass(frozen=True)
class BuildIdle(BuildWorkload):
    def __call__(self) -> Any:
        return Idle(self.config.dimension)


def run(tasks: Sequence[str] = tuple(SIZES), rounds: int = 3) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    if importlib.util.find_spec("ray") is None:
        print("without the ray engine: `pip install 'afedpg[ray]'` brings Ray")
        return []
    check_tasks(tasks, SIZES)
    rows = [_server(task, rounds) for task in tasks]
    return [*rows, _train(TRAINED, rounds)] if TRAINED in tasks else rows


def _server(task: str, rounds: int) -> dict[str, Any]:
    pairs = [(_taken_in(SIZES[task]), _bare(SIZES[task])) for _ in range(rounds)]
    ours, bare = zip(*pairs, strict=True)
    speeds = [rate.per_second for rate in ours]
    row = compared("ray", task, "server, journal and run.db", "bare actor calls", speeds, bare, "gradients/s")
    busy = min(rate.busy_us for rate in ours)
    print(f"best {max(speeds):,.0f}/s; {busy:,.0f} us of the server's thread each", flush=True)
    more = {"best_per_second": max(speeds), "server_us": busy, "actors": ACTORS, "parameters": SIZES[task]}
    return row | more


def _train(task: str, rounds: int) -> dict[str, Any]:
    pairs = [(_speed(task, "ray"), _speed(task, "local")) for _ in range(rounds)]
    ours, local = zip(*pairs, strict=True)
    return compared("ray", task, f"training, {AGENTS} agents", "local engine", ours, local, "steps/s")


class Rate:
    """Of what arrives once everybody has arrived twice, until the time is over."""

    def __init__(self) -> None:
        self._from = self._until = 0.0
        self._busy_from = self._busy_until = 0.0  # processor time of the thread that notes
        self._seen: dict[int, int] = {}
        self.amount = 0

    def note(self, who: int, amount: int, everybody: int) -> bool:
        """True when it is over."""
        now = time.perf_counter()
        self._seen[who] = self._seen.get(who, 0) + 1
        if not self._from:
            if len(self._seen) == everybody and min(self._seen.values()) > 1:
                self._from, self._busy_from = now, time.thread_time()
        else:
            self.amount += amount
            self._until, self._busy_until = now, time.thread_time()
        return bool(self._from) and now - self._from > SECONDS

    @property
    def per_second(self) -> float:
        return self.amount / (self._until - self._from)

    @property
    def busy_us(self) -> float:
        return 1e6 * (self._busy_until - self._busy_from) / self.amount


class _Over(Exception):
    pass


def _taken_in(parameters: int) -> Rate:
    """Gradients through the whole engine."""
    from afedpg.runs.ray import serve
    from afedpg.transport.ray.cluster import cluster

    config = configure(
        "quadratic", None, {"engine": "ray", "agents": ACTORS, "iterations": 10**7, "dimension": parameters}
    )
    rate = Rate()

    def arrived(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if rate.note(arrival.agent, 1, ACTORS):
            raise _Over

    parts = new_parts(config, Own(), arrived)
    with tempfile.TemporaryDirectory() as place, cluster(config, parts.workload):
        keep_record(parts, Path(place) / "run")
        try:
            serve(parts, BuildIdle(config))
        except _Over:
            return rate
    raise AssertionError("a run of ten million iterations has ended")


def _bare(parameters: int) -> float:
    """The same vectors through Ray alone."""
    import ray

    from afedpg.transport.ray.cluster import cluster

    config = configure("quadratic", None, {"engine": "ray", "agents": ACTORS, "dimension": parameters})
    with cluster(config, Own().workload(config)()):
        actors = [ray.remote(_Echo).remote(parameters) for _ in range(ACTORS)]
        return asyncio.run(_ask_all(actors, np.zeros(parameters, np.float32)))


class _Echo:
    def __init__(self, parameters: int) -> None:
        self._gradient = np.full(parameters, 1e-3, np.float32)

    def work(self, theta: Floats) -> Floats:
        return self._gradient


async def _ask_all(actors: list[Any], theta: Floats) -> float:
    rate, over = Rate(), asyncio.Event()

    async def ask(number: int, actor: Any) -> None:
        while not over.is_set():
            await actor.work.remote(theta)
            if rate.note(number, 1, len(actors)):
                over.set()

    await asyncio.gather(*(ask(number, actor) for number, actor in enumerate(actors)))
    return rate.per_second


def _speed(task: str, engine: str) -> float:
    """Environment steps per second from when every agent has arrived twice."""
    settings = {"agents": AGENTS, "iterations": ITERATIONS, "evaluate_episodes": 1, "evaluate_kind": "sampled"}
    config: Config = configure(task, "tuned", {**settings, "engine": engine})
    rate = Rate()

    def arrived(arrival: Arrival, seconds: float, theta: Vector) -> None:
        rate.note(arrival.agent, arrival.stats.steps, AGENTS)

    with tempfile.TemporaryDirectory() as place:
        train_run(config, out=Path(place) / "run", on_arrival=arrived)
    return rate.per_second
