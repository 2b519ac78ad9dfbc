"""Processes start from a script without a `__main__` guard, from stdin and from what a notebook is."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINES = {"local": "engine='local'", "workers": "workers=2"}
CALL = """
from afedpg import train
small = dict(agents=2, iterations=1, steps=16, hidden=(4,), evaluate_episodes=1)
print("gradients", train({task}, **small, {more}).gradients)
"""
OWN = """
def make(agent):
    raise NotImplementedError  # it need only travel
"""

REGISTERS = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Mine(CartPoleEnv):
    pass
gymnasium.register("Mine-v0", entry_point=Mine, max_episode_steps=20)
"""


def called(engine):
    return CALL.replace("{more}", ENGINES[engine] + ", make_env=make").replace("{task}", "'quadratic'")


def ran(arguments, folder, text=None):
    return subprocess.run(
        [sys.executable, *arguments], input=text, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["script", "stdin", "script with its own environment", "script that registers one"])
def test_it_works_without_a_guard(engine, how, tmp_path):
    own = "own" in how
    more = ENGINES[engine] + (", make_env=make" if own else "")
    text = (OWN if own else REGISTERS if "registers" in how else "") + CALL.replace("{more}", more)
    text = text.replace("{task}", "'Mine-v0'" if "registers" in how else "'quadratic'")
    (tmp_path / "script.py").write_text(text)
    done = ran(["-"], tmp_path, text) if how == "stdin" else ran(["script.py"], tmp_path)
    assert (done.returncode, done.stdout) == (0, "gradients 2\n"), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stdin_or_a_notebook_defines_cannot_travel(engine, tmp_path):
    done = ran(["-"], tmp_path, OWN + called(engine))
    assert done.stderr.splitlines()[-1] == (
        "afedpg.errors.ConfigError: make_env: other processes cannot import what a notebook cell or stdin defines; "
        "put it into a module of its own, or use the virtual engine with workers=1"
    )
    assert done.stderr.count("Traceback") == 1  # of this process, which called train


@pytest.mark.parametrize("engine", ENGINES)
def test_a_function_below_an_earlier_call_asks_for_the_guard(engine, tmp_path):
    text = "from afedpg import train\ntrain('quadratic', agents=1, iterations=1)\n" + OWN
    (tmp_path / "script.py").write_text(text + called(engine))
    done = ran(["script.py"], tmp_path)
    assert 'put the call of train under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1


POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from afedpg import train
from afedpg.errors import ConfigError

def trained(more):
    try:  # as many steps as are worth workers
        return train("CartPole-v1", agents=2, iterations=25, steps=1024, hidden=(4,), evaluate_episodes=1, **more)
    except ConfigError as refusal:
        return refusal

if __name__ == "__main__":
    with multiprocessing.get_context("{how}").Pool(2) as pool:
        result, *refusals = pool.map(trained, [{{}}, {{"workers": 2}}, {{"engine": "local"}}])
    with ProcessPoolExecutor(1) as pool:
        print(pool.submit(trained, {{"workers": 2}}).result().sha256 == result.sha256)
    print(*refusals, sep="\\n")
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_a_process_that_may_have_no_children_trains_alone(how, tmp_path):
    (tmp_path / "script.py").write_text(POOL.format(how=how))
    done = ran(["script.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    same, *refusals = done.stdout.splitlines()
    assert same == "True"
    for setting, line in zip(("workers", "engine"), refusals, strict=True):
        assert line.startswith(f"{setting}: a process of multiprocessing.Pool may start none of its own; use ")
