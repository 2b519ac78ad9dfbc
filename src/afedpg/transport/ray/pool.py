"""The agents as the server sees them: actors that are placed, asked, and replaced when they die.

An agent's state stays with its actor; a copy of the newest comes with every report. Ray carries a small one along (up
to 100 KB) and leaves a large one on the actor's node, where it outlives the actor but not the node. It is fetched for a
checkpoint and for the actor that takes over; if it is lost, that one goes on from the last state fetched, with other
streams of randomness: samples that were used are never used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import ray
from ray.exceptions import GetTimeoutError, NodeDiedError, RayActorError, RayError, RayTaskError

from afedpg.engine.live import LiveEngine, in_loop
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import AfedpgError
from afedpg.messages import AgentState, Task
from afedpg.printable import of_peer
from afedpg.protocol.encoding import from_bytes
from afedpg.record.states import stack_states, unstack_states
from afedpg.transport.ray.actor import INLINE_BYTES, Actor, packed, unpacked

GATHER_SECONDS = 60.0
PATIENCE = 30.0  # seconds until the log says who waits for room; every time doubled
FETCH_SECONDS = 20.0  # what states may take to come in
BRIEF_SECONDS = 1.0  # likewise, while the federation stands still for it
LIVES_PER_EPOCH = 1 << 32
MOST_FAILURES = 5  # in a row of one agent, when its work raises an error
MOST_DEATHS = 10  # likewise, when its process dies
LONGEST_PAUSE = 30.0  # seconds until an agent is placed again; after a second failure one, then doubling
_NO_THETA = np.empty(0, np.float32)
_log = logging.getLogger("afedpg")


class RaySlot:
    """An agent's place in the federation, whichever actor takes it; to the server, the way to that agent."""

    def __init__(self, pool: RayPool, agent_id: int) -> None:
        self.agent_id = agent_id
        self.newest: Any = None  # reference to a state that is not here yet
        self.state: AgentState | None = None  # the newest that is
        self.behind = False  # reports that came of a later state were applied
        self._lives = 0
        self._pool = pool
        self._failures = 0  # since its last report
        self.asked: float | None = None  # since when its actor has been waiting for room, monotonic
        self._where = self._node = ""  # of its actor, once that is ready: host, and Ray's name of the node

    # What the live engine says

    def give(self, task: Task) -> None:
        self._answers.put_nowait(self._pool.send(self._actor, task))

    def refuse(self, reason: str) -> None:
        """The server's log has it, and the next Task is on its way."""

    def close(self, reason: str, final: bool = False) -> None:
        ray.kill(self._actor)

    # The life of an agent

    async def live(self, engine: LiveEngine) -> None:
        """From actor to actor, until it is cancelled."""
        try:
            while True:
                try:
                    await self._with_one_actor(engine)
                except RayError as error:
                    self._count(error)
                    await asyncio.sleep(min(LONGEST_PAUSE, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0)
        except Exception as error:
            engine.fail(error)

    async def _with_one_actor(self, engine: LiveEngine) -> None:
        if self.newest is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FETCH_SECONDS):
                    await _settled(self.newest)
            if not self.fetch():
                self._give_up(f"did not come in {FETCH_SECONDS:g} s")
        self._lives += self.behind
        self._where = self._node = ""
        self._answers: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue()
        self._actor = self._pool.place(self.agent_id, self.state, self._lives if self.behind else 0)
        self.asked = time.monotonic()
        reason = "the run is over"
        try:
            where, self._node = await self._actor.where.remote()
            self._where = of_peer(where)
            self.asked = None
            await self._pool.gathered(self.agent_id)
            engine.join(self.agent_id, f"agent-{self.agent_id}", self)
            _log.info("agent %d is on %s", self.agent_id, self._where)
            while True:
                await self._answer(engine, *await self._answers.get())
        except RayError as error:
            reason = _first_line(error)
            raise
        finally:
            self.asked = None
            if self.agent_id in engine.members:
                engine.leave(self.agent_id, self, reason)
            ray.kill(self._actor)

    async def _answer(self, engine: LiveEngine, report: Any, state: Any) -> None:
        try:
            arrived = from_bytes(await report)
        except RayError:
            await _settled(state)  # or Ray would complain of an error that nobody has looked at
            raise
        if engine.over:  # its Task stays outstanding, and the last checkpoint keeps the state from before it
            return
        self._failures = 0
        self.newest, self.behind = state, False  # first: a checkpoint that the report brings about goes with its state
        member = engine.members[self.agent_id]
        member.bytes_up += arrived.payload.nbytes
        member.bytes_down += 4 * engine.federation.server.theta.size
        engine.heard(self.agent_id)
        engine.report(arrived)
        if engine.federation.rule.exchange.late_fetch and self._answers.empty():
            await self._actor.prepare.remote(self.agent_id)
            engine.heard(self.agent_id)
            engine.fetch(self.agent_id)

    def _count(self, error: RayError) -> None:
        """Nodes leave, and an actor may be killed: that is what the next one is for. What the work itself raises will
        not heal, nor will a process that dies again and again where others live.
        """
        own = isinstance(error, RayTaskError) or (isinstance(error, RayActorError) and error.actor_init_failed)
        cause = getattr(error, "cause", None)
        if own and isinstance(cause, AfedpgError):
            raise cause
        what = _last_line(error) if own else _first_line(error)
        self._failures += own or not self._node_left(error)
        if own and self._failures >= MOST_FAILURES:
            raise AfedpgError(f"agent {self.agent_id} failed {self._failures} times in a row: {what}")
        if self._failures >= MOST_DEATHS:
            raise AfedpgError(
                f"agent {self.agent_id} died {self._failures} times in a row without a gradient, at last "
                f"{'on ' + self._where if self._where else 'at its start'}: out of memory, or a crash in native code; "
                f"Ray's logs of that node have more ({what})"
            )
        _log.warning("agent %d is placed again: %s", self.agent_id, what)

    def _node_left(self, error: RayError) -> bool:
        if isinstance(error, NodeDiedError) or (isinstance(error, RayActorError) and error.preempted):
            return True
        return self._node != "" and not any(node["Alive"] for node in ray.nodes() if node["NodeID"] == self._node)

    def fetch(self) -> bool:
        """The newest state into this process, if it can still be had; False while it is on its way."""
        if self.newest is None:
            return True
        try:
            state: AgentState = unpacked(ray.get(self.newest, timeout=0))
        except GetTimeoutError:
            return False
        except RayError:
            self._give_up("was lost with its node")
        else:
            self.newest = None
            self.state = {key: np.array(array) for key, array in state.items()}  # the store's memory is not pinned
        return True

    def _give_up(self, what: str) -> None:
        self.newest, self.behind = None, True
        _log.warning("agent %d: its newest state %s; an older one is used", self.agent_id, what)


class RayPool:
    """Every agent's slot; to the live engine, its transport and the keeper of agent states."""

    def __init__(
        self, build: BuildWorkload, epoch: int = 0, first: int = 0, sync: Callable[[], None] | None = None
    ) -> None:
        """`epoch`: the server's. `first`: how many agents begin together, as soon as all of them are there. `sync`
        brings the journal to the disk before a Task goes out.
        """
        takes = build.config.ray
        self._takes = {"CPU": takes.agent_cpus, "GPU": takes.agent_gpus}
        self._patience = PATIENCE
        self._epoch = epoch
        self._first = first
        self._there: set[int] = set()
        self._begun = asyncio.Event()
        self._build = ray.put(build)
        # Never a retry by Ray, which would repeat a stale Task: the server hands out a fresh one.
        self._kind = ray.remote(Actor).options(
            num_cpus=takes.agent_cpus, num_gpus=takes.agent_gpus, max_restarts=0, max_task_retries=0,
            scheduling_strategy="SPREAD",
        )  # fmt: skip
        self._sync = sync
        self._shared: tuple[int, Any] = (-1, None)  # version, and the reference to its theta~
        self.slots = [RaySlot(self, agent_id) for agent_id in range(build.config.agents)]

    @contextlib.asynccontextmanager
    async def transport(self, engine: LiveEngine) -> AsyncIterator[None]:
        lives = [asyncio.ensure_future(slot.live(engine)) for slot in self.slots]
        try:
            yield
        finally:
            for life in lives:
                life.cancel()
            await asyncio.gather(*lives, return_exceptions=True)

    def watch(self) -> None:
        """A cluster may be busy with other things for hours: the log says what is waited for."""
        since = [slot.asked for slot in self.slots if slot.asked is not None]
        if not since:
            self._patience = PATIENCE
        elif time.monotonic() - min(since) > self._patience:
            self._patience *= 2
            free = ray.available_resources()
            takes = {kind: amount for kind, amount in self._takes.items() if amount}
            scarce = [kind for kind, amount in takes.items() if free.get(kind, 0.0) < amount]
            _log.warning(
                "%d of %d agents wait for room: each takes %s, free are %s%s", len(since), len(self.slots),
                _amounts(takes), _amounts({kind: free.get(kind, 0.0) for kind in takes}),
                f"; short of {', '.join(scarce)}" if scarce else " (they may be starting)",
            )  # fmt: skip

    async def gathered(self, agent_id: int) -> None:
        """A round of fedpg is one of all agents, the first one included; who comes later, or again, does not wait."""
        self._there.add(agent_id)
        if len(self._there) >= self._first:
            self._begun.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):  # wait_for may swallow a cancellation
                await self._begun.wait()
        self._begun.set()

    def place(self, agent_id: int, state: AgentState | None, life: int) -> Any:
        return self._kind.remote(self._build, agent_id, state, life and life + LIVES_PER_EPOCH * self._epoch)

    def send(self, actor: Any, task: Task) -> tuple[Any, Any]:
        """References to the report and the state that will come of it. A large theta~ is stored once per version."""
        if self._sync is not None:
            self._sync()
        stored = None
        if task.theta.nbytes > INLINE_BYTES:
            task, stored = task._replace(theta=_NO_THETA), self._stored(task)
        report, state = actor.work.remote(packed(task, task.theta.nbytes), stored)
        return report, state

    def _stored(self, task: Task) -> Any:
        if self._shared[0] != task.version:
            try:
                self._shared = (task.version, ray.put(task.theta))
            except RayError as error:
                raise AfedpgError(f"Ray cannot take theta~: {_first_line(error)}") from error
        return self._shared[1]

    # What a checkpoint keeps

    def to_tree(self) -> dict[str, Any]:
        """Each agent's state from before its outstanding Task; an older one where that does not come in time."""
        out = [slot.newest for slot in self.slots if slot.newest is not None]
        if out:  # all at once rather than one after another
            ray.wait(out, num_returns=len(out), timeout=BRIEF_SECONDS if in_loop() else FETCH_SECONDS)
        late = [not slot.fetch() for slot in self.slots]
        if any(late):
            _log.warning("a checkpoint has older states of %d agents: their newest did not come in time", sum(late))
        return {
            "agents": stack_states([slot.state or {} for slot in self.slots]),
            "behind": np.array([slot.behind for slot in self.slots]) | late,
        }

    def from_tree(self, tree: dict[str, Any]) -> None:
        states = unstack_states(tree["agents"])
        for slot, state, behind in zip(self.slots, states, tree["behind"].tolist(), strict=True):
            slot.state = state or None
            slot.behind |= behind


async def _settled(reference: Any) -> None:
    """Until it is here, or known to be lost."""
    with contextlib.suppress(RayError):
        await reference


def _amounts(resources: dict[str, float]) -> str:
    return " and ".join(f"{kind} {amount:g}" for kind, amount in resources.items())


def _first_line(error: RayError) -> str:
    return of_peer(f"{type(error).__name__}: " + str(error).strip().partition("\n")[0], 120)


def _last_line(error: RayError) -> str:
    """Of a traceback: what was raised."""
    return of_peer(str(error).strip().rpartition("\n")[2])
