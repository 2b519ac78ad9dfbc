"""Every method's recorded journal against an independent twin of the recursion; and the detector of repeated draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twin import assert_all_differ, check_draws, check_twin

import afedpg
from afedpg.config import METHODS, SCHEDULES
from afedpg.record import checkpoint


def settings_of(method: str) -> dict[str, Any]:
    return {"method": method, "agents": 1 if method in ("pg", "pg-plain") else 5, "eta": 0.02, "seed": 4}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("method", METHODS)
def test_virtual_journals(tmp_path: Path, method: str, schedule: str) -> None:
    more: dict[str, Any] = {"eta_floor": 0.01} if schedule == "linear" else {}
    afedpg.train("quadratic", **settings_of(method), **more, schedule=schedule, iterations=120, out=tmp_path / "run")
    check_draws(tmp_path / "run")


@pytest.mark.parametrize("more", [{"literal": True, "schedule": "fosp"}, {"literal_constants": True}], ids=str)
@pytest.mark.parametrize("method", ["afedpg", "fedpg"])
def test_constants_as_printed(tmp_path: Path, method: str, more: dict[str, Any]) -> None:
    afedpg.train("quadratic", **settings_of(method), **more, iterations=60, out=tmp_path / "run")
    check_draws(tmp_path / "run")


@pytest.mark.parametrize("method", METHODS)
def test_real_time(tmp_path: Path, method: str) -> None:
    settings = settings_of(method) | {"agents": 1 if method in ("pg", "pg-plain") else 2}
    afedpg.train("quadratic", **settings, engine="local", iterations=60, out=tmp_path / "run")
    check_draws(tmp_path / "run")


@pytest.mark.parametrize("method", ["afedpg", "a3c"])
def test_environments(tmp_path: Path, method: str) -> None:
    settings: dict[str, Any] = {"steps": 64, "hidden": (8,), "evaluate_episodes": 1}
    settings |= {"baseline": "linear"} if method == "afedpg" else {}
    afedpg.train("CartPole-v1", **settings_of(method), **settings, iterations=8, out=tmp_path / "run")
    check_draws(tmp_path / "run")


def test_late_and_leaving_agents_and_refusals(tmp_path: Path) -> None:
    for method in ("afedpg", "fedpg"):
        out = tmp_path / method
        afedpg.train(
            "quadratic", **settings_of(method), iterations=60, late={"1": 9.0}, drop={"2": 20.5}, max_norm=15.0, out=out
        )
        assert check_twin(out).refused


def test_a_theta_that_is_not_what_the_journal_makes_of_it_is_noticed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    afedpg.train("quadratic", **settings_of("afedpg"), iterations=20, out=run)
    name, tree = checkpoint.load_latest(run / "checkpoints")
    tree["server"]["theta"][3] += 1e-11
    checkpoint.save(run / "checkpoints", name, tree, keep=1)
    with pytest.raises(AssertionError):
        check_twin(run)


@pytest.mark.parametrize("rounding", [0.0, 1e-6])
def test_the_detector_finds_one_pair_among_many(rounding: float) -> None:
    generator = np.random.default_rng(0)
    draws = generator.standard_normal((5000, 10))
    agents = generator.integers(0, 8, 5000).tolist()
    assert_all_differ(draws, agents)
    draws[4321] = draws[17] + rounding * generator.standard_normal(10)
    with pytest.raises(AssertionError, match=r"gradients \[\[18, 4322\]\] of agents .* are of the same draws"):
        assert_all_differ(draws, agents)


def test_the_detector_finds_agents_that_share_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from afedpg.problems.problem import ProblemWorkload

    start = ProblemWorkload.start
    monkeypatch.setattr(ProblemWorkload, "start", lambda self, agent_id: start(self, 0))
    afedpg.train("quadratic", **settings_of("afedpg"), iterations=20, out=tmp_path / "run")
    check_twin(tmp_path / "run")
    with pytest.raises(AssertionError, match="of the same draws"):
        check_draws(tmp_path / "run")
