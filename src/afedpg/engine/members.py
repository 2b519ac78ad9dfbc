"""What a live server knows of its agents, connected or not, and what it says of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from afedpg.messages import Task
from afedpg.server.state import ServerState

LONGEST_PAUSE = 30.0  # seconds between an agent's attempts to come back


class Port(Protocol):
    """The way back to one connected agent. Nothing here waits: a Task is turned into bytes at once."""

    def give(self, task: Task) -> None: ...

    def refuse(self, reason: str) -> None: ...

    def close(self, reason: str, final: bool = False) -> None:
        """`final` tells the agent not to come back."""


@dataclass
class Member:
    """What is known of an agent, connected or not."""

    agent_id: int
    name: str
    port: Port | None = None
    heard: float = 0.0  # monotonic
    handed_out: float = 0.0  # when its outstanding Task was sent, monotonic
    answered: float = 0.0  # seconds from the hand-out of its newest accepted report to its arrival
    gradients: int = 0  # applied
    rejected: int = 0
    unused: int = 0  # reports that were believed, and that the aggregator dropped
    delay: float = 0.0  # mean of the newest few
    compute_seconds: float = 0.0  # likewise, from hand-out to arrival
    bytes_up: int = 0  # on the wire, as the transport counts them
    bytes_down: int = 0

    def note(self, delay: int, seconds: float) -> None:
        """Of a report that was taken; it counts as a gradient once it is applied."""
        weight = 1 / min(max(1, self.gradients), 20)
        self.answered = seconds
        self.delay += weight * (delay - self.delay)
        self.compute_seconds += weight * (seconds - self.compute_seconds)


SiteReturn = tuple[str, str, float]  # of theta's newest evaluation: site, kind, mean


def describe(
    server: ServerState,
    members: dict[int, Member],
    seconds: float,
    rate: float,
    sites: Sequence[SiteReturn],
    suspicions: Mapping[int, float],
) -> str:
    """Who takes part, how late, how fast, how much, how far from the others: the live server's state as JSON."""
    now = time.monotonic()
    present = [members[agent_id] for agent_id in sorted(members)]
    document = {
        "time": time.time(),
        "seconds": seconds,
        "iteration": server.iteration,
        "gradients": server.gradients,
        "samples": server.samples,
        "epoch": server.epoch,
        "gradients_per_second": rate,
        "rejected": sum(member.rejected for member in present),
        "unused": sum(member.unused for member in present),
        "sites": list(sites),
        "agents": [
            _describe_member(member, now, member.agent_id in server.outstanding)
            | ({"suspicion": round(suspicions[member.agent_id], 3)} if member.agent_id in suspicions else {})
            for member in present
        ],
    }
    return json.dumps(document)


def _describe_member(member: Member, now: float, working: bool) -> dict[str, Any]:
    return {
        "agent": member.agent_id,
        "name": member.name,
        "state": "away" if member.port is None else "working" if working else "waiting",
        "gradients": member.gradients,
        "delay": round(member.delay, 3),
        "seconds_per_gradient": round(member.compute_seconds, 6),
        "bytes_up": member.bytes_up,
        "bytes_down": member.bytes_down,
        "rejected": member.rejected,
        "unused": member.unused,
        "last_seen": round(now - member.heard, 3),
    }


def recall(text: str, counts: dict[int, tuple[int, int, int]]) -> dict[int, Member]:
    """The agents as an earlier session of the server last described them; nobody is connected yet.

    `counts`: applied, refused and unused, from run.db, which the journal has brought up to date: a server that was
    killed had done more than it last described.
    """
    document: dict[str, Any] = json.loads(text) if text else {"time": time.time(), "agents": []}
    told = time.monotonic() - max(0.0, time.time() - document["time"])  # in this session's monotonic time
    members = {
        entry["agent"]: Member(
            entry["agent"], entry["name"], heard=told - entry["last_seen"],
            delay=entry["delay"], compute_seconds=entry["seconds_per_gradient"],
            bytes_up=entry["bytes_up"], bytes_down=entry["bytes_down"],
        )
        for entry in document["agents"]
    }  # fmt: skip
    for agent_id, (applied, refused, unused) in counts.items():
        member = members.setdefault(agent_id, Member(agent_id, "", heard=told))  # it says its name when it is back
        member.gradients, member.rejected, member.unused = applied, refused, unused
    return members
