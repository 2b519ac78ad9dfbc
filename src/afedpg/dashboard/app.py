"""The routes. A run is addressed by the id that the catalog gave it; no request names a path."""

from __future__ import annotations

import hashlib
import importlib.resources
import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from afedpg.config import Config
from afedpg.dashboard.catalog import VIDEOS, Catalog, settings_of, videos_of
from afedpg.dashboard.follow import Follower
from afedpg.dashboard.guard import Guard
from afedpg.errors import AfedpgError

MOST_FOLLOWED = 64  # runs whose aggregates stay in memory
MOST_ASKED = 48  # runs in one request
LONGEST_WINDOW = 5000  # gradients of a timeline
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".svg": "image/svg+xml"}


class AsciiJson(JSONResponse):
    """Names of folders, and texts in somebody's run.db, may hold what cannot be written as UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


class Pages:
    """What the routes share."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._catalog = Catalog(roots)
        self._followers: OrderedDict[str, Follower] = OrderedDict()
        self._lock = Lock()
        self._assets, self._digest = _assets()

    async def index(self, request: Request) -> Response:
        return self._asset("index.html")

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets or request.path_params["digest"] != self._digest:
            raise HTTPException(404)
        response = self._asset(name)
        response.headers["Cache-Control"] = "private, max-age=31536000, immutable"  # its address changes with it
        return response

    def _asset(self, name: str) -> Response:
        return Response(self._assets[name], media_type=MEDIA_TYPES[Path(name).suffix])

    def runs(self, request: Request) -> Response:
        response = AsciiJson({"runs": self._catalog.describe(), "trouble": self._catalog.trouble})
        tag = f'"{hashlib.sha256(response.body).hexdigest()[:20]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        response.headers["ETag"] = tag
        return response

    def updates(self, request: Request) -> Response:
        """?at=ID~CURSOR, once per run; an empty cursor asks for everything."""
        asked = request.query_params.getlist("at")[:MOST_ASKED]
        changes = {}
        for run, _, cursor in (entry.partition("~") for entry in asked):
            follower = self._follower(run)
            changes[run] = {"gone": True} if follower is None else follower.changes(cursor)
        return AsciiJson(changes)

    def settings(self, request: Request) -> Response:
        """?of=ID, once per run: every setting of each, and the defaults."""
        entries, asked = self._catalog.entries(), request.query_params.getlist("of")[:MOST_ASKED]
        found = {run: settings_of(entries[run].config) for run in asked if run in entries}
        return AsciiJson({"runs": found, "defaults": settings_of(Config())})

    def timeline(self, request: Request) -> Response:
        follower = self._follower(request.path_params["run"])
        if follower is None:
            raise HTTPException(404)
        last, count = _number(request, "last"), _number(request, "count")
        try:
            found = follower.timeline(last, max(1, min(count or 200, LONGEST_WINDOW)))
        except (AfedpgError, ValueError, OverflowError) as error:  # not a run.db of ours
            raise HTTPException(404) from error
        return AsciiJson(found)

    def video(self, request: Request) -> Response:
        entry = self._catalog.entries().get(request.path_params["run"])
        for path in videos_of(entry.folder) if entry is not None else ():
            if path.name == request.path_params["name"]:  # compared with what is there, never joined to a path
                return FileResponse(path, media_type=VIDEOS[path.suffix])
        raise HTTPException(404)

    def _follower(self, run: str) -> Follower | None:
        entry = self._catalog.entries().get(run)
        if entry is None:
            return None
        with self._lock:
            known = self._followers.pop(run, None)
            if known is None or known.entry.config != entry.config:  # another run may have taken its place
                known = Follower(entry)
            self._followers[run] = known
            while len(self._followers) > MOST_FOLLOWED:
                self._followers.popitem(last=False)
            return known


def make_app(roots: Sequence[Path], host: str, port: int, token: str | None) -> Guard:
    """Read-only. `token` is None where `host` is loopback."""
    pages = Pages(roots)
    routes = [
        Route("/", pages.index),
        Route("/assets/{digest}/{name}", pages.asset),
        Route("/api/runs", pages.runs),
        Route("/api/updates", pages.updates),
        Route("/api/settings", pages.settings),
        Route("/api/runs/{run}/timeline", pages.timeline),
        Route("/api/runs/{run}/videos/{name}", pages.video),
        Route("/favicon.ico", lambda request: Response(status_code=204)),
    ]
    packed = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    app = Starlette(routes=routes, middleware=[packed], exception_handlers={HTTPException: _failed})
    return Guard(app, host, port, token)


def _failed(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return PlainTextResponse("not found\n" if status == 404 else "no\n", status)


def _assets() -> tuple[dict[str, bytes], str]:
    """The page's files by name, and a digest of them all, which is part of their addresses."""
    folder = importlib.resources.files("afedpg.dashboard") / "static"
    files = {entry.name: entry.read_bytes() for entry in folder.iterdir() if Path(entry.name).suffix in MEDIA_TYPES}
    digest = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()[:16]
    files["index.html"] = files["index.html"].replace(b"{digest}", digest.encode())
    return files, digest


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise HTTPException(400)
    return int(text)
