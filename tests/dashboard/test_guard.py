"""Who may look: this machine by its own names, others with the token; and nobody can change anything."""

from __future__ import annotations

import re

import pytest
from asking import HOST, PORT, app_of, ask, small_run

from afedpg.cli import main
from afedpg.dashboard.app import make_app
from afedpg.dashboard.serve import is_loopback, url

TOKEN = "a-long-random-token"
OUTSIDE = "federation.example:7444"
ROUTES = ("/", "/api/runs", "/api/updates?at=x~", "/api/runs/x/timeline", "/api/runs/x/videos/y.mp4", "/nothing")


@pytest.fixture
def root(tmp_path):
    small_run(tmp_path / "one")
    return tmp_path


@pytest.mark.parametrize("route", ROUTES)
def test_a_page_of_the_web_cannot_lead_a_browser_here(root, route):
    app = app_of(root)
    for name in (
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{PORT}",
        "127.0.0.1:80",
        "",
    ):
        assert ask(app, route, host=name).status == 421, name
    for name in (HOST, f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"):
        assert ask(app, route, host=name).status != 421, name


@pytest.mark.parametrize(
    ("host", "port", "named"),
    [("127.0.0.2", PORT, f"127.0.0.2:{PORT}"), ("localhost", 80, "localhost"), ("::1", 80, "[::1]")],
)
def test_the_address_that_is_printed_is_answered(root, host, port, named):
    app = make_app([root], host, port, None)
    assert ask(app, "/", host=named).status == 200
    for other in ("evil.example", f"evil.example:{port}", "127.0.0.3", f"127.0.0.3:{port}"):
        assert ask(app, "/", host=other).status == 421, other


@pytest.mark.parametrize("route", ROUTES)
def test_elsewhere_every_route_needs_the_token(root, route):
    app = app_of(root, TOKEN)
    sign = "&" if "?" in route else "?"
    for wrong in (
        "",
        f"{sign}token=",
        f"{sign}token={TOKEN}x",
        f"{sign}token={TOKEN[:-1]}",
        f"{sign}token=%F0%9F%98%80",
    ):
        assert ask(app, route + wrong, host=OUTSIDE).status == 403, wrong
    assert ask(app, route, host=OUTSIDE, cookie=f"afedpg-{PORT}=wrong").status == 403
    assert ask(app, route, host=OUTSIDE, cookie='broken="').status == 403
    for right in ({"cookie": f"other=1; afedpg-{PORT}={TOKEN}"},):
        assert ask(app, route, host=OUTSIDE, **right).status != 403


def test_the_assets_need_it_too(root):
    page = ask(app_of(root), "/").body.decode()
    assets = set(re.findall(r'"(/assets/[^"]+)"', page))
    assert len(assets) > 10
    for asset in assets:
        assert ask(app_of(root, TOKEN), asset, host=OUTSIDE).status == 403
        found = ask(app_of(root), asset)
        assert (found.status, "immutable" in found.headers["cache-control"]) == (200, True), asset


def test_the_token_leaves_the_address(root):
    answer = ask(app_of(root, TOKEN), f"/?token={TOKEN}", host=OUTSIDE)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert re.fullmatch(rf"afedpg-{PORT}={TOKEN}; HttpOnly; Path=/; SameSite=lax", answer.headers["set-cookie"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_answer_keeps_the_page_to_itself(root, route, token):
    for answer in (ask(app_of(root, token), route), ask(app_of(root, token), route, host="evil.example")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(root, method):
    assert ask(app_of(root), "/api/runs", method).status == 405


def test_numbers_in_requests_are_numbers(root):
    app = app_of(root)
    run = ask(app, "/api/runs").json["runs"][0]["id"]
    assert ask(app, f"/api/runs/{run}/timeline?last=9&count=3").json["step"] == [7, 8, 9]
    for wrong in ("last=-1", "last=1e3", "count=²", f"count={'9' * 40}", "last=1;drop"):
        assert ask(app, f"/api/runs/{run}/timeline?{wrong}").status == 400, wrong
    for cursor in ("", "x", "1.2.3", "-1.0.0.0", "9" * 99, "1.1.1.1.1"):
        assert "curve" in ask(app, f"/api/updates?at={run}~{cursor}").json[run], cursor


def test_only_loopback_goes_without_a_token():
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.evil.example"))
    assert url("::1", 5, None) == "http://[::1]:5/"
    assert url("10.0.0.1", 5, "t") == "http://10.0.0.1:5/?token=t"


def test_bad_input_is_told_in_one_line(capsys, tmp_path):
    assert main(["dashboard", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err == f"afedpg: runs: there is no folder {tmp_path / 'nothing'}\n"
    assert main(["dashboard", str(tmp_path), "--port", "99999"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
