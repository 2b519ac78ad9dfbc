"""A federation goes on from its folder: with its own parts, alone in it, and without what it no longer needs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from federations import reserved_port, site

import afedpg
from afedpg.engine.cost import Cost
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Restart
from afedpg.record import folder as folders
from afedpg.record import journal as journals
from afedpg.runs import live_session
from afedpg.runs.live_session import restored_parts
from afedpg.runs.parts import configure
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.serve import Place, resume_server, run_server
from afedpg.runs.train import resume

SETTINGS = {"agents": 1, "iterations": 10, "engine": "local"}
HERE = Place("127.0.0.1:0")


def test_nothing_is_read_while_an_old_server_may_still_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    afedpg.train("quadratic", **SETTINGS, out=tmp_path / "run")
    folder = folders.open_run(tmp_path / "run")
    monkeypatch.setattr(live_session, "_fold_again", lambda *arguments: pytest.fail("read without the lock"))
    with folder.lock(), pytest.raises(AfedpgError, match="is being written by another process"):
        resume_server(StoredRun(folder), HERE, engine="local")


@pytest.mark.parametrize("broken", ["_fold_again", "Restart"])  # before the recorder is there, and after
def test_a_resume_that_fails_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    afedpg.train("quadratic", **SETTINGS, out=tmp_path / "run")
    folder = folders.open_run(tmp_path / "run")

    def fail(*arguments: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(live_session, broken, fail)
    with pytest.raises(OSError, match="the disk is gone"):
        resume_server(StoredRun(folder), HERE, engine="local")
    folder.lock().release()


def taken(tmp_path: Path, port: int) -> Place:
    return Place(f"127.0.0.1:{port}")


def no_list(tmp_path: Path, port: int) -> Place:
    return Place("127.0.0.1:0", allow=tmp_path / "nobody.txt")


def no_certificate(tmp_path: Path, port: int) -> Place:
    (tmp_path / "allowed.txt").write_text("agent-0")
    return Place("127.0.0.1:0", cert=tmp_path / "nothing", allow=tmp_path / "allowed.txt")


@pytest.mark.parametrize("place", [taken, no_list, no_certificate])
def test_a_server_that_cannot_open_leaves_no_folder(tmp_path: Path, place: Callable[[Path, int], Place]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = place(tmp_path, other.getsockname()[1])
        with pytest.raises(ConfigError, match=r"is the port taken|nobody\.txt|nothing"):
            run_server(NewRun(configure("quadratic", None, SETTINGS), out=tmp_path / "run"), where)
    assert not (tmp_path / "run").exists()


def test_a_server_without_a_folder_gives_its_port_back(tmp_path: Path) -> None:
    port, keeper = reserved_port()
    (tmp_path / "run").write_text("")
    with keeper:  # until the end: nobody else is given the port
        with pytest.raises(ConfigError, match="exists"):
            run_server(NewRun(configure("quadratic", None, SETTINGS), out=tmp_path / "run"), Place(f"127.0.0.1:{port}"))
        socket.create_server(("127.0.0.1", port)).close()


class Killed(BaseException):
    pass


def killed(cost: Cost) -> None:
    raise Killed


def test_a_server_that_ends_before_it_serves_is_resumed_where_it_would_have_listened(tmp_path: Path) -> None:
    with site(tmp_path, agents=1) as federation:
        config = configure("quadratic", None, {"agents": 1, "iterations": 30, "engine": "grpc"})
        with pytest.raises(Killed):  # once the folder is there
            run_server(NewRun(config, out=federation.run, announce=killed), Place(f"127.0.0.1:{federation.port}"))
        assert Place.stored(federation.run).address == f"127.0.0.1:{federation.port}"
        server = federation.command("resume", federation.run)
        agent = federation.agent(0)
        assert server.wait(180) == 0, federation.log("resume")
        assert agent.wait(60) == 0, federation.log("agent-0")
        assert federation.gradients() == 30


def test_a_resume_that_cannot_open_leaves_no_lock(tmp_path: Path) -> None:
    afedpg.train("quadratic", **SETTINGS, out=tmp_path / "run")
    folder = folders.open_run(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(ConfigError, match="is the port taken"):
        resume_server(StoredRun(folder), Place(f"127.0.0.1:{other.getsockname()[1]}"), engine="local")
    folder.lock().release()


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_a_server_goes_on_with_no_run_of_another_engine(tmp_path: Path, engine: str) -> None:
    afedpg.train("quadratic", agents=1, iterations=10, engine=engine, out=tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(ConfigError, match=f"a run of --engine {engine}"):
        resume_server(StoredRun(folders.open_run(tmp_path / "run")), HERE)
    assert contents(tmp_path / "run") == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("how", ["resume", "resume_server"])
def test_who_goes_on_with_other_versions_is_told_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    afedpg.train("quadratic", **SETTINGS, out=tmp_path / "run")
    now = folders.current_versions()
    monkeypatch.setattr(folders, "current_versions", lambda: now | {"numpy": "9.9"})
    told: list[str] = []
    if how == "resume":
        resume(tmp_path / "run", warn=told.append)
    else:
        resume_server(StoredRun(folders.open_run(tmp_path / "run"), warn=told.append), HERE, engine="local")
    assert told == [f"numpy {now['numpy']} -> 9.9: the bits may differ from an uninterrupted run"]


def test_a_federation_with_own_parts_is_resumed_with_them(tmp_path: Path) -> None:
    afedpg.train("quadratic", **SETTINGS, eta=lambda k, v: 0.01, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"own parts: eta: .*<lambda> #\w+; given were: none"):
        resume_server(StoredRun(folders.open_run(tmp_path / "run")), HERE, engine="local")


def test_the_runs_clock_goes_on_with_the_restart(tmp_path: Path) -> None:
    """Also where the checkpoint is the last that happened, as after an orderly stop."""
    done = afedpg.train("quadratic", **SETTINGS, out=tmp_path / "run")
    folder = folders.open_run(tmp_path / "run")
    parts = restored_parts(StoredRun(folder), folder.config())
    parts.federation.close()
    *before, (_, restarted, event) = journals.read(folder.journal)
    assert isinstance(event, Restart)
    assert restarted >= max([seconds for _, seconds, _ in before], default=0.0)
    assert 0 < done.seconds - restarted < 60
    assert restarted == parts.seconds > 0


def test_the_run_it_began_with_is_not_needed_again(tmp_path: Path) -> None:
    afedpg.train("quadratic", agents=1, iterations=5, out=tmp_path / "first")
    done = afedpg.train("quadratic", **SETTINGS, from_run=str(tmp_path / "first"), out=tmp_path / "run")
    (tmp_path / "first").rename(tmp_path / "moved")
    folder = folders.open_run(tmp_path / "run")
    parts = restored_parts(StoredRun(folder), folder.config())
    parts.federation.close()
    assert parts.federation.server.theta.tobytes() == done.theta.tobytes()
