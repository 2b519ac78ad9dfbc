"""What all tests share: one hypothesis profile, workers, disks that run full, and the command line as a process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from afedpg.engine import spawn

# As a terminal has them: who starts the tests in the background may have them ignored, and processes inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("laws", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("laws")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="everything that can go wrong, at full length")


@pytest.fixture(scope="session", autouse=True)
def _state_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What runs remember for their user goes nowhere near the user's own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))


@pytest.fixture(scope="session")
def compiled() -> None:
    """A machine's first run says that it compiles: tests that compare all a run of CartPole says come after one."""
    from afedpg import train

    train("CartPole-v1", agents=1, iterations=2, steps=256, evaluate_every=1, evaluate_episodes=1, workers=1)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that this process hires are forked from one that has imported everything: to start one takes a second
    or two, most of it torch. For tests of what workers compute; how they start and die is tested with real ones.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with monkeypatch.context() as starting:
        starting.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        forkserver.ensure_running()
    monkeypatch.setattr(spawn, "multiprocessing", SimpleNamespace(get_context=lambda kind: context))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk of so many KiB: a real file system that really runs full."""
    mounted: list[Path] = []

    def mount(kib: int) -> Path:
        target = tmp_path / f"disk-{len(mounted)}"
        target.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small tmpfs cannot be mounted here: {done.stderr.strip()}")
        mounted.append(target)
        return target

    yield mount
    for target in mounted:
        subprocess.run(["umount", "-l", str(target)], check=True)


@pytest.fixture
def start_command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `afedpg ...` as the leader of a process group of its own; whatever is left is killed at the end."""
    started: list[subprocess.Popen[str]] = []
    usual = (sys.executable, "-m", "afedpg")

    def start(*arguments: object, program: Sequence[str] = usual, **options: object) -> subprocess.Popen[str]:
        command = [*program, *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        started.append(subprocess.Popen(command, **(pipes | options)))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()
