"""The live engine: real time, and agents that are connected, silent, gone, or lying.

It knows who is there, when each was last heard, and when a round is over. Bytes and sockets are a transport's, which
calls `join`, `report`, `refuse`, `heard` and `leave`, and gives every agent a `Port` to be answered through. All of it
runs in one thread: events are applied in the order they arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from afedpg.config import NetworkConfig
from afedpg.engine.federation import Federation
from afedpg.engine.members import LONGEST_PAUSE, Member, Port, SiteReturn, describe
from afedpg.engine.own_schedules import BadSchedule
from afedpg.engine.stall import Stall
from afedpg.engine.trace import TraceWriter
from afedpg.errors import AfedpgError, BrokenPart
from afedpg.messages import CloseRound, Event, Fetch, Join, Leave, Outcome, Rejected, Report, Revoke, Task

TICK_SECONDS = 0.1
STATUS_SECONDS = 1.0
ROUND_TIMES, ROUND_SECONDS = 10.0, 60.0  # fedpg: how long a round waits, in times its slowest answer, and at least
SHOWN_REJECTIONS = 5  # of an agent, one by one in the log; then only every doubling
_NOTHING = Outcome([], [])
_log = logging.getLogger("afedpg")


def worth_a_line(count: int) -> bool:
    """Of what somebody does again and again: the first few times, then every doubling."""
    return count <= SHOWN_REJECTIONS or count & (count - 1) == 0


def in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Keeper(Protocol):
    """What a checkpoint keeps of the agents beyond what the server knows."""

    def to_tree(self) -> dict[str, Any]: ...

    def from_tree(self, tree: dict[str, Any]) -> None: ...


Transport = Callable[["LiveEngine"], AbstractAsyncContextManager[None]]
Drive = Callable[[Coroutine[Any, Any, Any]], Any]  # runs a coroutine to its end


@dataclass
class LiveEngine:
    federation: Federation
    network: NetworkConfig
    transport: Transport
    trace: TraceWriter | None = None
    watchers: list[Callable[[], None]] = field(default_factory=list)  # called every tick; may raise to stop
    before: float = 0.0  # seconds of earlier sessions of this run
    keeper: Keeper | None = None  # None: agents keep their states to themselves
    drive: Drive = asyncio.run
    stall: Stall = field(default_factory=lambda: Stall(sys.maxsize))  # so many agents: never the end
    members: dict[int, Member] = field(default_factory=dict)
    consistent: bool = True
    ended: bool = False  # the run is over, rather than interrupted
    _started: float = field(default_factory=time.monotonic)
    _opened: float = field(default_factory=time.monotonic)  # the present round
    _round: int = -1
    sites: list[SiteReturn] = field(default_factory=list)
    _noted: float = 0.0  # when the status was last written
    _failure: BaseException | None = None
    _finished: Callable[[], bool] = lambda: False
    _arrivals: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=11))  # time, gradients

    @property
    def seconds(self) -> float:
        return self.before + time.monotonic() - self._started

    @property
    def over(self) -> bool:
        """Nothing more is applied."""
        return self._done.is_set()

    def start(self) -> None:
        """Agents join when they want."""

    def to_tree(self) -> dict[str, Any]:
        kept = {} if self.keeper is None else self.keeper.to_tree()
        return {**kept, "seconds": self.seconds}

    def from_tree(self, tree: dict[str, Any]) -> None:
        self.before = max(self.before, tree["seconds"])
        if self.keeper is not None:
            self.keeper.from_tree(tree)

    def run(self, finished: Callable[[], bool]) -> None:
        """Serves until `finished`, which is asked after every event and may raise to stop."""
        self._finished = finished
        if finished():
            self.ended = True
            return
        self.drive(self._serve())
        if self._failure is not None:
            raise self._failure

    async def _serve(self) -> None:
        self._done = asyncio.Event()
        async with self.transport(self):
            last = time.monotonic()
            while not self._done.is_set():
                await self._pause()
                now = time.monotonic()
                self._tick(now, max(0.0, now - last - 2 * TICK_SECONDS))
                last = now
            self._note_status(time.monotonic())
        if self.trace is not None:
            self.trace.close()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS):
                await self._done.wait()

    # What the transport reports

    def join(self, agent_id: int, name: str, port: Port) -> None:
        member = self.members.setdefault(agent_id, Member(agent_id, name))
        if member.port is not None:
            self._drop(member, "its certificate connected again", final=True)
        member.name, member.port, member.heard = name, port, time.monotonic()
        _log.info("agent %d (%s) joined", agent_id, name)
        server = self.federation.server
        if not server.outstanding and not server.memory.kept:  # a round's time runs from its first hand-out
            self._opened = member.heard
        self._apply(Join(agent_id))

    def report(self, report: Report) -> None:
        if self.over:  # too late to count
            return
        member = self.members[report.agent_id]
        seconds = time.monotonic() - member.handed_out
        delay = self.federation.server.iteration - report.version
        rejected = self._apply(report).rejected
        if rejected is None:
            if self.federation.rule.exchange.late_fetch:  # its next seconds begin with sampling, before it asks
                member.handed_out += seconds
            member.note(delay, seconds)
            self.stall.accepted()
            if self.trace is not None:
                self.trace.add(report.agent_id, seconds)
        elif not rejected.void:
            self._refused(rejected)

    def fetch(self, agent_id: int) -> None:
        """An agent that fetches late has sampled: those seconds are part of its contribution's."""
        member = self.members[agent_id]
        since = member.handed_out
        self._apply(Fetch(agent_id))
        member.handed_out = since

    def refuse(self, agent_id: int, reason: str) -> None:
        """A message that was not even a report. The agent gets fresh parameters."""
        rejected = Rejected(agent_id, reason)
        self._apply(rejected)
        self._refused(rejected)

    def heard(self, agent_id: int) -> None:
        self.members[agent_id].heard = time.monotonic()

    def leave(self, agent_id: int, port: Port, reason: str) -> None:
        """That connection is over; a newer one of the same agent is not."""
        member = self.members[agent_id]
        if member.port is port:
            member.port = None
            if not self.over:
                _log.info("agent %d (%s) left: %s", agent_id, member.name, reason)
                self._apply(Leave(agent_id))

    def revoke(self, agent_id: int, reason: str) -> None:
        """An agent that is no longer trusted, here or not."""
        member, server = self.members.get(agent_id), self.federation.server
        if member is not None and member.port is not None:
            self._drop(member, reason, final=True)
        if any(agent_id in observed.slots for observed in server.observed.values()):
            _log.warning("agent %d: its statistics are taken out of the shared ones: %s", agent_id, reason)
            self._apply(Revoke(agent_id))

    # What follows from it

    def _refused(self, rejected: Rejected) -> None:
        try:
            self.stall.refused(rejected)
        except AfedpgError as error:
            self.fail(error)

    def _drop(self, member: Member, reason: str, final: bool = False) -> None:
        port, member.port = member.port, None
        _log.warning("agent %d (%s) dropped: %s", member.agent_id, member.name, reason)
        if port is not None:
            port.close(reason, final)
        self._apply(Leave(member.agent_id))

    def _apply(self, event: Event) -> Outcome:
        """Nothing an agent sends may end the server; what the disk says may, and then nothing more is applied."""
        outcome = _NOTHING
        if self.over:
            return outcome
        try:
            self.consistent = False
            outcome = self.federation.apply(event, self.seconds)
            self.consistent = True
            for arrival in outcome.arrivals:
                if (member := self.members.get(arrival.agent)) is not None:
                    member.gradients += 1
            if outcome.unused is not None and (member := self.members.get(outcome.unused.agent_id)) is not None:
                member.unused += 1
            if not self._ask():
                self._rejected(outcome.rejected)
                for task in outcome.tasks:
                    self._hand_out(task)
        except (BadSchedule, BrokenPart) as error:  # raised within the fold: what it left half done is not stored
            self.fail(error)
        except AfedpgError as error:  # raised before the fold or after it, never within
            self.consistent = True
            self.fail(error)
        except BaseException as error:
            self.fail(error)
        return outcome

    def _ask(self) -> bool:
        if self._finished():
            self.ended = True
            self._done.set()
        return self.ended

    def fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._done.set()

    def _rejected(self, rejected: Rejected | None) -> None:
        if rejected is None or (member := self.members.get(rejected.agent_id)) is None:
            return
        member.rejected += 1
        count = member.rejected
        if worth_a_line(count):
            _log.warning("agent %d (%s) refused, %d so far: %s", member.agent_id, member.name, count, rejected.reason)
        if member.port is not None:
            member.port.refuse(rejected.reason)

    def _hand_out(self, task: Task) -> None:
        member = self.members.get(task.agent_id)
        if member is not None and member.port is not None:
            member.handed_out = time.monotonic()
            member.port.give(task)

    # What time brings

    def _tick(self, now: float, stalled: float) -> None:
        """`stalled` seconds this very process was not running: nobody could have been heard then."""
        try:
            for watch in self.watchers:
                watch()
            self._ask()
        except BaseException as error:
            self.fail(error)
            return
        if now - self._started > self.network.lease + LONGEST_PAUSE:  # it may have just begun to pause
            for agent_id in sorted(self.federation.server.absent):
                _log.info("agent %d did not come back after the server was started again", agent_id)
                self._apply(Leave(agent_id))
        for member in self.members.values():
            member.heard += stalled
            if member.port is not None and now - member.heard > self.network.lease:
                self._drop(member, f"silent for {now - member.heard:.1f} s")
        self._watch_round(now)
        self.stall.say(now)
        if now - self._noted > STATUS_SECONDS:
            self._noted = now
            self._note_status(now)

    def _watch_round(self, now: float) -> None:
        server = self.federation.server
        if server.iteration != self._round:
            self._round, self._opened = server.iteration, now
        elif self.federation.open_round and self._overdue(now):
            awaited = (server.outstanding.keys() - server.late) | server.absent
            missing = ", ".join(str(agent_id) for agent_id in sorted(awaited)[:10])
            how = "round %d closed with %d gradients, without agents %s, which join a later one"
            _log.info(how, server.iteration, len(server.memory.kept), missing)
            self._opened = now
            self._apply(CloseRound())

    def _overdue(self, now: float) -> bool:
        """By the deadline, or without one, if all who are missing take far longer than the slowest that answered."""
        server, deadline = self.federation.server, self.network.deadline
        if deadline is not None:
            return 0 < deadline < now - self._opened
        slowest = max(self.members[given.agent].answered for given in server.memory.kept)
        patience = max(ROUND_SECONDS, ROUND_TIMES * slowest)
        # who may still come back after a restart is waited for by its lease, in `_tick`
        waited = all(now - self.members[agent_id].handed_out > patience for agent_id in server.outstanding)
        return waited and not server.absent

    def _note_status(self, now: float) -> None:
        self._arrivals.append((now, self.federation.server.gradients))
        if self.trace is not None:
            self.trace.flush()
        if self.federation.recorder is not None:
            try:
                self.federation.recorder.database.note("status", self.status())
            except AfedpgError as error:
                self.fail(error)

    def status(self) -> str:
        server = self.federation.server
        suspicions = self.federation.rule.aggregator.suspicions(server.memory)
        return describe(server, self.members, self.seconds, self.rate, self.sites, suspicions)

    @property
    def rate(self) -> float:
        """Gradients per second over the last ten seconds or so."""
        if len(self._arrivals) < 2:
            return 0.0
        (t0, g0), (t1, g1) = self._arrivals[0], self._arrivals[-1]
        return (g1 - g0) / (t1 - t0)
