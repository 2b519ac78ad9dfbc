"""Agents that differ: where a method ends says how it weighs them. A quadratic bowl per agent gives closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from afedpg import train
from afedpg.cli import main
from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.problems import Quadratic, make_problem, make_sites
from afedpg.server.lookahead import SendTheta
from afedpg.server.rules import ServerRule
from afedpg.server.transforms import Chain, Mix, Scale

OPTIMA, SECONDS = np.array([1.0, 3.0]), np.array([1.0, 10.0])
PLAIN = float(OPTIMA.mean())
BY_RATE = float(np.sum(OPTIMA / SECONDS) / np.sum(1 / SECONDS))  # fast agents arrive more often
TOLERANCE = 0.02 * (PLAIN - BY_RATE)
SITES = {"agents": 2, "spread": 10.0, "optima": tuple(OPTIMA), "dimension": 3, "noise": 0.1}


def mixed(alpha, eta):
    """afedpg's average without its normalization."""
    return ServerRule(Chain(Mix(alpha), Scale(eta)), SendTheta(), alpha, eta)


@pytest.mark.parametrize(("settings", "ends"), [
    ({"method": "afedpg"}, BY_RATE),
    ({"method": "fedpg"}, PLAIN),
    ({"method": "afedpg", "aggregator": "malenia:batch=2"}, PLAIN),
])  # fmt: skip
def test_with_steps_that_fall_to_zero_a_method_ends_at_its_own_mean(settings, ends):
    result = train("quadratic", schedule="global", eta=2.0, iterations=6000, seed=1, **SITES, **settings)
    assert np.max(np.abs(result.theta - ends)) < TOLERANCE


FIVE = {"agents": 5, "timing": "list", "speeds": (1.0, 1.0, 1.0, 10.0, 10.0), "dimension": 3, "noise": 0.1}


@pytest.mark.parametrize(("aggregator", "ends"), [("each", 37 / 32), ("newest", 2.0), ("malenia:batch=5", 2.0)])
def test_newest_cures_the_bias_towards_fast_agents(aggregator, ends):
    """Optima 0 to 4, of which the last two are the slow agents'."""
    settings = {"schedule": "global", "eta": 1.0, "iterations": 4000, "seed": 1, "optima": (0.0, 1.0, 2.0, 3.0, 4.0)}
    theta = train("quadratic", aggregator=aggregator, **FIVE, **settings).theta
    assert np.max(np.abs(theta - ends)) < 0.02 * (2 - 37 / 32)


@pytest.mark.parametrize(("aggregator", "eta", "ends"), [
    ("each", 0.002, BY_RATE), ("all", 0.01, PLAIN), ("malenia:batch=2", 0.02, PLAIN),
    ("newest", 0.002, PLAIN),
])  # fmt: skip
def test_with_constant_steps_and_no_normalization_as_well(aggregator, eta, ends):
    """The mean of theta over the second half of the run: single steps never stop."""
    thetas = []
    train(
        "quadratic", method=mixed, aggregator=aggregator, schedule="constant", alpha=0.1, eta=eta, iterations=4000,
        literal_constants=True, seed=1, on_arrival=lambda arrival, seconds, theta: thetas.append(theta.copy()), **SITES,
    )  # fmt: skip
    assert np.max(np.abs(np.mean(thetas[len(thetas) // 2 :], axis=0) - ends)) < TOLERANCE


def test_the_objective_is_the_mean_over_the_agents():
    config = Config("quadratic", dimension=4, optima=(0.0, 1.0, 5.0))
    whole, sites = make_problem(config), make_sites(config)
    for theta in np.random.default_rng(0).normal(0, 3, (5, 4)):
        assert whole.value(theta) == pytest.approx(np.mean([site.value(theta) for site in sites]), rel=1e-12)
        np.testing.assert_allclose(whole.gradient(theta), np.mean([site.gradient(theta) for site in sites], axis=0))
    assert whole.value(np.full(4, 2.0)) == pytest.approx(whole.optimum, rel=1e-12)


def test_agents_take_the_optima_in_turn_and_without_any_nothing_changes():
    assert make_sites(Config("quadratic")) == ()
    assert make_problem(Config("quadratic")) == Quadratic(10, 1.0)
    settings = {"agents": 4, "iterations": 20, "noise": 0.0}
    twice = [train("quadratic", optima=optima, **settings).sha256 for optima in [(1.0, 2.0), (1.0, 2.0, 1.0, 2.0)]]
    assert twice[0] == twice[1] != train("quadratic", **settings).sha256


def test_optima_are_of_the_quadratic_alone():
    with pytest.raises(ConfigError, match="optima: only used with quadratic"):
        train("lq-bandit", optima=(1.0, 2.0))


def test_every_agents_bowl_is_evaluated_and_their_mean_is_the_objective():
    result = train("quadratic", agents=4, iterations=20, optima=(0.0, 3.0))
    assert [e.environment for e in result.evaluations] == ["agent 0", "agent 1"]
    whole = make_problem(Config("quadratic", optima=(0.0, 3.0)))
    mean = np.mean([e.mean for e in result.evaluations])
    assert mean == pytest.approx(whole.value(result.theta.astype(np.float32).astype(np.float64)), rel=1e-12)


def test_whose_mean_is_optimized_is_said_where_agents_differ(capsys, tmp_path):
    said = {
        "each": "a mean weighted by arrivals",
        "newest": "the mean over agents, however often each arrives",
    }
    for place, (aggregator, words) in enumerate(said.items()):
        line = ["train", "quadratic", "--iterations", "2", "--optima", "1,3", "--aggregator", aggregator]
        assert main([*line, "--out", str(tmp_path / str(place))]) == 0
        assert f"agents differ; optimizes {words}\n" in capsys.readouterr().err
    assert main(["train", "quadratic", "--iterations", "2", "--out", str(tmp_path / "same")]) == 0
    assert "optimizes" not in capsys.readouterr().err
