"""Laws of virtual time and of delay."""

from __future__ import annotations

import math
import os
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulation import simulate

from afedpg import resume, train
from afedpg.config import Config, TimingConfig
from afedpg.engine.timing import MODELS, Fixed, Pareto, Silent, Timing, make_timing, with_clock
from afedpg.errors import AfedpgError, BrokenPart, ConfigError

SPREADS = ("straggler", "leader", "linear")
seconds = st.floats(0.001, 1000)


def shipped(name, agents, seed=0, **settings):
    return MODELS[name](Config("quadratic", agents=agents, seed=seed, timing=TimingConfig(name, **settings)))


@st.composite
def timings(draw, agents):
    """Any timing model there is, and some that nobody would think of."""
    seed, sigma, shape = draw(st.integers(0, 99)), draw(st.floats(0, 3)), draw(st.floats(1.01, 5))
    rows = draw(st.lists(seconds, min_size=agents, max_size=agents))
    models = {
        "list": Fixed(tuple(rows)),
        "lognormal": shipped("lognormal", agents, seed, sigma=sigma),
        "pareto": Pareto(seed, 1.0, shape),
        "all at once": lambda agent_id, n: 1.0,
        "own": lambda agent_id, n: 0.1 + abs(math.sin(agent_id * 12.9 + n * 78.2 + seed)),
        "silent": Silent(Fixed(tuple(rows)), frozenset(range(1, draw(st.integers(1, agents))))),
        **{name: shipped(name, agents, spread=draw(st.floats(1, 100))) for name in SPREADS},
    }
    return draw(st.sampled_from(list(models.values())))


@given(st.data(), st.integers(1, 12), st.integers(1, 60))
def test_delays_sum_to_the_concurrency(data, agents, gradients):
    run = simulate(data.draw(timings(agents)), agents, gradients)
    assert sum(run.applied_delays) + sum(run.in_flight_delays) == gradients * (agents - 1)


@given(st.data(), st.integers(1, 12), st.integers(1, 30))
def test_time_never_runs_backwards_and_every_agent_waits_its_own_seconds(data, agents, gradients):
    timing = data.draw(timings(agents))
    run = simulate(timing, agents, gradients)
    assert run.seconds == sorted(run.seconds)
    at, counts = [0.0] * agents, [0] * agents
    for arrival, now in zip(run.arrivals, run.seconds, strict=True):
        agent = arrival.agent
        assert now - at[agent] == pytest.approx(timing(agent, counts[agent]), abs=2e-9 + 1e-15 * now)
        at[agent], counts[agent] = now, counts[agent] + 1


@given(st.data(), st.integers(1, 8), st.integers(1, 10))
def test_synchronous_rounds_have_no_delay_and_last_as_long_as_their_slowest(data, agents, rounds):
    timing = data.draw(timings(agents).filter(lambda model: not isinstance(model, Silent)))
    run = simulate(timing, agents, rounds * agents, "fedpg")
    assert set(run.applied_delays) == {0}
    assert [arrival.agent for arrival in run.arrivals] == list(range(agents)) * rounds
    slowest = [max(timing(agent, n) for agent in range(agents)) for n in range(rounds)]
    assert run.engine.seconds == pytest.approx(sum(slowest), rel=1e-8)


def check_time_for_k_gradients(name, agents, spread, per_agent, rounds):
    """afedpg: K / sum(1/t_i), within N/K. fedpg: K t_max / N, after any number of whole rounds."""
    model, gradients = shipped(name, agents, spread=spread), per_agent * agents
    times = np.array(model.compute_seconds)
    assert (times.min(), times.max()) == pytest.approx((1.0, spread) if agents > 1 else (times[0], times[0]))
    afedpg = simulate(model, agents, gradients).engine.seconds
    assert afedpg == pytest.approx(gradients / np.sum(1 / times), rel=agents / gradients)
    fedpg = simulate(model, agents, rounds * agents, "fedpg").engine.seconds
    assert fedpg == pytest.approx(rounds * times.max(), rel=1e-6)


@settings(max_examples=25)
@given(st.sampled_from(SPREADS), st.integers(1, 40), st.floats(1, 100), st.integers(100, 130))
def test_time_for_k_gradients(name, agents, spread, per_agent):
    check_time_for_k_gradients(name, agents, spread, per_agent, rounds=per_agent)


WIDE = list(product(SPREADS, [1, 2, 7, 64, 256, 1024], [1.0, 4.0, 100.0]))
SWEEP = bool(os.environ.get("AFEDPG_SWEEP"))
SAMPLE = [("straggler", 256, 100.0), ("leader", 1024, 4.0)]


@pytest.mark.parametrize(("name", "agents", "spread"), WIDE if SWEEP else SAMPLE)
def test_time_for_k_gradients_of_many_agents(name, agents, spread):
    """AFEDPG_SWEEP=1 walks through all of it, which takes minutes."""
    check_time_for_k_gradients(name, agents, spread, 100, rounds=100 if SWEEP else 10)


@given(st.integers(2, 64), st.floats(1, 100))
def test_the_speedup_over_rounds_is_linear_in_the_spread(agents, spread):
    """One straggler: (1 + (N-1) r)/N. One leader: (r + N-1)/N."""
    for name, expected in [
        ("straggler", (1 + (agents - 1) * spread) / agents),
        ("leader", (spread + agents - 1) / agents),
    ]:
        times = np.array(shipped(name, agents, spread=spread).compute_seconds)
        assert (times.max() / agents) * np.sum(1 / times) == pytest.approx(expected)


@given(st.integers(2, 10), st.data())
def test_silent_agents_never_stop_afedpg(agents, data):
    silent = frozenset(data.draw(st.sets(st.integers(0, agents - 1), max_size=agents - 1)))
    run = simulate(Silent(shipped("linear", agents, spread=4.0), silent), agents, 50)
    assert {arrival.agent for arrival in run.arrivals}.isdisjoint(silent)
    assert len(run.arrivals) == 50


def test_ties_break_on_the_agents_number():
    run = simulate(lambda agent_id, n: 1.0, 5, 15)
    assert [arrival.agent for arrival in run.arrivals] == [0, 1, 2, 3, 4] * 3
    # agents 0 and 1 finish together at 2 s, though agent 1 was sent out earlier
    run = simulate(Fixed((1.0, 2.0)), 2, 3)
    assert [(a.agent, s) for a, s in zip(run.arrivals, run.seconds, strict=True)] == [(0, 1.0), (0, 2.0), (1, 2.0)]


def test_agents_drop_out_and_join_later():
    timing = Timing(with_clock(lambda agent_id, n: 1.0), joins={2: 2.5}, leaves={0: 3.0})
    run = simulate(timing, 3, 10)
    by_agent = {
        agent: [s for a, s in zip(run.arrivals, run.seconds, strict=True) if a.agent == agent] for agent in range(3)
    }
    assert by_agent[0] == [1.0, 2.0]  # at 3 s it has left; leaving comes first
    assert by_agent[1] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert by_agent[2] == [3.5, 4.5, 5.5]
    joined = next(a for a in run.arrivals if a.agent == 2)
    assert (joined.version, joined.iteration, joined.delay) == (4, 5, 1)  # it was given the newest theta~, of 2.5 s


def test_a_round_does_not_wait_for_who_has_left():
    timing = Timing(Fixed((1.0, 1.0, 10.0)), leaves={2: 4.0})
    run = simulate(timing, 3, 6, "fedpg")
    assert run.seconds == [4.0, 4.0, 5.0, 5.0, 6.0, 6.0]
    assert {arrival.agent for arrival in run.arrivals} == {0, 1}


def test_a_round_waits_for_who_has_joined():
    timing = Timing(Fixed((1.0, 1.0)), joins={1: 0.5})
    assert simulate(timing, 2, 4, "fedpg").seconds == [1.5, 1.5, 2.5, 2.5]


def test_when_nobody_will_ever_answer_the_run_says_so():
    with pytest.raises(AfedpgError, match="no agent is left"):
        simulate(Timing(with_clock(lambda agent_id, n: 1.0), leaves={0: 2.5}), 1, 5)
    with pytest.raises(AfedpgError, match="no agent is left"):
        simulate(lambda agent_id, n: math.inf if agent_id else 1.0, 2, 2, "fedpg")


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_a_timing_model_that_makes_no_sense_is_named(wrong):
    with pytest.raises(AfedpgError, match=f"timing model gave agent 1 {wrong} seconds"):
        simulate(lambda agent_id, n: wrong if agent_id else 1.0, 2, 5)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("None", "gave a NoneType for gradient 1 of agent 1; return its seconds, a number"),
        ("'1'", "gave a str for"),
        ("np.ones(1)", r"gave an array \[1\] for"),
        ("{}['who']", r"raised KeyError: 'who' \(.*mine\.py, line 3\)"),
    ],
)
def test_a_timing_model_that_is_broken_is_one_line_and_its_run_goes_on(answer, said, tmp_path):
    code = "import numpy as np\ndef mine(agent, n):\n    return ANSWER if agent and n == 1 else np.array(1.0)\n"
    (tmp_path / "mine.py").write_text(code.replace("ANSWER", answer))
    given = {"agents": 2, "iterations": 9, "timing": f"{tmp_path / 'mine.py'}:mine"}
    with pytest.raises(BrokenPart, match=f"^timing: mine {said}.*; correct its code, then go on with: ") as refusal:
        train("quadratic", **given, out=tmp_path / "run")
    assert "\n" not in str(refusal.value)
    (tmp_path / "mine.py").write_text(code.replace("ANSWER", "np.float32(1.0)"))
    assert resume(tmp_path / "run").sha256 == train("quadratic", **given).sha256


def test_time_ends_after_292_years():
    with pytest.raises(AfedpgError, match="agent 0 is busy beyond 292 virtual years"):
        simulate(lambda agent_id, n: 1e10, 1, 5)


def test_a_trace_is_played_back_in_a_circle(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("agent,seconds\n0,1.5\n1,1\n0,0.25\n")
    timing = make_timing(Config("quadratic", agents=2, timing=TimingConfig("trace", trace=str(trace))))
    assert [timing.seconds(0, n) for n in range(4)] == [1.5, 0.25, 1.5, 0.25]
    run = simulate(timing, 2, 5)
    assert [(a.agent, s) for a, s in zip(run.arrivals, run.seconds, strict=True)] == [
        (1, 1.0), (0, 1.5), (0, 1.75), (1, 2.0), (1, 3.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agent,seconds\n0,1\n", "has no rows of agent 1"),
        ("agent,seconds\n0,1\n1,x\n", "line 3: expected columns"),
        ("who,when\n0,1\n", "line 2: expected columns"),
        ("agent,seconds\n0,0\n", "line 2: 0.0 seconds"),
        ("agent,seconds\n0,inf\n", "line 2: inf seconds"),
    ],
)
def test_a_trace_that_is_none_is_named_with_its_line(tmp_path, text, problem):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(ConfigError, match=f"^trace: .*{problem}"):
        make_timing(Config("quadratic", agents=2, timing=TimingConfig("trace", trace=str(trace))))


@pytest.mark.parametrize("name", ["linear", "straggler", "leader", "equal", "lognormal", "pareto"])
def test_named_models_need_nothing_but_the_seed(name):
    config = Config("quadratic", agents=5, seed=3, timing=TimingConfig(name, fastest=2.0, spread=3.0))
    first, again = make_timing(config).seconds, make_timing(config).seconds
    table = [[first(agent, n) for n in range(4)] for agent in range(5)]
    assert table == [[again(agent, n) for n in range(4)] for agent in range(5)]
    assert np.min(table) > 0
    times = np.array(table)[:, 0]
    shapes = {
        "linear": [2, 3, 4, 5, 6], "straggler": [2, 2, 2, 2, 6], "leader": [2, 6, 6, 6, 6], "equal": [2] * 5,
    }  # fmt: skip
    if name in shapes:
        np.testing.assert_allclose(times, shapes[name])
    else:
        assert len(set(times)) == 5
        other = make_timing(Config("quadratic", agents=5, seed=4, timing=TimingConfig(name))).seconds
        assert other(0, 0) != first(0, 0)


def test_pareto_and_lognormal_have_the_distribution_they_are_named_after():
    draws = np.array([Pareto(0, 2.0, 3.0)(agent, n) for agent in range(50) for n in range(50)])
    assert draws.min() >= 2.0
    assert len(set(draws)) == 2500  # each gradient has seconds of its own
    assert np.mean(draws > 4.0) == pytest.approx(0.125, abs=0.03)  # (2/4)^3
    logs = np.log(np.array(shipped("lognormal", 20_000, fastest=3.0, sigma=0.5).compute_seconds))
    assert (logs.mean(), logs.std()) == pytest.approx((math.log(3.0), 0.5), abs=0.02)


def test_ten_thousand_agents_of_all_speeds():
    arrivals = []
    result = train(
        "quadratic", agents=10_000, iterations=2, timing="lognormal", sigma=1.0, dimension=2,
        on_arrival=lambda arrival, seconds, theta: arrivals.append((arrival.agent, seconds)),
    )  # fmt: skip
    assert result.gradients == len(arrivals) == 20_000
    counts = np.bincount([agent for agent, _ in arrivals], minlength=10_000)
    times = np.array(shipped("lognormal", 10_000, sigma=1.0).compute_seconds)
    assert np.all(np.abs(counts - arrivals[-1][1] / times) <= 1)


@pytest.mark.parametrize(
    ("law", "factors"), [("equal", (1, 1, 1)), ("sqrt", (1, 2**0.5, 3**0.5)), ("linear", (1, 2, 3))]
)
def test_messages_take_the_seconds_of_their_law(law, factors):
    """h_i + kappa_i: 10 parameters of 4 bytes up and down, 80 bytes at 160 a second, and twice the latency."""
    arrived = {agent: [] for agent in range(3)}

    def note(arrival, seconds, theta):
        arrived[arrival.agent].append(seconds)

    settings = {"agents": 3, "iterations": 40, "timing": "list", "speeds": (1.0, 2.0, 4.0)}
    train("quadratic", **settings, latency=0.25, bandwidth=160.0, transfer=law, on_arrival=note)
    for agent, compute in enumerate((1.0, 2.0, 4.0)):
        assert np.diff([0.0, *arrived[agent]]) == pytest.approx(compute + factors[agent] * (0.5 + 80 / 160), abs=1e-8)


def test_messages_take_their_seconds_on_top_of_recorded_ones(tmp_path):
    (tmp_path / "trace.csv").write_text("agent,seconds\n0,1\n1,5\n0,2\n")
    arrived = {0: [], 1: []}
    train(
        "quadratic", agents=2, iterations=8, timing="trace", trace=str(tmp_path / "trace.csv"), latency=0.25,
        transfer="linear", on_arrival=lambda arrival, seconds, theta: arrived[arrival.agent].append(seconds),
    )  # fmt: skip
    assert np.diff([0.0, *arrived[0]])[:4] == pytest.approx([1.5, 2.5, 1.5, 2.5], abs=1e-8)
    assert np.diff([0.0, *arrived[1]]) == pytest.approx(5 + 2 * 0.5, abs=1e-8)


def test_segments_move_a_message_each():
    """A quarter of T takes a quarter of the computing, and a whole message."""
    at = []
    settings = {"method": "a3c", "agents": 1, "iterations": 2, "steps": 64, "segment": 16, "hidden": (4,)}
    train(
        "CartPole-v1", **settings, timing="equal", latency=0.5, evaluate_episodes=1, evaluate_kind="sampled",
        on_arrival=lambda arrival, seconds, theta: at.append(seconds),
    )  # fmt: skip
    assert np.diff([0.0, *at]) == pytest.approx(0.25 + 1.0, abs=1e-8)


def test_the_square_root_of_the_place():
    model = make_timing(Config("quadratic", agents=10, timing=TimingConfig("sqrt", fastest=2.0)))
    assert [model.seconds(agent, 0) for agent in range(10)] == pytest.approx(2 * np.sqrt(np.arange(1, 11)))
    assert model.transfer is None


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"transfer": "sqrt"}, "transfer: only used with --latency or --bandwidth"),
        ({"latency": -1.0}, "latency: -1.0 is negative"),
        ({"bandwidth": 1e-300}, "bandwidth: 1e-300; at least 0.001 bytes per second, or 0 for any number"),
        ({"latency": 1e30}, "latency: 1e+30 seconds; virtual time ends after 292 years"),
    ],
)
def test_what_messages_cannot_take_is_said(settings, line):
    with pytest.raises(ConfigError) as caught:
        train("quadratic", **settings)
    assert str(caught.value) == line
