"""How many gradients per second a server takes in: mutual TLS, journal, validation and run.db on, agents without work.

The reference is gRPC itself: a server that answers a message of that size with another one, and does nothing else, over
the same mutual TLS to the same clients. Subject and reference take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import IO, Any

import grpc
import numpy as np

from afedpg.bench.rows import check_tasks, compared
from afedpg.config import from_settings
from afedpg.errors import AfedpgError
from afedpg.messages import Report, Stats, TaskId
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.calls import EOF, open_work
from afedpg.transport.grpc.certs import make_certificates
from afedpg.transport.grpc.terms import terms
from afedpg.transport.grpc.tls import Identity

SIZES = {"swimmer": 4_868, "humanoid": 727_074}  # the paper's smallest and largest policy
CLIENTS = 8
WARM_SECONDS = 1.0
ECHO = "/afedpg.bench/Echo"


def run(tasks: Sequence[str] = tuple(SIZES), rounds: int = 3, seconds: float = 4.0) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    check_tasks(tasks, SIZES)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        certs = Path(scratch) / "certs"
        make_certificates(certs, ["127.0.0.1"], [f"agent-{number}" for number in range(CLIENTS)], 1)
        for name in tasks:
            measured = [_measure(certs, Path(scratch) / f"{name}-{turn}", name, seconds) for turn in range(rounds)]
            ours, echoed = zip(*measured, strict=True)
            what = "server, mutual TLS, journal and run.db"
            row = compared("network", name, what, "gRPC echo", ours, echoed, "gradients/s")
            rows.append(row | {"clients": CLIENTS, "parameters": SIZES[name]})
    return rows


def hold(agents: int, seconds: float, parameters: int = SIZES["swimmer"]) -> int:
    """So many agents connected at once, each with a Task it never finishes: how many are still there at the end."""
    with tempfile.TemporaryDirectory() as scratch:
        certs = Path(scratch) / "certs"
        make_certificates(certs, ["127.0.0.1"], [f"agent-{number}" for number in range(agents)], 1)
        with _federation(certs, Path(scratch) / "run", parameters) as address, _one_process() as clients:
            return clients.submit(_hold_clients, address, certs, agents, parameters, seconds).result()


def _measure(certs: Path, out: Path, name: str, seconds: float) -> tuple[float, float]:
    with _federation(certs, out, SIZES[name]) as address, _one_process() as clients:
        subject = clients.submit(_drive, address, certs, SIZES[name], seconds).result()
    with _echo(certs, SIZES[name]) as address, _one_process() as clients:
        reference = clients.submit(_drive_echo, address, certs, SIZES[name], seconds).result()
    return subject, reference


def _one_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


# Servers


@contextlib.contextmanager
def _federation(certs: Path, out: Path, parameters: int) -> Iterator[str]:
    command = [
        sys.executable, "-m", "afedpg", "server", "quadratic", "--dimension", str(parameters),
        "--listen", "127.0.0.1:0", "--cert", str(certs / "server"), "--out", str(out),
        "--iterations", "10000000", "--agents", str(CLIENTS),
        "--max-rate", "100000", "--json",
    ]  # fmt: skip
    with _process(command) as address:
        yield address


@contextlib.contextmanager
def _echo(certs: Path, parameters: int) -> Iterator[str]:
    module = "import sys; from afedpg.bench.network import _serve_echo; _serve_echo(*sys.argv[1:])"
    with _process([sys.executable, "-c", module, str(certs), str(parameters)]) as address:
        yield address


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[str]:
    """A server that takes a free port and says which: no other process can take it in between."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment)
        try:
            yield _address(process, said)
        finally:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], said: IO[str]) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        said.seek(0)
        if found := re.search(r"listening on port (\d+)\n", said.read()):
            return f"127.0.0.1:{found[1]}"
        time.sleep(0.05)
    said.seek(0)
    raise AfedpgError(f"bench: no server came up: {said.read().strip()[-300:]}")


def _serve_echo(certs: str, parameters: str) -> None:
    async def echo(requests: Any, context: Any) -> None:
        while (data := await context.read()) is not EOF:
            await context.write(data)

    async def serve() -> None:
        server = grpc.aio.server(options=_options(int(parameters)))
        methods: dict[str, Any] = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("afedpg.bench", methods),))
        port = server.add_secure_port("127.0.0.1:0", Identity.read(Path(certs) / "server").for_server())
        await server.start()
        print(f"listening on port {port}", file=sys.stderr, flush=True)
        await server.wait_for_termination()

    asyncio.run(serve())


# Clients: coroutines in one process of their own


def _drive(address: str, certs: Path, parameters: int, seconds: float) -> float:
    return asyncio.run(_together(_worker, address, certs, parameters, seconds))


def _drive_echo(address: str, certs: Path, parameters: int, seconds: float) -> float:
    return asyncio.run(_together(_echoed, address, certs, parameters, seconds))


async def _together(client: Any, address: str, certs: Path, parameters: int, seconds: float) -> float:
    """Answers per second within a window that begins when all are at work."""
    counts = [0] * CLIENTS
    tasks = [
        asyncio.ensure_future(client(address, certs / "agents" / f"agent-{number}", parameters, counts, number))
        for number in range(CLIENTS)
    ]
    while not all(counts):
        done = [task for task in tasks if task.done()]
        if done:
            done[0].result()
        await asyncio.sleep(0.05)
    await asyncio.sleep(WARM_SECONDS)
    before, started = sum(counts), time.monotonic()
    await asyncio.sleep(seconds)
    rate = (sum(counts) - before) / (time.monotonic() - started)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rate


async def _worker(address: str, identity: Path, parameters: int, counts: list[int], number: int) -> None:
    async with _join(address, identity, parameters) as call:
        gradient = np.full(parameters, 1e-3, np.float32)
        while True:
            message = pb.FromServer.FromString(await call.read())
            if message.WhichOneof("content") == "task":
                task = message.task
                task_id = TaskId(task.task_id.epoch, task.task_id.counter)
                await call.write(wire.encode_report(Report(task_id, number, gradient, task.version, stats=Stats(1))))
                counts[number] += 1


async def _echoed(address: str, identity: Path, parameters: int, counts: list[int], number: int) -> None:
    credentials = Identity.read(identity).for_client()
    async with grpc.aio.secure_channel(address, credentials, _options(parameters)) as channel:
        open_echo: Any = channel.stream_stream
        call = open_echo(ECHO)()
        data = bytes(4 * parameters)
        while True:
            await call.write(data)
            await call.read()
            counts[number] += 1


@contextlib.asynccontextmanager
async def _join(address: str, identity: Path, parameters: int) -> Any:
    config = from_settings({"task": "quadratic", "dimension": parameters, "agents": CLIENTS})
    join = pb.Join(
        protocol=wire.PROTOCOL, parameters=parameters,
        fingerprint=wire.fingerprint("quadratic", parameters, terms(config)),
    )  # fmt: skip
    credentials = Identity.read(identity).for_client()
    async with grpc.aio.secure_channel(address, credentials, _options(parameters)) as channel:
        call = open_work(channel)
        await call.write(pb.FromAgent(join=join).SerializeToString())
        yield call


def _hold_clients(address: str, certs: Path, agents: int, parameters: int, seconds: float) -> int:
    return asyncio.run(_held(address, certs, agents, parameters, seconds))


async def _held(address: str, certs: Path, agents: int, parameters: int, seconds: float) -> int:
    """How many of the agents still get their heartbeats answered at the end."""

    async def one(number: int) -> bool:
        beat = pb.FromAgent(heartbeat=pb.Heartbeat()).SerializeToString()
        async with _join(address, certs / "agents" / f"agent-{number}", parameters) as call:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await asyncio.sleep(3.0)
                await call.write(beat)
                while pb.FromServer.FromString(await call.read()).WhichOneof("content") != "heartbeat":
                    pass
        return True

    ends = await asyncio.gather(*(one(number) for number in range(agents)), return_exceptions=True)
    return sum(end is True for end in ends)


def _options(parameters: int) -> list[tuple[str, int]]:
    most = wire.message_bytes(parameters)
    return [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most)]
