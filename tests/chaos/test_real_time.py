"""The paper's time model against the clock: afedpg needs K / sum(1/t_i) seconds for K gradients, fedpg K t_max / N."""

from __future__ import annotations

from pathlib import Path

import pytest
from federations import site, wait_until

from afedpg.config import Config, TimingConfig
from afedpg.engine.timing import Fixed, leader, linear, straggler

AGENTS = 4
TIMED = Config(agents=AGENTS, timing=TimingConfig(fastest=0.2, spread=4.0))
TIMINGS = {"straggler": straggler, "leader": leader, "linear": linear}


def seconds_per_gradient(folder: Path, method: str, times: Fixed, gradients: int) -> float:
    """Of the steady state: from when everyone has answered once to the end."""
    settings = ("--method", method, "--iterations", 10_000, "--dimension", 100)
    with site(folder, *settings, agents=AGENTS) as federation:
        federation.server()
        for number in range(AGENTS):
            federation.agent(number, "--seconds-per-gradient", times(number, 0))
        wait_until(lambda: federation.gradients() >= gradients + 3 * AGENTS, 120.0)
        rows = federation.query("SELECT gradient, agent, seconds FROM arrivals ORDER BY gradient")
        everyone = max(next(gradient for gradient, agent, _ in rows if agent == number) for number in range(AGENTS))
        steady = [(gradient, at) for gradient, _, at in rows if gradient >= everyone]
        if method == "fedpg":  # whole rounds
            times_of_rounds = sorted({at for _, at in steady})
            return (times_of_rounds[-1] - times_of_rounds[0]) / (len(times_of_rounds) - 1) / AGENTS
        (first, began), (last, ended) = steady[0], steady[-1]
        return float(ended - began) / (last - first)


@pytest.mark.parametrize("name", TIMINGS)
def test_the_speedup_is_the_formulas(tmp_path: Path, long: bool, name: str) -> None:
    if not long:
        pytest.skip("takes minutes: only with --long")
    times = TIMINGS[name](TIMED)
    formula = max(times.compute_seconds) / AGENTS * sum(1 / t for t in times.compute_seconds)
    measured = seconds_per_gradient(tmp_path / "fedpg", "fedpg", times, 60) / seconds_per_gradient(
        tmp_path / "afedpg", "afedpg", times, 120
    )
    print(f"{name}: measured {measured:.3f}, formula {formula:.3f}, ratio {measured / formula:.3f}")
    assert measured == pytest.approx(formula, rel=0.1)
