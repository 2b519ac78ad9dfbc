"""`train --engine ray` without a cluster: it starts one on loopback, and nothing is left of it however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from federations import alive, children, site, wait_until
from nodes import actors
from twin import check_draws

from afedpg.runs.replay import replay

SLOW_TO_NOTICE = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")  # Ray's own; they end a minute after a kill -9
SETTINGS = ("quadratic", "--engine", "ray", "--dimension", 50, "--keep-reports")
RAY_SECONDS = 200.0  # until a cluster has come up and works, on a busy machine


def listening(processes: list[psutil.Process]) -> set[str]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.net_connections("inet")
    return {one.laddr.ip.removeprefix("::ffff:") for one in found if one.status == psutil.CONN_LISTEN}


def removed(folder: str) -> bool:
    """Workers that Ray started last are not among those known here, and may still be ending."""
    shutil.rmtree(folder, ignore_errors=True)
    return not Path(folder).exists()


def test_nothing_is_left_behind_and_no_gradient_lost_by_a_kill_nor_by_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name)  # the engine itself sees to loopback and to a token
    home, scratch = tmp_path / "home", tmp_path / ("long" * 20)
    home.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(scratch))  # too long for the name of a socket
    with site(tmp_path) as federation:
        train = federation.command("train", *SETTINGS, "--agents", 2, "--iterations", 10**6, "--out", federation.run)
        wait_until(lambda: federation.gradients() > 50, RAY_SECONDS)
        started = children(train.pid)
        assert actors(train.pid)
        assert listening([psutil.Process(train.pid), *started]) == {"127.0.0.1"}
        (raylet,) = children(train.pid, lambda child: child.name() == "raylet")
        assert raylet.environ()["RAY_AUTH_MODE"] == "token"
        assert len(raylet.environ()["RAY_AUTH_TOKEN"]) == 64
        (place,) = set(re.findall(r"/tmp/ray-\w+", " ".join(raylet.cmdline())))
        train.kill()
        train.wait()
        for process in started:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.name() in SLOW_TO_NOTICE:
                    process.kill()
        wait_until(lambda: not any(alive(process) for process in started), what="Ray ended with its server")
        wait_until(lambda: removed(place), what=f"nobody writes into {place} any more")  # nobody was left to do it
        before = federation.gradients()
        resumed = federation.command("resume", federation.run)
        wait_until(lambda: federation.gradients() > before + 50, RAY_SECONDS)
        started = children(resumed.pid)
        os.killpg(resumed.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        assert resumed.wait(RAY_SECONDS) == 130, federation.log("resume")
        wait_until(lambda: not any(alive(process) for process in started), what="Ray ended with the run")
        rows = federation.query("SELECT gradient, task_id FROM arrivals ORDER BY gradient")
        assert [gradient for gradient, _ in rows] == list(range(1, len(rows) + 1))
        assert len({task_id for _, task_id in rows}) == len(rows)
        assert replay(federation.run).agrees
        check_draws(federation.run)
        assert not (home / ".ray").exists()


WITHOUT = "import sys; sys.modules['ray'] = None; from afedpg.cli import main; sys.exit(main(sys.argv[1:]))"


def test_without_ray_the_command_that_installs_it_is_named_and_everything_else_works(tmp_path: Path) -> None:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", WITHOUT, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    refused = run("train", *SETTINGS, "--out", tmp_path / "ray")
    assert refused.returncode == 2
    assert refused.stderr.startswith("afedpg: engine: Ray is not installed; `pip install 'afedpg[ray]'`")
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "ray").exists()
    for engine in ("virtual", "local"):
        done = run(
            "train", "quadratic", "--engine", engine, "--agents", 1, "--iterations", 5, "--out", tmp_path / engine
        )
        assert done.returncode == 0, done.stderr
