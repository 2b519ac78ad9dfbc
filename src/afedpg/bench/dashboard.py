"""What the live page costs for a run of 100,000 arrivals and 64 agents: until its first picture, and per update.

server   aggregates of all rows from a cold start, against reading the same rows into arrays and doing nothing else;
         an update of 500 new rows, against that cold start
browser  from opening the page to its first picture, from asking for an update to having drawn it, and the bytes that
         went over the line, as shares of what is allowed: 1 s, 200 ms, 1 MB. Needs Playwright and Chromium. Beside
         the real seconds, which others on the machine stretch, the processor seconds of the page's main thread.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from afedpg.bench.rows import compared, processor_seconds
from afedpg.dashboard.catalog import Catalog
from afedpg.dashboard.follow import Follower
from afedpg.record.database import Database, read_arrivals
from afedpg.runs.parts import configure
from afedpg.runs.train import run as train_run

AGENTS, ITERATIONS = 64, 1563
NEW_ROWS = 500
FIRST_SECONDS, UPDATE_SECONDS, DATA_BYTES = 1.0, 0.2, 1e6
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
Measured = dict[str, list[float]]


def run(tasks: Sequence[str] = ("quadratic",), rounds: int = 5) -> list[dict[str, Any]]:
    """Rows {benchmark, task, subject, reference, ratio, ...}, printed on the way."""
    rows = []
    for task in tasks:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place) / "run"
            settings = {"agents": AGENTS, "iterations": ITERATIONS, "timing": "lognormal"}
            train_run(configure(task, None, settings), out=out)
            rows += _server_rows(task, _measure_server(Path(place), out, rounds))
            rows += _browser_rows(task, _measure_browser(Path(place), out, rounds))
    return rows


def _measure_server(root: Path, out: Path, rounds: int) -> Measured:
    """Processor seconds, in turns."""
    found: Measured = {"read": [], "cold": [], "update": [], "bytes": []}
    for _ in range(rounds):
        found["read"].append(processor_seconds(lambda: read_arrivals(out / "run.db")))
        [entry] = Catalog([root]).entries().values()
        reader = _Reader(Follower(entry))
        found["cold"].append(processor_seconds(reader.settle))
        found["bytes"].append(reader.bytes)
        with _appending(out) as append:
            append()
            found["update"].append(processor_seconds(reader.settle))
    return found


class _Reader:
    """What a browser asks, without the browser."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._cursor = ""
        self.bytes = 0.0

    def settle(self) -> None:
        time.sleep(0.3)  # run.db is read so often and no more; sleeping costs no processor time
        more = True
        while more:
            changes = self._follower.changes(self._cursor)
            self._cursor, more = changes["cursor"], changes.get("more", False)
            self.bytes += len(gzip.compress(json.dumps(changes).encode(), 5))


@contextlib.contextmanager
def _appending(out: Path) -> Iterator[Any]:
    """A run that goes on: each call commits rows like the newest."""
    base = Database(out / "run.db")

    def append() -> None:
        connection = base._connection
        newest = connection.execute("SELECT * FROM arrivals ORDER BY gradient DESC LIMIT 1").fetchone()
        gradient, iteration, agent, task, version, *rest = newest
        rows = [
            (gradient + n, iteration + n, (agent + n) % AGENTS, task, version + n, *rest)
            for n in range(1, NEW_ROWS + 1)
        ]
        with base._transaction():
            connection.executemany(f"INSERT INTO arrivals VALUES ({', '.join('?' * len(newest))})", rows)

    try:
        yield append
    finally:
        base.close()


def _server_rows(task: str, found: Measured) -> list[dict[str, Any]]:
    cold, new = "all aggregates, cold", f"{NEW_ROWS} new rows"
    return [
        compared("dashboard", task, f"server: {cold}", "reading the rows", found["cold"], found["read"], "s"),
        compared("dashboard", task, f"server: {new}", cold, found["update"], found["cold"], "s"),
        _allowed(task, "server: data of all pictures, gzip", found["bytes"], DATA_BYTES, "bytes"),
    ]


def _allowed(task: str, subject: str, ours: list[float], most: float, unit: str) -> dict[str, Any]:
    return compared("dashboard", task, subject, "allowed", ours, [most] * len(ours), unit)


def _measure_browser(root: Path, out: Path, rounds: int) -> Measured:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("no browser: `pip install afedpg[bench]` and a Chromium are needed to measure the page itself")
        return {}
    found: Measured = defaultdict(list)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for _ in range(rounds):
            with _served(root) as url:
                _measure_page(browser, url, out, found)
        browser.close()
    return found


def _measure_page(browser: Any, url: str, out: Path, found: Measured) -> None:
    """A server that has read nothing yet, and a browser that has cached nothing."""
    sizes = "performance.getEntriesByType('resource').map((r) => [r.name.includes('/api/'), r.transferSize])"
    for name in ("first", "again"):
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        page = context.new_page()
        busy = _processor(context, page)
        page.goto(url)
        page.wait_for_function("() => performance.getEntriesByName('update').length > 0")
        first = page.evaluate(
            "(({ startTime, duration }) => startTime + duration)(performance.getEntriesByName('update')[0])"
        )
        found[name].append(first / 1000)
        found[f"{name}_busy"].append(busy())
        page.wait_for_function(f"() => document.querySelector('#tiles').textContent.includes('{_newest(out):,}')")
        page.wait_for_timeout(300)
        if name == "first":
            transferred = page.evaluate(sizes)
            found["page_bytes"].append(sum(size for data, size in transferred if not data))
            found["data_bytes"].append(sum(size for data, size in transferred if data))
        else:
            page.evaluate("performance.clearResourceTimings(); performance.clearMeasures()")
            with _appending(out) as append:
                before = busy()
                append()
                page.wait_for_function("() => performance.getEntriesByName('update').length > 0")
                found["update_busy"].append(busy() - before)
            update = page.evaluate("performance.getEntriesByName('update')[0].duration")
            found["update"].append(update / 1000)
            found["update_bytes"].append(sum(size for _, size in page.evaluate(sizes)))
        context.close()


def _processor(context: Any, page: Any) -> Callable[[], float]:
    """Of the page's main thread, so far."""
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    return seconds


def _newest(out: Path) -> int:
    return int(read_arrivals(out / "run.db")["gradient"][-1])


@contextlib.contextmanager
def _served(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "afedpg", "dashboard", str(root), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _browser_rows(task: str, found: Measured) -> list[dict[str, Any]]:
    if not found:
        return []
    return [
        _allowed(task, "browser: first picture, server cold", found["first"], FIRST_SECONDS, "s"),
        _allowed(task, "browser: first picture, server warm", found["again"], FIRST_SECONDS, "s"),
        _allowed(task, f"browser: update with {NEW_ROWS} new rows", found["update"], UPDATE_SECONDS, "s"),
        _allowed(task, "browser: first picture, processor", found["first_busy"], FIRST_SECONDS, "s"),
        _allowed(task, "browser: update, processor", found["update_busy"], UPDATE_SECONDS, "s"),
        _allowed(task, "browser: the page itself", found["page_bytes"], DATA_BYTES, "bytes"),
        _allowed(task, "browser: data of all pictures", found["data_bytes"], DATA_BYTES, "bytes"),
        _allowed(task, "browser: data of an update", found["update_bytes"], DATA_BYTES, "bytes"),
    ]
