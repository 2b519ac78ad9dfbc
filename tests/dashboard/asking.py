"""Requests to the application without a socket, and runs to look at."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from afedpg import train
from afedpg.dashboard.app import make_app
from afedpg.runs.session import Result

PORT = 7444
HOST = f"127.0.0.1:{PORT}"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(gzip.decompress(self.body) if self.body[:2] == b"\x1f\x8b" else self.body)


def ask(app: Any, target: str, method: str = "GET", **headers: str) -> Answer:
    path, _, query = target.partition("?")
    sent = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "method": method,
        "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
    }  # fmt: skip
    messages: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    start = messages[0]
    found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in messages[1:]))


def app_of(root: Path, token: str | None = None) -> Any:
    return make_app([root], "127.0.0.1", PORT, token)


def runs_of(app: Any) -> dict[str, dict[str, Any]]:
    """The list of runs, by name."""
    return {run["name"]: run for run in ask(app, "/api/runs").json["runs"]}


def small_run(out: Path, **settings: Any) -> Result:
    return train("quadratic", out=out, **({"agents": 3, "iterations": 20} | settings))
