"""The live engine by itself: leases, deadlines, rounds, and who may be answered. No sockets, no waiting."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from served import Served

from afedpg import train
from afedpg.config import from_settings
from afedpg.engine.members import LONGEST_PAUSE, recall
from afedpg.engine.process import DeadEnd
from afedpg.engine.stall import Stall
from afedpg.messages import Moments, Report, Restart, Stats, Task
from afedpg.protocol import federation_pb2 as pb
from afedpg.server.moments import take
from afedpg.transport.grpc.port import AgentPort
from afedpg.transport.grpc.wire import encode_report

SIZE = 6


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Where nothing is in numba's cache yet, the first report would take seconds, and a round would be over."""
    for method in ("afedpg", "fedpg"):
        train("quadratic", method=method, agents=2, iterations=1)


def live(folder: Path, test: Callable[[Served], Awaitable[None]], **settings: object) -> None:
    async def run() -> None:
        config = {"task": "quadratic", "dimension": SIZE, "iterations": 10**6, "agents": 3, **settings}
        served = Served(from_settings(config), folder, recorded=False)
        await test(served)
        assert served.engine._failure is None

    asyncio.run(run())


def answer(task: Task) -> bytes:
    return encode_report(Report(task.task_id, task.agent_id, np.ones(SIZE, np.float32), task.version, stats=Stats(1)))


async def connected(served: Served, count: int) -> list[AgentPort]:
    ports = [served.connect(number) for number in range(count)]
    for port in ports:
        await port.flush()
    return ports


def states(served: Served) -> dict[int, bool]:
    return {number: member.port is not None for number, member in served.engine.members.items()}


def test_an_agent_is_dropped_when_its_lease_ends_and_may_come_back(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        ports = await connected(served, 2)
        served.engine.members[0].heard -= 16
        served.engine._tick(time.monotonic(), 0.0)
        assert states(served) == {0: False, 1: True}
        assert list(served.federation.server.outstanding) == [1]
        assert "silent" in ports[0].closed
        again = served.connect(0)
        await again.flush()
        await served.send(again, answer(served.task_of(again)))
        assert served.federation.server.gradients == 1

    live(tmp_path, test)


def test_a_server_that_was_itself_asleep_drops_nobody(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await connected(served, 2)
        for member in served.engine.members.values():
            member.heard -= 100
        served.engine._tick(time.monotonic(), 100.0)
        assert states(served) == {0: True, 1: True}

    live(tmp_path, test)


def test_a_report_counts_once_and_not_after_a_reconnection(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        (port,) = await connected(served, 1)
        task = served.task_of(port)
        await served.send(port, answer(task))
        await served.send(port, answer(task))
        assert served.federation.server.gradients == 1
        pending = served.task_of(port)
        newer = served.connect(0)  # what it was given before is void
        await newer.flush()
        await served.send(newer, answer(pending))
        assert served.federation.server.gradients == 1
        assert served.engine.members[0].rejected == 2
        served.engine.leave(0, port, "the old connection")  # which must not take the new one along
        assert states(served) == {0: True}

    live(tmp_path, test)


def assert_unused(served: Served, port: AgentPort, samples: int) -> None:
    """A report of a round that was closed is no lie: its agent is told nothing, its samples count, no step has it."""
    outcome, server, member = served.federation.outcome, served.federation.server, served.engine.members[port.agent_id]
    assert outcome.unused is not None
    assert outcome.unused.agent_id == port.agent_id
    assert "late" in outcome.unused.reason
    assert (outcome.arrivals, outcome.rejected) == ([], None)
    assert (server.unused, server.samples, server.gradients) == (1, samples, samples - 1)
    assert (member.unused, member.rejected, member.gradients) == (1, 0, 0)
    assert all(message.WhichOneof("content") != "refusal" for message in port.context.sent)


def test_a_round_closes_at_its_deadline_and_the_straggler_is_taken_along(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        ports = await connected(served, 3)
        late = served.task_of(ports[2])
        served.engine._watch_round(time.monotonic())
        for port in ports[:2]:
            await served.send(port, answer(served.task_of(port)))
        assert served.federation.server.iteration == 0
        served.engine._watch_round(time.monotonic() + 5)
        assert served.federation.server.iteration == 0
        served.engine._watch_round(time.monotonic() + 11)
        for port in ports:
            await port.flush()
        assert served.federation.server.iteration == 1
        assert served.federation.server.gradients == 2
        await served.send(ports[2], answer(late))
        assert_unused(served, ports[2], samples=3)
        assert served.task_of(ports[2]).version == 1

    live(tmp_path, test, method="fedpg", deadline=10.0)


async def waits_for_one(served: Served) -> list[AgentPort]:
    """Two of three agents have answered, the slower of them in 20 seconds; the third only sends heartbeats."""
    ports = await connected(served, 3)
    served.engine._watch_round(time.monotonic())
    for port, seconds in zip(ports[:2], (0, 20), strict=True):
        # Said at the last moment: every second that this process itself took would count ten times.
        served.engine.members[port.agent_id].handed_out = time.monotonic() - seconds
        await served.send(port, answer(served.task_of(port)))
    served.engine.members[2].handed_out = time.monotonic()
    return ports


def test_an_idler_does_not_stop_the_rounds_for_ever(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        ports = await waits_for_one(served)
        server = served.federation.server
        served.engine._watch_round(time.monotonic() + 190)
        assert server.iteration == 0
        served.engine._watch_round(time.monotonic() + 210)  # ten times the slowest answer
        assert (server.iteration, server.gradients) == (1, 2)
        for port in ports[:2]:
            await port.flush()
            await served.send(port, answer(served.task_of(port)))
        assert (server.iteration, server.gradients) == (2, 4)  # nobody waits for it now
        await served.send(ports[2], answer(served.task_of(ports[2])))
        assert_unused(served, ports[2], samples=5)
        assert served.task_of(ports[2]).version == 2

    live(tmp_path, test, method="fedpg")


@pytest.mark.parametrize(("deadline", "iteration"), [(0.0, 0), (3600.0, 0), (100.0, 1)])
def test_a_deadline_that_was_given_stands(tmp_path: Path, deadline: float, iteration: int) -> None:
    async def test(served: Served) -> None:
        await waits_for_one(served)
        served.engine._watch_round(time.monotonic() + 1000)
        assert served.federation.server.iteration == iteration

    live(tmp_path, test, method="fedpg", deadline=deadline)


async def refused(served: Served, port: AgentPort, times: int) -> None:
    for _ in range(times):
        task = served.task_of(port)
        too_long = Report(task.task_id, task.agent_id, np.full(SIZE, 9.0, np.float32), task.version, stats=Stats(1))
        await served.send(port, encode_report(too_long))


def test_a_run_whose_every_report_is_refused_says_so_and_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        config = {"task": "quadratic", "dimension": SIZE, "agents": 3, "max_norm": 5.0}
        served = Served(from_settings(config), tmp_path, recorded=False)
        served.engine.stall = Stall(3)
        ports = await connected(served, 3)
        await refused(served, ports[0], 100)  # one agent alone, even so
        served.service._handle(ports[1], b"nonsense", too_many=False)
        served.engine.stall.say(time.monotonic() + 31)
        said = "nothing was accepted for 31 s, 101 reports refused, the last of agent 1: message: not of this protocol"
        assert said in caplog.text
        assert served.engine._failure is None
        await refused(served, ports[1], 8)
        await served.send(ports[2], answer(served.task_of(ports[2])))  # one that is believed: from the start again
        await refused(served, ports[0], 10)
        await refused(served, ports[1], 9)
        assert not served.engine.over
        await refused(served, ports[1], 1)
        assert served.engine.over
        assert isinstance(served.engine._failure, DeadEnd)
        assert str(served.engine._failure).startswith(
            "20 reports in a row of 2 agents refused, the last of agent 1: contribution: norm 22 is above the bound 5"
        )

    asyncio.run(test())


@pytest.mark.parametrize("before", [0, 2])  # agents that came and went
def test_time_in_which_nobody_is_there_is_not_taken_from_a_round(tmp_path: Path, before: int) -> None:
    async def test(served: Served) -> None:
        for port in await connected(served, before):
            served.engine.leave(port.agent_id, port, "gone")
        served.engine._watch_round(time.monotonic())
        served.engine._opened -= 30
        now = time.monotonic()
        ports = await connected(served, 3)
        await served.send(ports[0], answer(served.task_of(ports[0])))
        served.engine._watch_round(now + 9)
        assert served.federation.server.iteration == 0
        served.engine._watch_round(time.monotonic() + 11)
        assert served.federation.server.iteration == 1

    live(tmp_path, test, method="fedpg", deadline=10.0)


def test_who_joins_a_round_does_not_put_off_its_deadline(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        (first,) = await connected(served, 1)
        served.engine._watch_round(time.monotonic())
        served.engine._opened -= 30
        second = served.connect(1)
        await second.flush()
        await served.send(second, answer(served.task_of(second)))
        served.engine._watch_round(time.monotonic())
        assert served.federation.server.iteration == 1
        assert list(served.federation.server.outstanding) == [first.agent_id, second.agent_id]

    live(tmp_path, test, method="fedpg", deadline=10.0)


@pytest.mark.parametrize("deadline", [None, 0.0, 3600.0])
def test_a_server_that_was_started_again_waits_for_who_took_part(tmp_path: Path, deadline: float | None) -> None:
    """The first to come back has no round for itself, and who stays away for its lease and a pause is gone."""

    async def test(served: Served) -> None:
        ports = await connected(served, 3)
        await served.send(ports[0], answer(served.task_of(ports[0])))
        for member in served.engine.members.values():
            member.port = None
        served.engine._apply(Restart())
        server, started = served.federation.server, served.engine._started
        assert server.absent == {0, 1, 2}
        (first,) = await connected(served, 1)
        await served.send(first, answer(served.task_of(first)))
        served.engine._tick(started + 1, 0.0)
        assert (server.iteration, server.absent) == (0, {1, 2})
        second = served.connect(1)
        await second.flush()
        await served.send(second, answer(served.task_of(second)))
        for port in (first, second):
            served.engine.members[port.agent_id].heard += 100
        lease = served.config.network.lease
        for seconds in (2, lease + 1, LONGEST_PAUSE + lease - 1):
            served.engine._tick(started + seconds, 0.0)
            assert (server.iteration, server.absent) == (0, {2})
        served.engine._tick(started + LONGEST_PAUSE + lease + 1, 0.0)
        assert (server.iteration, server.gradients, server.absent) == (1, 2, set())

    live(tmp_path, test, method="fedpg", deadline=deadline)


def test_a_round_closes_at_its_deadline_without_who_did_not_come_back(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        for port in await connected(served, 2):
            served.engine.members[port.agent_id].port = None
        served.engine._apply(Restart())
        (first,) = await connected(served, 1)
        await served.send(first, answer(served.task_of(first)))
        served.engine._watch_round(time.monotonic())
        served.engine._watch_round(time.monotonic() + 6)
        server = served.federation.server
        assert (server.iteration, server.gradients, server.absent) == (1, 1, set())

    live(tmp_path, test, method="fedpg", deadline=5.0)


def test_a_round_does_not_wait_for_who_is_gone(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        ports = await connected(served, 3)
        for port in ports[:2]:
            await served.send(port, answer(served.task_of(port)))
        served.engine.leave(2, ports[2], "gone")
        assert served.federation.server.iteration == 1

    live(tmp_path, test, method="fedpg")


def test_heartbeats_are_answered_and_out_of_place_messages_refused(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        (port,) = await connected(served, 1)
        await served.send(port, pb.FromAgent(heartbeat=pb.Heartbeat()).SerializeToString())
        assert port.context.sent[-1].WhichOneof("content") == "heartbeat"
        for number, message in enumerate((pb.FromAgent(join=pb.Join()), FETCH, pb.FromAgent()), 2):
            await served.send(port, message.SerializeToString())
            assert "out of place" in port.context.newest("refusal").reason
            assert served.task_of(port).task_id.counter == number  # in place of the one it had

    live(tmp_path, test)


FETCH = pb.FromAgent(fetch=pb.Fetch())


def test_who_fetches_late_gets_a_task_when_it_asks(tmp_path: Path) -> None:
    """Its report is answered by nothing; a fetch that is not due is refused, and its Task stays."""

    async def test(served: Served) -> None:
        rule = served.federation.rule
        served.federation.rule = replace(rule, exchange=replace(rule.exchange, late_fetch=True))
        (port,) = await connected(served, 1)
        first = served.task_of(port)
        await served.send(port, answer(first))
        server = served.federation.server
        assert (server.gradients, server.outstanding) == (1, {})
        assert served.task_of(port) is not first
        assert served.task_of(port).task_id == first.task_id
        await served.send(port, answer(first))
        assert "not outstanding" in port.context.newest("refusal").reason
        assert server.outstanding == {}
        await served.send(port, FETCH.SerializeToString())
        second = served.task_of(port)
        assert second.version == 1
        await served.send(port, FETCH.SerializeToString())
        assert "fetch" in port.context.newest("refusal").reason
        await served.send(port, answer(second))
        assert (server.gradients, served.engine.members[0].rejected) == (2, 2)

    live(tmp_path, test)


def test_an_agent_has_the_gradients_that_were_applied(tmp_path: Path) -> None:
    """Not those that waited in a round and were thrown away with it."""

    async def test(served: Served) -> None:
        def counts() -> dict[int, int]:
            return {number: member.gradients for number, member in served.engine.members.items()}

        ports = await connected(served, 3)
        await served.send(ports[0], answer(served.task_of(ports[0])))
        assert counts() == {0: 0, 1: 0, 2: 0}
        served.engine.leave(0, ports[0], "gone")
        for port in ports[1:]:
            await served.send(port, answer(served.task_of(port)))
        assert counts() == {0: 0, 1: 1, 2: 1}
        assert served.federation.server.gradients == 2
        served.engine.members = recall(served.engine.status(), {1: (7, 0, 0), 5: (2, 4, 3)})
        assert counts() == {0: 0, 1: 7, 2: 0, 5: 2}
        assert (served.engine.members[5].rejected, served.engine.members[5].unused) == (4, 3)
        served.connect(5)
        assert served.engine.members[5].name == "agent-5"

    live(tmp_path, test, method="fedpg")


def test_a_resumed_server_knows_how_long_ago_an_agent_was_seen(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await connected(served, 1)
        served.engine.members[0].heard -= 2
        stored = json.loads(served.engine.status())
        stored["time"] -= 1000  # that server stopped a while ago, perhaps before the machine was started again
        served.engine.members = recall(json.dumps(stored), {})
        (agent,) = json.loads(served.engine.status())["agents"]
        assert agent["state"] == "away"
        assert agent["last_seen"] == pytest.approx(1002, abs=50)
        await connected(served, 1)
        assert json.loads(served.engine.status())["agents"][0]["last_seen"] < 50

    live(tmp_path, test)


def test_a_clock_set_back_meanwhile_puts_nobody_into_the_future(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        await connected(served, 1)
        stored = json.loads(served.engine.status())
        stored["time"] += 3600
        served.engine.members = recall(json.dumps(stored), {})
        assert 0 <= json.loads(served.engine.status())["agents"][0]["last_seen"] < 50

    live(tmp_path, test)


class Slow:
    """A line that takes nothing before it is open."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = 0
        self.sent: list[str] = []

    async def write(self, data: bytes) -> None:
        self.asked += 1
        await self.open.wait()
        self.sent.append(str(pb.FromServer.FromString(data).WhichOneof("content")))


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0)


async def in_mid_write(served: Served) -> AgentPort:
    """Its handler itself is sending it its Task."""
    ports: list[AgentPort] = []

    async def handle() -> None:
        ports.append(served.connect(0, Slow()))
        await ports[0].flush()
        await asyncio.sleep(60)

    handler = asyncio.ensure_future(handle())
    await asyncio.sleep(0)
    assert ports[0].handler is handler
    served.service.ports.add(ports[0])
    return ports[0]


@pytest.mark.parametrize("last_word", ["finished", "refusal"])
def test_who_is_being_sent_a_task_still_hears_the_last_word(
    tmp_path: Path, last_word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afedpg.transport.grpc.port.GOODBYE_SECONDS", 60.0)

    async def test(served: Served) -> None:
        port = await in_mid_write(served)
        if last_word == "finished":
            served.engine.ended = True
            ending = [asyncio.ensure_future(served.service.dismiss())]
        else:
            served.engine.revoke(0, "removed from the allow-list")
            ending = []
        await asyncio.sleep(0.01)
        port.context.open.set()
        await asyncio.wait([port.handler, *ending], timeout=60)
        assert port.context.sent == ["task", last_word]
        assert port.handler.cancelled()

    live(tmp_path, test)


def test_a_line_that_takes_nothing_holds_up_the_end_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afedpg.transport.grpc.port.GOODBYE_SECONDS", 0.05)

    async def test(served: Served) -> None:
        port = await in_mid_write(served)
        served.engine.ended = True
        await asyncio.wait_for(served.service.dismiss(), timeout=60)
        await asyncio.wait([port.handler], timeout=60)
        assert port.handler.cancelled()
        assert port.context.sent == []

    live(tmp_path, test)


def test_what_comes_up_while_another_message_is_written_waits_for_the_disk_too(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        synced: list[int] = []  # Tasks that had been handed out by then
        served.service._sync = lambda: synced.append(served.federation.server.counter)
        port = await in_mid_write(served)
        await until(lambda: port.context.asked)
        served.engine.refuse(0, "a Task in place of the one it has")
        port.context.open.set()
        await until(lambda: len(port.context.sent) >= 3)
        assert port.context.sent == ["task", "refusal", "task"]
        assert synced == [1, 2]
        port.handler.cancel()

    live(tmp_path, test)


def test_those_who_wait_together_share_one_sync(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        syncs = []
        served.service._sync = lambda: syncs.append(1)
        ports = [served.connect(number) for number in range(5)]
        await asyncio.gather(*(port.flush() for port in ports))
        await asyncio.gather(*(served.service.on_disk() for _ in range(5)))
        assert 1 <= len(syncs) <= 3
        assert all(served.task_of(port).version == 0 for port in ports)

    live(tmp_path, test, agents=5)


def test_a_task_goes_out_only_once_the_journal_is_on_the_disk(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        order = []
        served.service._sync = lambda: order.append("synced")
        port = served.connect(0)
        write = port.context.write

        async def written(data: bytes) -> None:
            order.append("sent")
            await write(data)

        port.context.write = written
        await port.flush()
        assert order[:2] == ["synced", "sent"]

    live(tmp_path, test)


def test_who_is_cut_off_while_waiting_for_the_disk_harms_nobody(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        served.service._sync = lambda: None
        first, second = (asyncio.ensure_future(served.service.on_disk()) for _ in range(2))
        await asyncio.sleep(0)  # both wait now
        first.cancel()
        await second
        assert first.cancelled()

    live(tmp_path, test)


@pytest.mark.parametrize("broken", [OSError("no such disk"), ValueError("a bug")])
def test_a_failing_journal_ends_the_run_and_applies_nothing_more(tmp_path: Path, broken: Exception) -> None:
    async def run() -> None:
        config = {"task": "quadratic", "dimension": SIZE, "iterations": 10**6, "agents": 1}
        served = Served(from_settings(config), tmp_path)
        (port,) = await connected(served, 1)

        def fail(event: object, seconds: float) -> int:
            raise broken

        served.federation.recorder.journal.append = fail  # type: ignore[union-attr, method-assign]
        await served.send(port, answer(served.task_of(port)))
        await served.send(port, answer(served.task_of(port)))
        assert served.federation.server.gradients == 0
        assert served.engine._failure is broken
        served.close()

    asyncio.run(run())


@pytest.mark.parametrize("there", [True, False], ids=["connected", "gone"])
def test_who_is_taken_off_the_allow_list_takes_its_observations_along(tmp_path: Path, there: bool) -> None:
    """At the first look, too: the list may have changed while the server was down."""

    async def test(served: Served) -> None:
        ports = await connected(served, 2)
        for port in ports:
            served.service.roster.number(port.name)
        server, moments = served.federation.server, Moments(2.0, np.zeros(1), np.ones(1))
        for agent_id in range(2):
            merged = take(server.observed["observations"], server.statistics.get("observations"), agent_id, moments)
            assert merged is not None
            server.statistics = {"observations": merged}
        if not there:
            served.engine.leave(1, ports[1], "gone")
        served.service.roster._allowed = frozenset({"agent-0"})
        served.service.revoke()
        assert list(server.observed["observations"].slots) == list(server.outstanding) == [0]
        assert server.statistics["observations"].count == 2
        assert states(served) == {0: True, 1: False}

    live(tmp_path, test)
