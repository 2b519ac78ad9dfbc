"""The settings of runs, as the page is told them."""

from __future__ import annotations

import math
from datetime import date

from asking import app_of, ask, runs_of, small_run

from afedpg.config import from_settings
from afedpg.dashboard.catalog import settings_of


def test_settings_are_text_and_of_known_runs_alone(tmp_path):
    small_run(tmp_path / "one")
    app = app_of(tmp_path)
    run = runs_of(app)["one"]["id"]
    answer = ask(app, f"/api/settings?of={run}&of=../one&of=")
    found = answer.json
    assert found["runs"].keys() == {run}
    assert {type(value) for value in found["runs"][run].values()} == {str}
    assert found["defaults"]["eta"] == "0.03"
    odd = settings_of(from_settings({"env_kwargs": {"limit": math.inf, "since": date(2026, 1, 2)}}))
    assert odd["env_kwargs"] == '{"limit": Infinity, "since": "2026-01-02"}'
