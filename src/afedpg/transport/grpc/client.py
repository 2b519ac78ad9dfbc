"""An agent: dials out, works at its own pace, keeps its state to itself, and comes back after whatever happened."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import grpc

from afedpg.engine.process import Interrupted, mute_lost_terminal, stopping_signals
from afedpg.errors import AfedpgError, Unwelcome
from afedpg.protocol import federation_pb2 as pb
from afedpg.transport.grpc import wire
from afedpg.transport.grpc.calls import TOKEN, ask, open_work
from afedpg.transport.grpc.connection import DIAL_SECONDS, Connection, Lost
from afedpg.transport.grpc.membership import AgentOptions, Membership
from afedpg.transport.grpc.terms import agree
from afedpg.transport.grpc.wire import PROTOCOL, Damaged, Refused

_FINAL = (
    grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)  # fmt: skip
_log = logging.getLogger("afedpg")


class Agent(Membership):
    async def run(self) -> None:
        """Until the federation is finished; Unwelcome if this agent will have no part in it."""
        while True:
            try:
                if await self._connect():
                    _log.info("finished after %d reports", self.reports)
                    return
            except Lost as error:
                problem = str(error)
            except Damaged as error:
                problem = f"what came from {self.options.connect} is damaged: {error}"
            except Refused as error:  # nothing of it is computed with, and asking again would bring the same
                what = "sent something else than the protocol says"
                raise Unwelcome(f"{self.options.connect} {what}: {error}; this agent leaves for good") from error
            except grpc.RpcError as error:
                problem = await self._judge(error)
            if self.options.patience and time.monotonic() - self.contact > self.options.patience:
                raise AfedpgError(f"no server at {self.options.connect} for {self.options.patience:g} s: {problem}")
            pause = self.pause.seconds()
            _log.warning("%s; trying again in %.1f s", problem, pause)
            await asyncio.sleep(pause)

    async def _judge(self, error: Any) -> str:
        """Some answers will not change by asking again."""
        if error.code() in _FINAL:
            raise Unwelcome(f"refused by {self.options.connect}: {wire.details(error)}")
        if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
            self.misfits += 1
            if self.misfits > 1:
                raise Unwelcome(f"refused by {self.options.connect}: {wire.details(error)}")
            self.settings = ""  # perhaps another run is served there now: ask for its terms, once
        folder = None if self.options.identity is None else self.options.identity.folder
        if error.code() == grpc.StatusCode.UNAVAILABLE and folder is not None:
            from afedpg.transport.grpc.probe import misfit  # and with it cryptography

            wrong = await asyncio.to_thread(misfit, self.options.connect, folder)
            if wrong:
                raise Unwelcome(f"cannot work for {self.options.connect}: {wrong}")
        return f"{self.options.connect}: {wire.details(error)}"

    async def _connect(self) -> bool:
        """One connection from beginning to end; True when the run is over."""
        if not self.settings:
            async with self._channel(0) as channel:
                await self._agree(channel)
        async with self._channel(self.parameters) as channel:
            call = open_work(channel, self._metadata())
            try:
                return await Connection(self, call).run()
            finally:
                call.cancel()

    async def _agree(self, channel: grpc.aio.Channel) -> None:
        request = pb.SettingsRequest(protocol=PROTOCOL, name=self.options.name)
        data = await ask(channel, "Settings", request.SerializeToString(), DIAL_SECONDS, self._metadata())
        reply = wire.settings_reply(data)
        kept = self.keep.load(reply.agent, reply.settings)
        try:
            starts = 0 if kept is not None else reply.starts
            config = agree(self.options.config, reply.settings, reply.agent, starts, self.options.custom)
        except Refused as error:
            raise Unwelcome(f"cannot work for {self.options.connect}: {error}") from error
        self.expected = await self.worker.build(self.options.build, config, reply.agent, kept)
        self.agent_id, self.settings = reply.agent, reply.settings
        self.contact = time.monotonic()  # it has answered; what was built since, perhaps compiled, is no silence of it

    def _channel(self, parameters: int) -> grpc.aio.Channel:
        most = wire.message_bytes(parameters)
        options = [
            ("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most),
            ("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.ping_timeout_ms", 10_000), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
        ]  # fmt: skip
        if self.options.identity is None:
            return grpc.aio.insecure_channel(self.options.connect, options)
        return grpc.aio.secure_channel(self.options.connect, self.options.identity.for_client(), options)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN, self.options.token),) if self.options.token else ()

    def close(self) -> None:
        self.worker.close()


def run_agent(options: AgentOptions) -> int:
    """Blocks until the federation is finished; returns how many reports were sent. Ctrl-C, SIGTERM, SIGHUP leave."""
    return asyncio.run(_run_agent(options))


def tell(error: AfedpgError) -> None:
    print(f"afedpg: {error}", file=sys.stderr, flush=True)


def agent_main(
    options: AgentOptions, say: Callable[[int], str], failed: Callable[[AfedpgError], None] = tell
) -> NoReturn:
    """`run_agent` as a whole process, which ends at once: a rollout that is still going on, deep in compiled code,
    would not survive the interpreter's own way of ending.
    """
    code = 0
    try:
        text = say(run_agent(options))
        print(text, end="\n" if text else "", flush=True)
    except AfedpgError as error:
        failed(error)
        code = error.exit_code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


async def _run_agent(options: AgentOptions) -> int:
    agent = Agent(options)
    running = asyncio.ensure_future(agent.run())
    loop = asyncio.get_running_loop()

    def leave() -> None:
        mute_lost_terminal()
        running.cancel()

    for number in stopping_signals():
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(number, leave)
    try:
        await running
    except asyncio.CancelledError:
        raise Interrupted(f"left after {agent.reports} reports") from None
    finally:
        agent.close()
    return agent.reports
