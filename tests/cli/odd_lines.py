"""Odd command lines, made from the parsers themselves, and a process that runs them.

Every option of every command is given values that make no sense for most of them. `python odd_lines.py FILE` reads rows
from FILE and runs each in a fork of itself, in a folder of its own: what one row breaks does not reach the next, and
nothing is imported twice.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from afedpg.cli import make_parser

MEMORY = 6 * 2**30  # bytes of address space a row may take beyond what is loaded
PATIENCE = 60  # seconds
# One line per command that is fine, ends soon, and to which one odd option is added.
SOON = "--agents 2 --iterations 2 --stop-at-seconds 9"
FINE = {
    "train": f"train quadratic {SOON} --out new",
    "evaluate": "evaluate run --episodes 1",
    "replay": "replay run",
    "resume": "resume run",
    "export": "export run out.onnx",
    "runs": "runs run",
    "dashboard": "dashboard nosuch",
    "reproduce": "reproduce timeline --scale smoke --tasks nosuch",
    "server": "server quadratic --agents 1 --listen 127.0.0.1:0 --insecure --stop-at-seconds 0.01 --out new",
    "agent": "agent quadratic --connect 127.0.0.1:1 --insecure --name odd --patience 0.05",
    "certs": "certs new --agents 0",
    "status": "status run",
    "bench": "bench server --tasks nosuch",
    "completion": "completion bash",
    "parts": "parts codec",
    "check": "check CartPole-v1",
    "tune": f"tune quadratic {SOON} --trials 1 --out new",
}
ODD = (
    "", " ", "-1", "-1e3", "0", "0.5", "1e300", "1" + "0" * 30, "nan", "inf", "-inf", "word", "1,2,,x", "1=2", "a=1",
    "\u00fc\u2603", "\x1b[31mred\x07", "two\nlines", "binary", "binary.toml", "binary.csv", "deep.toml", "folder",
    "folder.toml",
    "nosuch", "nosuch.toml", ".", "..", "x" * 300, "-", "--", "=", "%s", "0-", "-5-3", "0-1000000000",
)  # fmt: skip
EACH = 3  # odd words per option, other ones for the next
# Options that only make sense to a network are tried with the network's own tests; agents log while they wait.
TRIED = {
    "server": ("--preset",), "agent": ("--env-kwargs", "--device", "--sampler"), "status": (),
    "certs": ("--host", "--agents", "--days"), "tune": ("--trials", "--minutes", "--preset"),  # the rest is train's
}  # fmt: skip
ODD_PARTS = (
    ":", "::", "x:=", "x.py:", ".py:X", "nosuch.py:X", "binary.py:X", "folder.py:X", "empty.py:X", "raises.py:X",
    "number.py:X:power=1", "x.py:X:power=" + "1" * 5000, "\x1b[31m.py:\x1b[31m", "two\nlines.py:X", "x" * 300 + ".py:X",
)  # fmt: skip
LOADED = (
    "afedpg.agent.work", "afedpg.bench.server", "afedpg.experiments.reproduce", "afedpg.runs.check",
    "afedpg.runs.evaluate", "afedpg.runs.replay", "afedpg.runs.train", "afedpg.runs.tune", "afedpg.terminal.progress",
    "cryptography.x509", "scipy.linalg", "tensorboard.summary.v1",
)  # fmt: skip
NO_TIME = ("-1", "nan", "1e300", "1" + "0" * 30)  # as seconds


def rows() -> Iterator[list[str]]:
    commands = next(action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    turn = 0
    for name, parser in commands.choices.items():
        fine = FINE[name].split()
        for action in parser._actions:
            flag = action.option_strings[-1] if action.option_strings else ""
            if flag and action.nargs != 0 and flag in TRIED.get(name, (flag,)):
                for place in range(EACH):
                    yield [*fine, flag, ODD[(turn + place * len(ODD) // EACH) % len(ODD)]]
                turn += 1
    for name, odd in (("train", "--seeds=0-1000000000"), ("train", "--workers=--"), ("train", "--fastest=1e300")):
        yield [*FINE[name].split(), odd]
    for odd in ODD_PARTS:
        for kind in ("method", "estimator", "aggregator", "codec", "timing", "attack"):
            yield [*FINE["train"].split(), f"--{kind}", odd]
        yield [*FINE["parts"].split(), odd]
    for odd in NO_TIME:
        yield [*FINE["server"].split(), "--lease", odd]
        yield [*FINE["agent"].split(), "--patience", odd]
        yield [*FINE["agent"].split(), "--seconds-per-gradient", odd]
        yield [*FINE["certs"].split(), "--days", odd]
    for file in ("binary.toml", "deep.toml", "folder.toml", "nosuch.toml", "x" * 300):
        for option in ("--preset", "--env-kwargs", "--late", "--from", "--out"):
            yield [*FINE["train"].split(), option, file]
        yield [*FINE["train"].split(), "--timing", "trace", "--trace", file]
        yield ["agent", "quadratic", "--connect", "127.0.0.1:1", "--insecure", "--name", "odd", "--env-kwargs", file]
        yield ["export", "run", file]
        yield ["replay", file]
        yield ["runs", file]


def prepare(place: Path) -> None:
    """What the odd words may name."""
    for name in ("binary", "binary.toml", "binary.csv"):
        (place / name).write_bytes(bytes(range(256)) * 4)
    (place / "deep.toml").write_text("a = " + "[" * 3000 + "]" * 3000)
    (place / "binary.py").write_bytes(bytes(range(256)))
    for name, code in {"empty.py": "", "raises.py": "1 / 0", "number.py": "X = 3"}.items():
        (place / name).write_text(code)
    for name in ("folder", "folder.toml", "folder.py"):
        (place / name).mkdir()


def run_all(lines: list[list[str]], runs: Path) -> list[dict[str, object]]:
    return [_run(line, runs) for line in lines]


def _run(line: list[str], runs: Path) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as scratch:
        place, said = Path(scratch) / "place", Path(scratch) / "said"
        place.mkdir()
        prepare(place)
        shutil.copytree(runs, place, dirs_exist_ok=True)
        before = _listing(place)
        child = os.fork()
        if child == 0:
            _be(line, place, said)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        left = sorted(_listing(place) ^ before)
        return {"line": line, "code": code, "said": said.read_text(errors="replace"), "left": left}


def _listing(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def _be(line: list[str], place: Path, said: Path) -> None:
    """A row's whole life, in its own process."""
    code = 70
    try:
        os.chdir(place)
        out = os.open(said, os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
        signal.alarm(PATIENCE)
        from afedpg.cli import main

        code = main(line)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _load() -> None:
    """What the commands import, once; gRPC aside, which does not survive a fork."""
    for name in LOADED:
        importlib.import_module(name)


if __name__ == "__main__":
    _load()
    job = json.loads(Path(sys.argv[1]).read_text())
    for line in job["lines"]:
        print(json.dumps(_run(line, Path(job["runs"]))), flush=True)
