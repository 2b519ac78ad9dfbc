"""The gRPC service: who is calling, what do the bytes mean, and back. Everything else is the live engine's."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from afedpg.engine.live import LiveEngine, worth_a_line
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.calls import EOF, TOKEN
from afedpg.transport.grpc.port import FRAME_BYTES, AgentPort
from afedpg.transport.grpc.rates import Bucket, Repeats
from afedpg.transport.grpc.roster import Roster
from afedpg.transport.grpc.tls import OPERATOR, common_name
from afedpg.transport.grpc.wire import PROTOCOL, SERVICE, Expected, Refused

MOST_SILENT, MOST_SILENT_SECONDS = 4, 15.0  # streams of one caller that have said nothing yet
_log = logging.getLogger("afedpg")
_HEARTBEAT = pb.FromServer(heartbeat=pb.Heartbeat()).SerializeToString()
_FINISHED = pb.FromServer(finished=pb.Finished()).SerializeToString()


@dataclass(frozen=True)
class Terms:
    """What an agent must agree with."""

    settings: str
    fingerprint: str
    expected: Expected


class Service:
    def __init__(
        self,
        engine: LiveEngine,
        roster: Roster,
        terms: Terms,
        secure: bool,
        token: str,
        sync: Callable[[], None] | None,
    ) -> None:
        self.engine = engine
        self.roster = roster
        self.terms = terms
        self.ports: set[AgentPort] = set()
        self._secure = secure
        self._token = token
        self._sync = sync  # None: the journal need not reach the disk before a Task goes out
        self._syncing: asyncio.Future[None] | None = None
        self._arrivals: dict[str, Bucket] = {}  # of connections, per agent
        self._denied = Repeats()
        self._compared = False  # the roster with the allow-list
        self._silent: Counter[str] = Counter()  # streams without a first message, by caller

    def handler(self) -> Any:
        """Messages stay bytes until our own code has looked at them: what gRPC cannot parse would end the stream."""
        methods: dict[str, Any] = {
            "Settings": grpc.unary_unary_rpc_method_handler(self.settings),
            "Work": grpc.stream_stream_rpc_method_handler(self.work),
            "Status": grpc.unary_unary_rpc_method_handler(self.status),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # Settings and Status

    async def settings(self, data: bytes, context: Any) -> bytes:
        try:
            request = wire.settings_request(data)
        except Refused as error:
            await self._deny(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        name = await self._identify(context, request.name)
        await self._check_protocol(context, request.protocol)
        await self._check_frequency(context, name)
        starts, number = self.roster.count_start(name), self.roster.number(name)
        return pb.SettingsReply(agent=number, settings=self.terms.settings, starts=starts).SerializeToString()

    async def status(self, data: bytes, context: Any) -> bytes:
        if self._secure and (name := common_name(context.auth_context())) != OPERATOR:
            await self._deny(context, grpc.StatusCode.PERMISSION_DENIED, f"'{name}' may not ask; use the operator's")
        await self._check_token(context)
        return pb.StatusReply(status=self.engine.status()).SerializeToString()

    # Work

    async def work(self, requests: Any, context: Any) -> None:
        try:
            join = wire.from_agent(await self._first(context)).join
        except Refused as error:
            await self._deny(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        name = await self._identify(context, join.name)
        await self._check_protocol(context, join.protocol)
        await self._check_terms(context, name, join)
        await self._check_frequency(context, name)
        handler = asyncio.current_task()
        assert handler is not None
        network = self.engine.network
        bucket = Bucket(network.max_rate, max(10.0, network.max_rate))
        port = AgentPort(context, name, self.roster.number(name), bucket, self.on_disk, handler)
        self.ports.add(port)
        reason = "its connection broke"
        try:
            welcome = pb.Welcome(agent=port.agent_id, lease_seconds=network.lease)
            port.put(pb.FromServer(welcome=welcome).SerializeToString())
            self.engine.join(port.agent_id, name, port)
            reason = await self._read(port)
        except asyncio.CancelledError:
            if not port.closed:  # the agent's side or gRPC itself ended it
                raise
        finally:
            self.ports.discard(port)
            self._count(port)
            self.engine.leave(port.agent_id, port, reason)

    async def _first(self, context: Any) -> bytes:
        """The agent's first message. Until it comes a stream is nobody's, so there may be only a few."""
        caller = self._caller(context)
        if self._silent[caller] >= MOST_SILENT:
            text = f"{MOST_SILENT} streams of this caller have said nothing yet"
            await self._deny(context, grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._silent[caller] += 1
        try:
            async with asyncio.timeout(min(self.engine.network.lease, MOST_SILENT_SECONDS)):
                data = await context.read()
        except TimeoutError as error:
            raise Refused("join: nothing was sent") from error
        finally:
            self._silent[caller] -= 1
            if not self._silent[caller]:
                del self._silent[caller]
        if data is EOF:
            raise Refused("join: nothing was sent")
        return bytes(data)

    async def _read(self, port: AgentPort) -> str:
        """The agent's messages until it goes; returns why it went."""
        while True:
            data = await port.context.read()
            if data is EOF:
                return "it hung up"
            port.bytes_up += len(data) + FRAME_BYTES
            wait = port.bucket.take(time.monotonic())
            if wait > 0:
                await asyncio.sleep(wait)  # not reading is the only brake that costs the server nothing
            with port.handling():
                if not self._handle(port, data, too_many=wait > 0):
                    return "it said goodbye"
            self._count(port)
            await port.flush()

    def _handle(self, port: AgentPort, data: bytes, too_many: bool) -> bool:
        """False when the agent is leaving."""
        self.engine.heard(port.agent_id)
        try:
            message = wire.from_agent(data)
            kind = message.WhichOneof("content")
            if kind == "leave":
                return False
            if too_many and kind != "fetch":  # an agent whose fetch is lost would wait for ever
                raise Refused(f"rate: more than {self.engine.network.max_rate:g} messages per second")
            if kind == "heartbeat":
                port.put(_HEARTBEAT)
            elif kind == "fetch" and self.engine.federation.rule.exchange.late_fetch:
                self.engine.fetch(port.agent_id)
            elif kind == "report":
                self.engine.report(wire.decode_report(message.report, port.agent_id, self.terms.expected))
            else:
                raise Refused(f"message: '{kind}' is out of place")
        except Refused as error:
            self.engine.refuse(port.agent_id, str(error))
        return True

    def _count(self, port: AgentPort) -> None:
        if (member := self.engine.members.get(port.agent_id)) is not None:
            member.bytes_up += port.bytes_up
            member.bytes_down += port.bytes_down
            port.bytes_up = port.bytes_down = 0

    # Who is there

    async def _identify(self, context: Any, claimed: str) -> str:
        await self._check_token(context)
        name = common_name(context.auth_context()) if self._secure else claimed
        if self._secure and claimed not in ("", name):
            text = f"'{name}' speaks as '{claimed[:64]}'; an agent is who its certificate says"
            await self._deny(context, grpc.StatusCode.PERMISSION_DENIED, text)
        if not self.roster.allows(name):
            await self._deny(context, grpc.StatusCode.PERMISSION_DENIED, f"'{name[:64]}' is not on the allow-list")
        return name

    async def _check_token(self, context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get(TOKEN, "")
        if self._token and not hmac.compare_digest(str(given).encode(), self._token.encode()):
            await self._deny(context, grpc.StatusCode.UNAUTHENTICATED, "wrong token")

    async def _check_protocol(self, context: Any, protocol: int) -> None:
        if protocol != PROTOCOL:
            text = f"protocol {protocol}, this server speaks {PROTOCOL}; use the server's version of afedpg"
            await self._deny(context, grpc.StatusCode.FAILED_PRECONDITION, text)

    async def _check_frequency(self, context: Any, name: str) -> None:
        """Every arrival costs a line in the journal and a Task."""
        bucket = self._arrivals.setdefault(name, Bucket(rate=2.0, burst=30.0))
        if bucket.take(time.monotonic()) > 0:
            await self._deny(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"'{name}' comes too often; wait a second")

    async def _check_terms(self, context: Any, name: str, join: pb.Join) -> None:
        parameters = self.terms.expected.parameters
        if join.parameters != parameters:
            text = f"'{name}' has {join.parameters} parameters, the federation {parameters}: another task or policy"
            await self._deny(context, grpc.StatusCode.FAILED_PRECONDITION, text)
        if join.fingerprint != self.terms.fingerprint:
            text = f"'{name}' works on another task, or with other settings: its fingerprint differs"
            await self._deny(context, grpc.StatusCode.FAILED_PRECONDITION, text)

    async def _deny(self, context: Any, code: grpc.StatusCode, text: str) -> None:
        count = self._denied.count(self._caller(context), time.monotonic())
        if worth_a_line(count):  # who may not come in may still knock thousands of times a second
            so_far = f", {count} times by now" if count > 1 else ""
            _log.warning("refused a connection from %s%s: %s", context.peer(), so_far, text)
        await context.abort(code, text)

    def _caller(self, context: Any) -> str:
        """Who is to blame: a certificate, or without TLS a connection."""
        return common_name(context.auth_context()) if self._secure else context.peer()

    def revoke(self) -> None:
        """Called now and then: whoever is no longer on the list goes. At first, too: it may have changed meanwhile."""
        if self.roster.refresh() or not self._compared:
            self._compared = True
            for agent_id, name in self.roster.names().items():
                if not self.roster.allows(name):
                    self.engine.revoke(agent_id, "removed from the allow-list")

    # Ends

    async def on_disk(self) -> None:
        """Returns once everything journalled so far is on the disk; those who wait together share one sync."""
        if self._sync is None:
            return
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._sync_now, self._syncing)
        await asyncio.shield(self._syncing)  # a waiter that is cut off must not take the others with it

    def _sync_now(self, waiting: asyncio.Future[None]) -> None:
        self._syncing = None
        try:
            assert self._sync is not None
            self._sync()
            waiting.set_result(None)
        except Exception as error:
            self.engine.fail(error)
            waiting.cancel()

    async def dismiss(self) -> None:
        """The run is over: everyone is told."""
        if self.engine.ended:
            await asyncio.gather(*(port.end(_FINISHED) for port in list(self.ports)))
