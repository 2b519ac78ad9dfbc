"""What real processes import: torch where it computes, compiled rollouts and kernels where work is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from federations import Site, site, wait_until

HEAVY = ("torch", "afedpg.sampling.native.closed_loop", "afedpg.agent.compute.network")
WATCH = f"""
import os, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {HEAVY!r}:
            with open(os.environ["AFEDPG_WATCHED"], "a") as file:
                file.write(sys.argv[1] + " " + name + "\\n")

sys.meta_path.insert(0, Watch())
"""
SMALL = ("--hidden", "16", "--baseline-hidden", "16", "--steps", "64", "--iterations", "3", "--evaluate-episodes", "1")


class Imports:
    """Python runs `sitecustomize` first, in every process, and that writes down who asks for what is heavy."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "imported.txt"
        (folder / "sitecustomize.py").write_text(WATCH)

    def of(self, command: str) -> set[str]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return {name for who, _, name in (line.partition(" ") for line in lines) if who == command}


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Imports:
    (tmp_path / "watch").mkdir()
    found = Imports(tmp_path / "watch")
    paths = [str(tmp_path / "watch"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("AFEDPG_WATCHED", str(found.file))
    return found


def ends_well(federation: Site, *own: str) -> None:
    """With one agent: of two, one might end the run before the other has joined, which would then dial for ever."""
    server = federation.server()
    agent = federation.agent(0, *own)
    for process, log in [(server, "server"), (agent, "agent-0")]:
        assert process.wait(200) == 0, federation.log(log)


def trained(*arguments: str) -> None:
    command = [sys.executable, "-m", "afedpg", "train", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_server_and_agents_with_native_kernels(imports: Imports, tmp_path: Path) -> None:
    with site(tmp_path / "site", "--compute", "native", *SMALL, task="hopper", tls=True) as federation:
        ends_well(federation, "--compute", "native")
    assert imports.of("agent") == set(HEAVY[1:])
    assert imports.of("server") == set()  # it never works


def test_a_server_evaluates_without_torch_whatever_its_agents_compute_with(imports: Imports, tmp_path: Path) -> None:
    with site(tmp_path / "site", *SMALL, task="CartPole-v1") as federation:
        ends_well(federation, "--compute", "torch")
        assert federation.query("SELECT count(*) FROM evaluations")[0][0] > 0
    assert "torch" in imports.of("agent")
    assert imports.of("server") == set()


@pytest.mark.parametrize("workers", [1, 2])
def test_training_with_native_kernels(imports: Imports, tmp_path: Path, workers: int) -> None:
    settings = (
        *SMALL,
        "--compute",
        "native",
        "--agents",
        "2",
        "--workers",
        str(workers),
        "--out",
        str(tmp_path / "run"),
    )
    trained("hopper", *settings)
    assert imports.of("train") == set(HEAVY[1:])


def test_torch_would_be_noticed(imports: Imports, tmp_path: Path) -> None:
    trained("CartPole-v1", *SMALL, "--compute", "torch", "--agents", "1", "--out", str(tmp_path / "run"))
    assert "torch" in imports.of("train")


def compiler_kib(pid: int) -> int:
    """Resident code of LLVM."""
    total, ours = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if "-" in line.split()[0]:  # a mapping begins
            ours = " r-xp " in line and line.endswith("libllvmlite.so")
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


def test_only_who_leaves_the_compiler_last_lets_go_of_it() -> None:
    program = (
        "import numpy as np; from numba.core.compiler_lock import global_compiler_lock as lock; "
        "from afedpg import compiled; from afedpg.server.kernels import norm; "
        "released = []; compiled.release_compiler = lambda: released.append(1); "
        "compiled.release_compiler_after_use(); counts = [len(released)]\n"
        "with lock:\n"
        "    norm(np.full(4, 3.0)); counts.append(len(released))\n"
        "counts.append(len(released)); norm(np.full(4, 3.0)); counts.append(len(released)); print(counts)"
    )
    assert printed(program) == "[1, 1, 2, 2]\n"  # at once; not within; after it; and not for what is loaded already


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_process_that_has_loaded_what_it_needs_lets_go_of_the_compiler(tmp_path: Path) -> None:
    settings = ("--iterations", 10**6, "--steps", 64, "--hidden", 16, "--baseline", "linear", "--evaluate-every", 5)
    with site(tmp_path, *settings, task="CartPole-v1", agents=1) as federation:
        server = federation.server()
        assert compiler_kib(server.pid) < 8000  # what numba's import touched is released as well
        agent = federation.agent(0, "--compute", "native")
        wait_until(lambda: federation.gradients() > 0, 90)
        wait_until(lambda: federation.query("SELECT count(*) FROM evaluations")[0][0] > 0, 90)
        before = federation.gradients()
        wait_until(lambda: federation.gradients() > before + 5)
        wait_until(lambda: max(compiler_kib(server.pid), compiler_kib(agent.pid)) < 8000)


def test_compiled_code_still_loads_without_the_compilers_pages() -> None:
    program = (
        "import numpy as np; from afedpg.compiled import release_compiler, release_compiler_after_use; "
        "from afedpg.server.kernels import mix, norm; "
        "release_compiler_after_use(); first = norm(np.full(4, 3.0)); release_compiler(); release_compiler(); "
        "direction = np.ones(3); mix(direction, np.ones(3), 0.25, 0.5); print(first, direction.tolist())"
    )
    assert printed(program) == "6.0 [0.75, 0.75, 0.75]\n"


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
