"""A terminal that goes away stops a run as SIGTERM does: everything is stored, exit code 130, and it can go on."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from federations import Site, alive, children, site, wait_until

from afedpg import replay
from afedpg.record.database import read_last

FOR_EVER = ("--iterations", 10**6, "--checkpoint-seconds", 1000)


def stored(run: Path) -> None:
    assert replay(run).gradients == read_last(run / "run.db")[0] > 0


def trains(federation: Site) -> list[object]:
    return ["train", "quadratic", *FOR_EVER, "--out", federation.run]


def trains_with_workers(federation: Site) -> list[object]:
    return [*trains(federation), "--workers", 2]


def trains_locally(federation: Site) -> list[object]:
    return [*trains(federation), "--engine", "local", "--agents", 2]


@pytest.mark.parametrize("what", [trains, trains_with_workers, trains_locally])
def test_a_run_whose_terminal_is_gone_is_stored(what: Callable[[Site], list[object]], tmp_path: Path) -> None:
    with site(tmp_path) as federation:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *map(str, what(federation))],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(slave)
        federation.processes.append(process)
        wait_until(lambda: read(master) and federation.gradients() > 20)
        family = children(process.pid)
        os.close(master)  # as when the window is closed, or the line to it breaks
        assert process.wait(60) == 130
        wait_until(lambda: not any(alive(child) for child in family), what="the workers ended with it")
        stored(federation.run)


# The leader of a session with this terminal; its group is the terminal's, whose hang-up reaches all of it.
TAKE_TERMINAL = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from afedpg.cli import main; sys.exit(main())"
)


def read(master: int) -> bool:
    """Nobody may wait for room in the terminal."""
    os.set_blocking(master, False)
    with contextlib.suppress(BlockingIOError):
        os.read(master, 1 << 16)
    return True


def test_a_server_and_its_agent_that_are_hung_up_leave_in_order(tmp_path: Path) -> None:
    with site(tmp_path, *FOR_EVER, agents=1) as federation:
        server, agent = federation.server(), federation.agent(0, "--state", tmp_path / "state")
        wait_until(lambda: federation.gradients() > 20)
        agent.send_signal(signal.SIGHUP)
        assert agent.wait(60) == 130
        assert "left after" in federation.log("agent-0")
        server.send_signal(signal.SIGHUP)
        assert server.wait(60) == 130
        assert "afedpg resume" in federation.log()
        stored(federation.run)


def test_under_nohup_a_run_goes_on(tmp_path: Path) -> None:
    with site(tmp_path) as federation:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does, for the processes it starts
        try:
            process = federation.command(*trains(federation))
        finally:
            signal.signal(signal.SIGHUP, before)
        wait_until(lambda: federation.gradients() > 20)
        process.send_signal(signal.SIGHUP)
        gradients = federation.gradients()
        wait_until(lambda: federation.gradients() > gradients + 20)
        assert process.poll() is None
