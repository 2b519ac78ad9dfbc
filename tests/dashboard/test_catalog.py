"""Runs are found wherever they lie, also later; whatever their folders are called, they are addressed by an id."""

from __future__ import annotations

import errno
import os
import shutil

import pytest
from asking import PORT, app_of, ask, runs_of, small_run

from afedpg.dashboard import catalog
from afedpg.dashboard.app import make_app

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(catalog, "SCAN_SECONDS", 0.0)


def test_nested_runs_and_those_that_come_later(tmp_path):
    app = app_of(tmp_path / "runs")
    assert runs_of(app) == {}
    small_run(tmp_path / "runs" / "one")
    for seed in (0, 1):
        small_run(tmp_path / "runs" / "sweep" / f"seed{seed}", seed=seed)
    small_run(tmp_path / "runs" / "a" / "b" / "c" / HOSTILE, agents=2)
    runs = runs_of(app)
    assert set(runs) == {"one", "sweep/seed0", "sweep/seed1", f"a/b/c/{HOSTILE}"}
    assert runs["sweep/seed0"]["group"] == runs["sweep/seed1"]["group"] == runs["one"]["group"]
    assert runs["one"]["group"] != runs[f"a/b/c/{HOSTILE}"]["group"]
    assert (runs["one"]["state"], runs["one"]["gradients"], runs["one"]["total"]) == ("finished", 60, 60)
    shutil.rmtree(tmp_path / "runs" / "one")
    assert "one" not in runs_of(app)
    assert ask(app, f"/api/updates?at={runs['one']['id']}~").json == {runs["one"]["id"]: {"gone": True}}


def test_a_name_that_is_no_text_hides_no_other_run(tmp_path):
    small_run(tmp_path / "one")
    small_run(tmp_path / os.fsdecode(b"od\xffd"))
    runs = runs_of(app_of(tmp_path))
    assert set(runs) == {"one", "od\udcffd"}
    assert runs["od\udcffd"]["gradients"] == 60


def test_a_run_folder_itself_can_be_asked_for(tmp_path):
    small_run(tmp_path / "mine")
    assert list(runs_of(app_of(tmp_path / "mine"))) == ["mine"]


def test_a_run_that_links_lead_to_is_shown_once(tmp_path):
    small_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "another").symlink_to(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "round").symlink_to(tmp_path / "runs")
    assert list(runs_of(app_of(tmp_path / "runs"))) == ["one"]
    both = make_app([tmp_path / "runs", tmp_path / "runs" / "one"], "127.0.0.1", PORT, None)
    assert list(runs_of(both)) == ["runs/one"]


def test_what_is_no_run_is_left_out(tmp_path):
    small_run(tmp_path / "good")
    for name, text in (("broken", "agents = ["), ("odd", "agents = 'many'"), ("bytes", "\udcff")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.toml").write_bytes(text.encode(errors="surrogateescape"))
    small_run(tmp_path / "spoilt")
    (tmp_path / "spoilt" / "run.db").write_bytes(b"no database at all" * 100)
    app = app_of(tmp_path)
    runs = runs_of(app)
    assert set(runs) == {"good", "spoilt"}
    said = ask(app, f"/api/updates?at={runs['spoilt']['id']}~").json[runs["spoilt"]["id"]]
    assert "not a database" in said["error"]


def test_a_search_that_fails_is_said(tmp_path, monkeypatch):
    small_run(tmp_path / "one")
    app = app_of(tmp_path)
    assert ask(app, "/api/runs").json["trouble"] == ""

    def refuse(*roots):
        raise PermissionError(errno.EACCES, "Permission denied", "/closed")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(catalog, "find_runs", refuse)
        said = ask(app, "/api/runs").json
    assert said["trouble"] == "cannot search /closed: Permission denied"
    assert [run["name"] for run in said["runs"]] == ["one"], "what was known stays"
    assert ask(app, "/api/runs").json["trouble"] == ""


def test_the_list_is_sent_only_when_it_has_changed(tmp_path):
    small_run(tmp_path / "one")
    app = app_of(tmp_path)
    first = ask(app, "/api/runs")
    again = ask(app, "/api/runs", if_none_match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    small_run(tmp_path / "two")
    assert ask(app, "/api/runs", if_none_match=first.headers["etag"]).status == 200


def test_no_request_reaches_a_file_that_is_not_a_film_of_a_run(tmp_path):
    small_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "one" / "policy.mp4").write_bytes(b"film")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (tmp_path / "runs" / "one" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    app = app_of(tmp_path / "runs")
    run = runs_of(app)["one"]["id"]
    assert ask(app, f"/api/runs/{run}/videos/policy.mp4").body == b"film"
    assert ask(app, f"/api/runs/{run}/videos/policy.mp4", range="bytes=1-2").body == b"il"
    outside = (
        "../../secret.mp4", "..%2f..%2fsecret.mp4", "link.mp4", "run.toml", "/etc/passwd", "%2e%2e/%2e%2e/secret.mp4",
        "....//secret.mp4", "policy.mp4%00.toml", "",
    )  # fmt: skip
    for name in outside:
        assert ask(app, f"/api/runs/{run}/videos/{name}").status == 404, name
    for path in ("one", "../one", "%2e%2e", "*"):
        assert ask(app, f"/api/runs/{path}/timeline").status == 404, path
        assert ask(app, f"/api/runs/{path}/videos/policy.mp4").status == 404, path
    for path in ("/assets/x/../../app.py", "/assets/../app.py", "/assets/x/app.py", "//etc/passwd", "/static/main.js"):
        assert ask(app, path).status == 404, path
