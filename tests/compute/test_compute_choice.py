"""Which code computes: what `--compute` means, that both give the same numbers, and that native needs no torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from afedpg import resume, train
from afedpg.agent.baselines.mlp import MlpBaseline
from afedpg.agent.compute import choice
from afedpg.agent.compute.kernels import CriticKernels
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Report, Task, TaskId
from afedpg.preset import load_preset, presets
from afedpg.seeding import stream

SMALL = {"hidden": (16, 16), "baseline_hidden": (16,), "agents": 1, "sampler": "gymnasium"}
TASKS: list[dict[str, Any]] = [
    {"task": "CartPole-v1", "steps": 96},
    {"task": "CartPole-v1", "steps": 500, "estimator": "reinforce"},
    {"task": "Pendulum-v1", "steps": 96},
    {"task": "Pendulum-v1", "steps": 96, "baseline": "linear"},
    {"task": "Pendulum-v1", "steps": 96, "activation": "tanh", "mean": "linear"},
    {"task": "CartPole-v1", "steps": 96, "activation": "tanh"},
]


def work(settings: dict[str, Any], compute: str) -> tuple[AgentState, Report]:
    workload = EnvironmentWorkload(from_settings(SMALL | settings | {"compute": compute}))
    theta = workload.initial_theta().astype(np.float32)
    return workload.work(workload.start(0), Task(TaskId(0, 0), 0, theta, 0))


@pytest.mark.parametrize("settings", TASKS)
def test_native_and_torch_agree(settings: dict[str, Any]) -> None:
    native_state, native = work(settings, "native")
    torch_state, right = work(settings, "torch")
    assert np.linalg.norm(native.payload - right.payload) <= 1e-5 * np.linalg.norm(right.payload)
    assert native.payload.dtype == right.payload.dtype
    assert native_state.keys() == torch_state.keys()
    for name, array in torch_state.items():
        assert native_state[name].dtype == array.dtype
        np.testing.assert_allclose(native_state[name], array, rtol=1e-3, atol=2e-4)


def test_the_critics_fit_as_torch_fits() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 5)).astype(np.float32)
    y = x[:, 0].astype(np.float64) ** 2 + x[:, 1]
    usual = MlpBaseline(5, (24, 24), 1e-3, 3)
    native = MlpBaseline(5, (24, 24), 1e-3, 3, kernels=CriticKernels((5, 24, 24)))
    start = usual.start(stream(0, "baseline"))
    right, found = usual.fit(start, x, y), native.fit(start, x, y)
    way = np.linalg.norm(right["baseline"] - start["baseline"])
    assert np.linalg.norm(found["baseline"] - right["baseline"]) < 1e-3 * way
    np.testing.assert_array_equal(found["baseline_stream"], right["baseline_stream"])
    np.testing.assert_allclose(native.values(right, x), usual.values(right, x), rtol=1e-5, atol=1e-5)


class Own(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 2))

    def log_prob(self, observations: Any, actions: Any) -> Any:
        return torch.distributions.Categorical(logits=observations @ self.weight).log_prob(actions)  # type: ignore[no-untyped-call]

    def sample(self, observations: Any, generator: Any) -> Any:
        return torch.multinomial(torch.softmax(observations @ self.weight, 1), 1, generator=generator)[:, 0]

    def mode(self, observations: Any) -> Any:
        return (observations @ self.weight).argmax(1)


@pytest.mark.parametrize(
    ("settings", "own", "said"),
    [
        ({"method": "a3c"}, None, "policy and value parameters are differentiated together"),
        ({"device": "cuda"}, None, "--device cuda"),
        ({}, lambda *_: Own(), "a module of your own"),
    ],
)
def test_what_only_torch_can_do(settings: dict[str, Any], own: Any, said: str) -> None:
    config = from_settings(SMALL | {"task": "CartPole-v1", "compute": "native"} | settings)
    with pytest.raises(ConfigError, match=f"compute: native code cannot be used here: .*{said}.*; use --compute auto"):
        EnvironmentWorkload(config, make_policy=own)
    if config.agent.device == "cpu":
        auto = EnvironmentWorkload(from_settings({"compute": "auto"}, config), make_policy=own)
        assert auto._tools.kernels is None


def test_auto_takes_native_code_up_to_the_width_that_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    config = from_settings(SMALL | {"task": "CartPole-v1", "compute": "auto"})
    assert EnvironmentWorkload(config)._tools.kernels is not None
    monkeypatch.setattr(choice, "WIDEST", 15)
    assert EnvironmentWorkload(config)._tools.kernels is None
    assert EnvironmentWorkload(from_settings({"compute": "native"}, config))._tools.kernels is not None


@pytest.mark.parametrize("preset", [name for name in presets() if name.endswith(".paper")])
def test_the_papers_presets_are_computed_by_torch(preset: str) -> None:
    """Their bits are published."""
    assert load_preset(preset.removesuffix(".paper"), "paper")["compute"] == "torch"


@pytest.mark.usefixtures("forked_workers")
def test_the_same_bits_with_any_workers_and_after_an_interruption(tmp_path: Path) -> None:
    settings = SMALL | {"agents": 3, "iterations": 6, "steps": 64, "compute": "native", "seed": 3}
    whole = train("CartPole-v1", out=tmp_path / "whole", **settings)
    assert train("CartPole-v1", out=tmp_path / "workers", workers=2, **settings).sha256 == whole.sha256

    def crash(arrival: Any, seconds: float, theta: Any) -> None:
        if arrival.gradient == 7:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train("CartPole-v1", out=tmp_path / "cut", on_arrival=crash, **settings)
    assert resume(tmp_path / "cut").sha256 == whole.sha256


@pytest.mark.parametrize("task", ["CartPole-v1", "hopper"])
def test_native_training_never_imports_torch(task: str, tmp_path: Path) -> None:
    program = (
        "import sys; from afedpg.cli import main; "
        f"code = main(['train', {task!r}, '--compute', 'native', '--agents', '1', '--iterations', '2', "
        f"'--steps', '64', '--evaluate-episodes', '1', '--out', {str(tmp_path / 'run')!r}]); "
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env={**os.environ}, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["0 False"], done.stderr
