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


def start(folder: Path, program: str = PROGRAM) -> tuple[int, str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return int(done.stdout), done.stderr


@pytest.mark.parametrize(
    ("program", "named"),
    [(PROGRAM, "the native sampler, once on this machine (about 10 s)"),
     (KERNELS, "the compute kernels, once on this machine (about 15 s)")],
)  # fmt: skip
def test_compiles_once_says_so_and_loads_afterwards(tmp_path: Path, program: str, named: str) -> None:
    misses, said = start(tmp_path, program)
    assert misses == 2
    assert said == f"compiling {named}\n"
    misses, said = start(tmp_path, program)
    assert misses == 0
    assert said == ""


def test_a_cache_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    _, said = start(blocked)
    assert "Error" not in said


def test_the_cache_depends_on_every_file_with_compiled_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "afedpg"
    shutil.copytree(Path(compiled.__file__).parent, here, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "__file__", str(here / "compiled.py"))
    seen = {compiled._fingerprint()}
    files = ["compiled.py", "server/kernels.py"]
    files += ["policy/forward.py", "agent/estimators/advantage.py"]
    files += [f"sampling/native/{name}.py" for name in ("closed_loop", "mujoco_library")]
    files += [f"agent/compute/{name}.py" for name in ("blocks", "products", "network", "local_steps")]
    files += [
        f"sampling/native/tasks/{name}.py" for name in ("task", "swimmer", "walker", "ant", "humanoid", "pendulum")
    ]
    for name in files:
        with (here / name).open("a") as file:
            file.write("# another line\n")
        seen.add(compiled._fingerprint())
    assert len(seen) == 1 + len(files)
