"""A browser for the page's tests: Debian's Chromium, as tests/dashboard/install_browser.sh installs it."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from looking import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome")
DESKTOP = {"width": 1440, "height": 1000}
MISSING = "no Chromium: the dashboard was not tested in a browser; `make browser` installs one"


@pytest.fixture(scope="module")  # Playwright keeps an event loop, which other modules must not meet
def chromium():
    """Fails where a browser is required, as in CI; elsewhere says what was left out."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        if os.environ.get("AFEDPG_BROWSER") == "required":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def serve(start_command):
    """`afedpg dashboard` as people start it; returns its URL."""

    def start(root, *options):
        process = start_command("dashboard", root, "--port", "0", "--json", *options)
        line = []
        reader = threading.Thread(target=lambda: line.append(process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(60)
        assert line, "the dashboard says where it is"
        assert line[0], process.stderr.read()
        return json.loads(line[0])["url"]

    return start


@pytest.fixture
def open_page(chromium):
    """A page that may say nothing on its console."""
    complaints: list[str] = []
    contexts = []

    def open_at(url, viewport=DESKTOP, scheme="light"):
        contexts.append(chromium.new_context(viewport=viewport, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"{request.failure}: {request.url}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.goto(url)
        return page

    yield open_at
    for page in (page for context in contexts for page in context.pages):
        page.evaluate("0")  # what it has said by now is heard
    heard = list(complaints)  # what it asks for every second may be cut off by the closing, and that is no complaint
    for context in contexts:
        context.close()
    assert heard == []


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", ())
    if any(MISSING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"NOT TESTED: {MISSING}", red=True, bold=True)
