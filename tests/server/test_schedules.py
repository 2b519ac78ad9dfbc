"""alpha and eta against the table's formulas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afedpg.config import Config, ScheduleConfig
from afedpg.server.rules import RECIPES, make_rule
from afedpg.server.schedules import schedules

counts = st.integers(0, 10**6)
versions = st.integers(0, 10**6)


def chosen(name, **more):
    return schedules(Config("quadratic", agents=4, iterations=250, schedule=ScheduleConfig(name, 0.25, 0.5, **more)))


@given(counts, versions)
def test_constant(k, v):
    alpha, eta = chosen("constant")
    assert (alpha(k, v), eta(k, v)) == (0.25, 0.5)


@given(st.integers(0, 2000), versions, st.floats(0, 0.5))
def test_linear_decay_ends_at_the_last_gradient_and_stops_at_its_floor(k, v, floor):
    alpha, eta = chosen("linear", eta_floor=floor)
    assert alpha(k, v) == 0.25
    assert eta(k, v) == pytest.approx(max(floor, 0.5 * (1 - k / 1000)), rel=1e-12)


def test_linear_decay_of_fedpg_ends_at_its_last_round():
    chosen = ScheduleConfig("linear", 0.1, 0.5, 0.1)
    config = Config("quadratic", "fedpg", agents=4, iterations=250, schedule=chosen)
    eta = make_rule(config, RECIPES[config.method]).eta
    assert [eta(k, k) for k in (0, 125, 250)] == [2.0, 1.0, 0.4]


@pytest.mark.parametrize(("name", "alpha_power", "eta_power"), [("global", 4 / 5, 1), ("fosp", 4 / 7, 5 / 7)])
@given(k=counts, delay=counts)
def test_the_theorems_schedules(name, alpha_power, eta_power, k, delay):
    v = max(0, k - delay)
    literal, eta = chosen(name, literal=True)
    clamped, _ = chosen(name)
    assert literal(k, v) == pytest.approx((1 / (v + 1)) ** alpha_power, rel=1e-12)
    assert clamped(k, v) == pytest.approx((1 / (max(v, (k + 1) // 2) + 1)) ** alpha_power, rel=1e-12)
    assert eta(k, v) == pytest.approx(0.5 * (1 / (k + 1)) ** eta_power, rel=1e-12)


@pytest.mark.parametrize("name", ["global", "fosp"])
@given(k=st.integers(1, 10**6))
def test_a_late_first_report_does_not_wipe_the_direction_out(name, k):
    clamped, _ = chosen(name)
    literal, _ = chosen(name, literal=True)
    assert literal(k, 0) == 1.0
    assert clamped(k, 0) < 1.0
    assert clamped(k, k) == literal(k, k)
