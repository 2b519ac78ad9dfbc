"""A browser for the page's tests: Debian's Chromium, as tests/dashboard/install_browser.sh installs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
NAMES = ("chromium", "chromium-browser", "google-chrome")
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


def pytest_terminal_summary(terminalreporter):
    skipped = terminalreporter.stats.get("skipped", ())
    if any(MISSING in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"NOT TESTED: {MISSING}", red=True, bold=True)
