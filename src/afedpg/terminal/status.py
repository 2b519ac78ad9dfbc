"""The status of a live server as a table: from the server itself, or from what it wrote into its run folder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from afedpg.errors import AfedpgError
from afedpg.printable import of_peer, printable
from afedpg.record.database import read_notes
from afedpg.record.ending import ended_as
from afedpg.record.returns import mean_and_worst, read_sites

if TYPE_CHECKING:
    from afedpg.record.folder import RunFolder


def stored(folder: RunFolder) -> dict[str, Any]:
    """What the server last wrote into its run folder; once it is gone, that it is, since when, and who stayed."""
    written = folder.is_written()  # before its notes are read: it may end just now
    notes = read_notes(folder.database)
    if "status" not in notes:
        raise AfedpgError(f"{folder.path} was never served: there is no status in it")
    try:
        document = dict(json.loads(notes["status"]))
    except (ValueError, TypeError) as error:
        raise AfedpgError(f"{folder.path}: the status in run.db cannot be read: {error}") from error
    document["sites"] = read_sites(folder.database)  # the last evaluation comes when nobody is served any more
    finished = notes.get("state") == "finished"
    document["state"] = "finished" if finished else "running" if written else "stopped"
    if document["state"] != "running":
        document["gradients_per_second"] = 0.0
        for agent in document["agents"]:
            agent["state"] = ended_as(finished, agent["state"], agent["gradients"])
            agent["last_seen"] = round(agent["last_seen"] + _age(document), 3)
    return document


def _age(document: dict[str, Any]) -> float:
    return max(0.0, time.time() - float(document["time"]))


def table(document: dict[str, Any]) -> str:
    """Of what a server said of itself: which may be anything."""
    try:
        return _table(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise AfedpgError(f"that is no status of this version of afedpg: {of_peer(repr(error))}") from error


def _table(document: dict[str, Any]) -> str:
    age, state = _age(document), document.get("state", "running")  # a server that answers runs
    unused = [int(agent.get("unused", 0)) for agent in document["agents"]]  # 0.1.0 knew of none
    dropped = f"unused {sum(unused)}, " if any(unused) else ""
    head = [
        f"iteration {document['iteration']}, {document['gradients']} gradients, "
        f"{document['gradients_per_second']:.1f}/s, rejected {document['rejected']}, {dropped}"
        f"up {document['seconds']:.0f} s, epoch {document['epoch']}"
    ]
    if state != "running":
        last = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(document["time"]))
        head = [f"{state}, last sign of life {last}, {age:.0f} s ago", *head]
    elif age > 10:
        head[0] += f" (as of {age:.0f} s ago)"
    names = ("agent", "name", "state", "gradients", "delay", "s/gradient", "MB up", "MB down", "rejected", "last seen")
    rows = [names, *(_row(agent) for agent in document["agents"])]
    if any(unused):
        rows = _with(rows, "unused", map(str, unused))
    if any("suspicion" in agent for agent in document["agents"]):
        rows = _with(rows, "suspicion", (f"{float(agent.get('suspicion', 1)):.2f}" for agent in document["agents"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(map(printable, [*head, *lines, *_sites(document.get("sites", ()))]))


def _sites(told: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A line per kind of evaluation: the mean over sites, the worst, and every one."""
    kinds: dict[str, dict[str, float]] = {}
    for site, kind, mean in told:
        kinds.setdefault(of_peer(kind), {})[of_peer(site)] = float(mean)
    for kind, sites in kinds.items():
        mean, worst = mean_and_worst(sites)
        each = ", ".join(f"{site} {value:.6g}" for site, value in sites.items())
        yield f"theta, {kind}: mean of {len(sites)} sites {mean:.6g}, worst {sites[worst]:.6g} on {worst} ({each})"


def _with(rows: list[tuple[str, ...]], name: str, texts: Iterable[str]) -> list[tuple[str, ...]]:
    """A column more, before the last."""
    return [(*row[:-1], text, row[-1]) for row, text in zip(rows, (name, *texts), strict=True)]


def _row(agent: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(agent["agent"]), of_peer(agent["name"]), of_peer(agent["state"]), str(agent["gradients"]),
        f"{agent['delay']:.1f}",
        f"{agent['seconds_per_gradient']:.4g}", f"{agent['bytes_up'] / 1e6:.2f}", f"{agent['bytes_down'] / 1e6:.2f}",
        str(agent["rejected"]), f"{agent['last_seen']:.1f} s",
    )  # fmt: skip
