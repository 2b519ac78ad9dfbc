"""Agents that lie. Each lie is refused with its reason, counted and told; the federation learns on meanwhile."""

from __future__ import annotations

from pathlib import Path

import grpc
import numpy as np
import pytest
from federations import Site, site, wait_until
from raw_agent import RawAgent, raw_agent

from afedpg.config import from_settings
from afedpg.messages import Moments, Report, Stats, Task, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.runs.replay import replay
from afedpg.transport.grpc.wire import encode_report

SIZE = 20
CONFIG = from_settings({"task": "quadratic", "dimension": SIZE, "agents": 2})


def good(task: Task) -> Report:
    return Report(task.task_id, task.agent_id, np.ones(SIZE, np.float32), task.version, stats=Stats(1))


def lie(agent: RawAgent, report: Report) -> str:
    agent.send(encode_report(report))
    return agent.refusal()


def changed(data: bytes) -> bytes:
    """One bit of the gradient, which is what a report ends with."""
    return data[:-1] + bytes((data[-1] ^ 1,))


def unknown_type(report: Report) -> pb.Report:
    content: pb.Report = pb.FromAgent.FromString(encode_report(report)).report
    content.dtype = "<f8"
    return content


LIES = 17


def told(federation: Site) -> list[tuple[str, int]]:
    """Who was refused how often, as the status says; it is written once a second."""
    return [(agent["name"], agent["rejected"]) for agent in federation.status()["agents"]]


def test_every_lie_is_refused_and_training_goes_on(tmp_path: Path) -> None:
    settings = ("--iterations", 100000, "--dimension", SIZE, "--max-delay", 10_000_000, "--keep-reports")
    with site(tmp_path, *settings, agents=2) as federation:
        federation.server()
        federation.agent(0, "--seconds-per-gradient", 0.01)
        with raw_agent(federation.port, CONFIG, SIZE, "liar") as liar:
            task = liar.task()
            nan = np.full(SIZE, np.nan, np.float32)
            assert lie(liar, good(task)._replace(payload=nan)) == "contribution: not finite"
            huge = np.full(SIZE, 1e30, np.float32)
            assert "above the bound" in lie(liar, good(liar.task())._replace(payload=huge))
            short = np.ones(SIZE - 1, np.float32)
            assert "19 numbers, theta has 20" in lie(liar, good(liar.task())._replace(payload=short))
            task = liar.task()
            assert "not outstanding" in lie(liar, good(task)._replace(version=task.version + 10**9))
            assert "not outstanding" in lie(liar, good(task)._replace(task_id=TaskId(0, 10**9)))
            poison = Moments(1e6, np.full(3, 1e8), np.full(3, 1e12))
            assert "moments" in lie(liar, good(task)._replace(moments={"observations": poison}))
            assert "moments" in lie(liar, good(liar.task())._replace(moments={"": poison, "x" * 999: poison}))
            assert "scalars" in lie(liar, good(liar.task())._replace(scalars={"weight": 1e300}))
            coded = np.ones(4 * SIZE, np.uint8)  # of a codec that this federation does not have
            assert "80 numbers, theta has 20" in lie(liar, good(liar.task())._replace(payload=coded))
            coded = np.ones(SIZE, np.uint8)
            assert "numbers of uint8, not float32" in lie(liar, good(liar.task())._replace(payload=coded))
            assert "theta has 20" in lie(liar, good(liar.task())._replace(payload=np.ones(0, np.float32)))
            liar.send(pb.FromAgent(report=unknown_type(good(liar.task()))).SerializeToString())
            assert liar.refusal().startswith("dtype: '<f8'")
            liar.task()
            liar.send(pb.FromAgent(fetch=pb.Fetch()).SerializeToString())  # nobody samples before it asks here
            assert liar.refusal() == "message: 'fetch' is out of place"
            task = liar.task()
            liar.send(changed(encode_report(good(task))))
            assert liar.refusal().startswith("checksum")
            task = liar.task()
            liar.send(encode_report(good(task)))
            liar.task()
            assert "not outstanding" in lie(liar, good(task))  # replayed
            assert "stats" in lie(liar, good(task)._replace(stats=Stats(2**62)))
            liar.send(b"\xff not protobuf")
            assert "not of this protocol" in liar.refusal()
            liar.send(bytes(3 << 20))  # more than any message may have: gRPC itself hangs up
            with pytest.raises(grpc.RpcError) as error:
                liar.refusal()
            assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        before = federation.gradients()
        wait_until(lambda: federation.gradients() > before + 20)
        wait_until(lambda: len(federation.query("SELECT reason FROM rejected")) == LIES)
        wait_until(lambda: ("liar", LIES) in told(federation), what="the status has every lie")
        assert federation.log().count("refused") >= 5
        federation.processes[0].terminate()
        assert federation.processes[0].wait(60) == 130
        assert replay(federation.run).agrees


def test_too_many_are_refused_and_slowed_down(tmp_path: Path) -> None:
    """A bucket of ten, then five per second: who sends faster is refused before long."""
    with site(tmp_path, "--iterations", 100000, "--dimension", SIZE, "--max-rate", 5, agents=1) as federation:
        federation.server()
        with raw_agent(federation.port, CONFIG, SIZE, "flood") as flood:
            task, reasons = flood.task(), []
            for _ in range(200):  # of which a slow machine believes a few more
                flood.send(encode_report(good(task)))
                while (message := flood.next()).WhichOneof("content") != "task":
                    reasons.append(message.refusal.reason)
                task = Task(
                    TaskId(message.task.task_id.epoch, message.task.task_id.counter),
                    0,
                    np.empty(0),
                    message.task.version,
                )
                if any(reason.startswith("rate") for reason in reasons):
                    break
            else:
                pytest.fail("200 in a row were believed")


def test_whoever_does_not_fit_is_told_why(tmp_path: Path) -> None:
    with site(tmp_path, "--iterations", 100000, "--dimension", SIZE, agents=1) as federation:
        federation.server()
        misfits = [
            ({"protocol": 99}, "protocol 99"),
            ({"parameters": 7}, "7 parameters"),
            ({"fingerprint": ""}, "differs"),
        ]
        for wrong, reason in misfits:
            with raw_agent(federation.port, CONFIG, SIZE, "misfit", wrong) as misfit:
                with pytest.raises(grpc.RpcError) as error:
                    misfit.next()
                assert reason in error.value.details()
                assert reason in federation.log()
        with raw_agent(federation.port, CONFIG, SIZE, "../../etc/passwd") as misfit:
            with pytest.raises(grpc.RpcError) as error:
                misfit.next()
            assert "not on the allow-list" in error.value.details()
        with grpc.insecure_channel(f"127.0.0.1:{federation.port}") as channel:
            call = channel.stream_stream("/afedpg.v1.Federation/Work")(iter([pb.FromAgent().SerializeToString()]))
            with pytest.raises(grpc.RpcError):
                next(call)
