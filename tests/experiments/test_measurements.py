"""Measurements against loops written independently."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from afedpg.experiments.choices import Choices, Method
from afedpg.experiments.jobs import Plan
from afedpg.experiments.measurements import Measurement, log_points
from afedpg.experiments.studies import STUDIES, measurements, read_curves
from afedpg.problems.problem import BLOCK
from afedpg.seeding import stream

CONTEXTS = np.array([1.0, 0.5, 0.3, 0.2])
CHOICES = Choices("smoke", Path(), 1)


def measured(agents: int, common: bool, gradients: int = 2000) -> Measurement:
    shared = {"schedule": "global", "eta": 1.0, "iterations": gradients // agents}
    settings = Plan(CHOICES, shared=shared).settings("lq-bandit", Method("afedpg"), agents, seed=3)
    return Measurement(settings, (100, 500, gradients), common)


def test_a_lone_agents_gap_is_that_of_the_equations() -> None:
    """Normalized policy gradient with implicit transport on the bandit, written out with the same draws."""
    generator = stream(3, "agent", 0)
    blocks = [(generator.integers(4, size=size), generator.standard_normal(size)) for size in [BLOCK // 2] * 20]
    contexts, noise = (np.concatenate(part) for part in zip(*blocks, strict=True))
    theta, direction, ahead, gaps = np.zeros(4), np.zeros(4), np.zeros(4), {}
    for k in range(2000):
        m, z = contexts[k], noise[k]
        action = np.float32(ahead[m]) * CONTEXTS[m] + 0.5 * z
        gradient = np.zeros(4)
        gradient[m] = CONTEXTS[m] * z / 0.5 * -((action - CONTEXTS[m]) ** 2)
        alpha = (max(k, (k + 1) // 2) + 1) ** -0.8
        direction = (1 - alpha) * direction + alpha * gradient
        step = direction / np.linalg.norm(direction) / (k + 1)
        theta = theta + step
        ahead = theta + (1 - alpha) / alpha * step
        gaps[k + 1] = np.mean(CONTEXTS**2 * (theta - 1) ** 2)
    rows = measured(1, common=False).measure()
    assert [row[0] for row in rows] == [100, 500, 2000]
    assert [row[4] for row in rows] == pytest.approx([gaps[100], gaps[500], gaps[2000]], rel=1e-3)
    assert [row[3] for row in rows] == [0, 0, 0]  # a lone agent's gradients are never late


def test_common_draws_couple_teams_of_different_size() -> None:
    one, eight = measured(1, common=True).measure()[-1], measured(8, common=True).measure()[-1]
    assert one[4] != eight[4]
    assert eight[4] == pytest.approx(one[4], rel=0.5)
    alone = measured(1, common=False).measure()[-1]
    assert alone[4] == one[4]  # with one agent there is one stream anyway


def test_delays_add_up_to_the_concurrency() -> None:
    """Applied delays are K(N-1), less those of the N - 1 gradients under way."""
    last = measured(8, common=False).measure()[-1]
    assert 2000 * 7 - 7 * 40 <= last[3] <= 2000 * 7


def test_a_measurement_is_read_back_with_every_bit(tmp_path: Path) -> None:
    measurement = measured(2, common=False, gradients=600)
    assert not measurement.finished(tmp_path)
    measurement.perform(tmp_path, 1, lambda fraction: None)
    assert measurement.finished(tmp_path)
    assert [tuple(row) for row in measurement.read(tmp_path).rows] == measurement.measure()
    curves = read_curves([measurement, measurement], tmp_path)
    assert curves.gap.shape == (2, 3)


def test_plain_policy_gradient_has_the_schedules_of_its_own_theory() -> None:
    seeds = measurements(CHOICES, STUDIES["norm"])[Method("pg-plain")]
    own = seeds[0].settings.own()
    assert own.eta is not None
    assert own.eta(99, 0) == pytest.approx(0.01)  # 0.1 / sqrt(k + 1)


def test_points_are_spaced_evenly_in_the_logarithm() -> None:
    assert log_points(100, 10_000, 2) == (100, 316, 1000, 3162, 10_000)
