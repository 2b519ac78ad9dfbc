"""theta is evaluated beside the federation: however a run ends, its last evaluation is of what it delivers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import curves

from afedpg.engine.federation import OnArrival
from afedpg.engine.live import LiveEngine
from afedpg.engine.process import Interrupted, Interruption
from afedpg.messages import Arrival, Evaluation, Floats, Task, Vector, Workload
from afedpg.problems.problem import ProblemWorkload
from afedpg.record import folder as folders
from afedpg.record.database import read_arrivals, read_evaluations, read_table
from afedpg.runs import live_session
from afedpg.runs.live_session import Parts, keep_record, new_parts, restored_parts, run_live
from afedpg.runs.parts import Own, configure
from afedpg.runs.requests import StoredRun
from afedpg.runs.session import Result

SETTINGS = {"agents": 1, "iterations": 50, "evaluate_every": 10, "engine": "local"}


class Here:
    """An agent in the server's own process: the transport, the port and the agent at once."""

    def __init__(self, workload: Workload, over: threading.Event) -> None:
        self.workload, self.state, self.over = workload, workload.start(0), over

    @asynccontextmanager
    async def transport(self, engine: LiveEngine) -> AsyncIterator[None]:
        self.engine, self.loop = engine, asyncio.get_running_loop()
        engine.join(0, "agent-0", self)
        yield
        self.over.set()

    def give(self, task: Task) -> None:
        self.state, report = self.workload.work(self.state, task)
        self.loop.call_soon(self.engine.report, report)

    def refuse(self, reason: str) -> None:
        pytest.fail(reason)

    def close(self, reason: str, final: bool = False) -> None: ...


class AtOnce:
    """Stands in for the thread that evaluates."""

    def __init__(self, threads: int) -> None: ...

    def submit(self, evaluate: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(evaluate(*arguments))
        return future

    def shutdown(self, **how: bool) -> None: ...


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


class Slow:
    """Evaluations that take until the federation is over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over, self.at_work = threading.Event(), threading.Event()
        self.begun: list[int] = []
        evaluate = ProblemWorkload.evaluate

        def wait(workload: ProblemWorkload, theta: Floats, statistics: None, iteration: int) -> list[Evaluation]:
            self.begun.append(iteration)
            self.at_work.set()
            assert self.over.wait(60)
            return evaluate(workload, theta, statistics, iteration)

        monkeypatch.setattr(ProblemWorkload, "evaluate", wait)


def serve(parts: Parts, interruption: Interruption | None = None, over: threading.Event | None = None) -> Result:
    transport = Here(parts.workload, over or threading.Event()).transport
    with closing(parts.federation):
        return run_live(parts, transport, interruption or Interruption(), [])


def new(out: Path, on_arrival: OnArrival | None = None, own: Own = Own(), **settings: Any) -> Parts:
    parts = new_parts(configure("quadratic", None, {**SETTINGS, **settings}), own, on_arrival)
    keep_record(parts, out)
    return parts


def restored(out: Path, own: Own = Own()) -> Parts:
    folder = folders.open_run(out)
    return restored_parts(StoredRun(folder, own), folder.config())


def evaluated(out: Path) -> list[int]:
    return read_evaluations(out / "run.db")["gradients"].tolist()


def value(result: Result) -> float:
    workload = Own().workload(configure("quadratic", None, SETTINGS))()
    return workload.evaluate(result.theta.astype(np.float32), None, result.iteration)[0].mean


def test_a_run_that_ends_on_an_evaluation_waits_for_it(tmp_path: Path, slow: Slow) -> None:
    result = serve(new(tmp_path / "run", iterations=10), over=slow.over)
    assert slow.begun == evaluated(tmp_path / "run") == [10]
    assert result.evaluations[0].mean == value(result)


def test_a_run_that_ends_during_an_evaluation_makes_its_last_one(tmp_path: Path, slow: Slow) -> None:
    result = serve(new(tmp_path / "run"), over=slow.over)
    assert slow.begun == evaluated(tmp_path / "run") == [10, 50]
    assert result.evaluations[0].mean == value(result)


def test_an_evaluation_that_an_interruption_takes_is_made_up_for(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption()

    def interrupt(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient == 12:
            assert slow.at_work.wait(60)  # or it would be given up before its thread has begun it
            interruption.requested = True

    with pytest.raises(Interrupted, match="after gradient 12 of 50"):
        serve(new(tmp_path / "run", interrupt), interruption, slow.over)
    assert (slow.begun, evaluated(tmp_path / "run")) == ([10], [])
    monkeypatch.setattr(live_session, "ThreadPoolExecutor", AtOnce)
    result = serve(restored(tmp_path / "run"))
    assert evaluated(tmp_path / "run") == [12, 20, 30, 40, 50]
    assert result.evaluations[0].mean == value(result)


class Killed(BaseException):
    """Ends a run at once: nothing is stored any more."""


def test_evaluations_since_the_checkpoint_outlive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal brings the server past its checkpoint without them; nobody would make them again."""
    monkeypatch.setattr(live_session, "ThreadPoolExecutor", AtOnce)
    out = tmp_path / "run"

    def kill(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient == 45:
            raise Killed

    with pytest.raises(Killed):
        serve(new(out, kill))
    assert evaluated(out) == [10, 20, 30, 40]
    parts = restored(out)
    assert (parts.federation.server.gradients, parts.tree and parts.tree["server"]["gradients"]) == (45, 0)
    serve(parts)
    assert evaluated(out) == [10, 20, 30, 40, 45, 50]
    assert read_arrivals(out / "run.db")["gradient"].tolist() == list(range(1, 51))
    assert read_table(out / "run.db", "episodes")["gradient"].tolist() == list(range(1, 51))
    shown = [samples for samples, _ in curves(out)["return/evaluation/exact"]]
    assert shown == evaluated(out)  # a gradient of this problem is one sample


def test_the_best_theta_since_the_checkpoint_outlives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run.db tells how good it was, and the journal passes by it once more."""
    monkeypatch.setattr(live_session, "ThreadPoolExecutor", AtOnce)
    out, seen, own = tmp_path / "run", {}, Own(eta=lambda k, v: 0.1 if k < 20 else 3.0)

    def kill(arrival: Arrival, seconds: float, theta: Vector) -> None:
        seen[arrival.gradient] = theta.astype(np.float32)
        if arrival.gradient == 45:
            raise Killed

    with pytest.raises(Killed):
        serve(new(out, kill, own))
    assert read_evaluations(out / "run.db")["mean"].argmax() == 1
    parts = restored(out, own)
    assert parts.tree is not None
    assert (parts.tree["best"]["gradients"], parts.tree["looks"]) == (20, 4)
    result = serve(parts)
    assert result.best is not None
    assert (result.best.gradients, result.looks) == (20, 6)
    np.testing.assert_array_equal(result.best.theta, seen[20])
