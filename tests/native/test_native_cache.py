"""Compiled once on a machine: the first start says so, later ones load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from afedpg import compiled

PROGRAM = """
from afedpg.sampling.native import closed_loop
from afedpg.sampling.environments import Environments
from afedpg.policy.mlp import MlpPolicy
from afedpg.config import from_settings
from afedpg.seeding import stream

environments = Environments(from_settings({"task": "Hopper-v4", "agents": 1}))
from afedpg.sampling.native.sampler import native_sampler
policy = MlpPolicy(11, 3, True, (64, 64))
sampler = native_sampler(environments, policy, 10, False)
assert not isinstance(sampler, str), sampler
sampler.sample(0, sampler.start(0, 0), policy.initial_theta(stream(0, "theta")), None)
loops = (closed_loop.roll_out, closed_loop.replay)
print(sum(sum(loop.stats.cache_misses.values()) for loop in loops))
"""


KERNELS = """
import numpy as np
from afedpg.agent.compute import kernels, network, objectives

policy = kernels.PolicyKernels((3, 8, 2), gaussian=True)
for _ in range(2):
    policy.score_gradient(np.zeros(policy.parameters), np.zeros((5, 3)), np.zeros((5, 2)), np.ones(5))
loops = (network.pack, objectives.score_gradient)
print(sum(sum(loop.stats.cache_misses.values()) for loop in loops))
"""

SERVER = """
import numpy as np
from afedpg.server.kernels import norm

assert norm(np.full(4, 3.0)) == 6
print(sum(norm.stats.cache_misses.values()))
"""

LOADED = """
import sys
print(int("numba.np.arraymath" in sys.modules))
"""


def start(folder: Path, program: str = PROGRAM) -> tuple[int, bool, str]:
    """How many functions were not on the disk, whether numba loaded what it compiles with, and what was said."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", program + LOADED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    misses, loaded = map(int, done.stdout.split())
    return misses, bool(loaded), done.stderr


@pytest.mark.parametrize("program", [PROGRAM, KERNELS], ids=["sampler", "kernels"])
def test_compiles_once_says_so_and_loads_afterwards(tmp_path: Path, program: str) -> None:
    assert start(tmp_path, program) == (2, True, "compiling native code, once on this machine (about 15 s)\n")
    assert start(tmp_path, program) == (0, False, "")


def test_a_process_that_compiles_sampler_and_kernels_says_so_in_one_line(tmp_path: Path) -> None:
    *_, said = start(tmp_path, PROGRAM.replace("print(", "first = (") + KERNELS)
    assert said == "compiling native code, once on this machine (about 15 s)\n"


def test_a_cache_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert start(blocked, SERVER) == (1, True, "")


def test_the_cache_depends_on_every_file_with_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "afedpg"
    shutil.copytree(Path(compiled.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "__file__", str(here / "compiled.py"))
    seen = {compiled._fingerprint()}
    files = ["compiled.py", "server/kernels.py"]
    files += ["policy/forward.py", "agent/estimators/advantage.py"]
    files += [f"sampling/native/{name}.py" for name in ("cart_pole", "closed_loop", "mujoco_library")]
    files += [f"agent/compute/{name}.py" for name in ("blocks", "products", "network", "local_steps")]
    files += [
        f"sampling/native/tasks/{name}.py" for name in ("task", "swimmer", "walker", "ant", "humanoid", "pendulum")
    ]
    for name in files:
        with (here / name).open("a") as file:
            file.write("# another line\n")
        seen.add(compiled._fingerprint())
    assert len(seen) == 1 + len(files)
