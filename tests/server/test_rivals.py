"""Rennala, Malenia, FedBuff, FedAsync and Ringmaster: what each uses, keeps and drops, against versions that read like
their papers; and what follows from the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Fold, answer
from twin import Twin

from afedpg import config as configuration
from afedpg import train
from afedpg.config import Config, ScheduleConfig
from afedpg.errors import ConfigError
from afedpg.messages import Exchange, Group, Join, Leave, Report, Restart
from afedpg.parts import build
from afedpg.server.rules import RECIPES, make_rule
from afedpg.server.shipped import AGGREGATORS
from afedpg.server.state import from_tree, to_tree

AGENTS, SIZE = 4, 3
RIVALS = (
    "rennala:batch=3", "rennala:batch=1", "malenia:batch=9", "malenia:batch=4,most=2", "fedbuff:size=3",
    "fedbuff:size=2,law=polynomial", "fedasync", "fedasync:law=hinge,bound=1,slope=0.5", "fedasync:law=constant",
    "ringmaster:threshold=2", "newest", "newest:most=1.5",
)  # fmt: skip
rivals = pytest.mark.parametrize("aggregator", RIVALS)
HAPPENS = ["report"] * 20 + ["join", "join", "leave", "restart"]  # how often each, in proportion
happenings = st.lists(st.tuples(st.sampled_from(HAPPENS), st.integers(0, AGENTS - 1)), min_size=25, max_size=60)


def both(aggregator, schedule="constant"):
    """The server, and its twin, which knows the papers alone."""
    chosen = ScheduleConfig(schedule, alpha=0.3, eta=0.1, literal_constants=True)
    config = Config("quadratic", aggregator=aggregator, agents=AGENTS, dimension=SIZE, schedule=chosen)
    rule = make_rule(config, RECIPES["afedpg"], aggregator=build("aggregator", aggregator, AGGREGATORS))
    return Fold(rule, np.zeros(SIZE), agents=0), Twin(config, np.zeros(SIZE), set(), set())


def tell(server, twin, event):
    server(event)
    twin.take(0, event)


def events(server, happened, seed):
    """What happened, as far as it can: reports come from who has a Task."""
    draws = np.random.default_rng(seed)
    for what, number in happened:
        if what != "report":
            yield {"join": Join(number), "leave": Leave(number), "restart": Restart()}[what]
        elif number in server.state.outstanding:
            yield answer(server.tasks[number], draws.standard_normal(SIZE))


@rivals
@given(happenings, st.integers(0, 2**32))
@settings(max_examples=60)
def test_a_slow_version_of_its_paper_agrees(aggregator, happened, seed):
    server, twin = both(aggregator, "global" if seed % 2 else "constant")
    for number in range(AGENTS):
        tell(server, twin, Join(number))
    for event in events(server, happened, seed):
        tell(server, twin, event)
        assert (server.state.iteration, server.state.gradients) == (twin.k, len(twin.counted))
        assert server.state.unused == twin.dropped
        assert np.max(np.abs(server.theta - twin.theta)) < 1e-12
        assert np.max(np.abs(server.state.theta_lookahead - twin.lookahead[twin.k])) < 1e-6  # it travels as float32


@rivals
@given(happenings, st.integers(0, 2**32))
@settings(max_examples=20)
def test_every_report_is_used_once_dropped_or_kept_and_its_agent_goes_on(aggregator, happened, seed):
    server, reports, used = Fold(both(aggregator)[0].rule, np.zeros(SIZE), agents=AGENTS), 0, []
    for event in events(server, happened, seed):
        tasks = server(event)
        if isinstance(event, Report):
            assert [task.agent_id for task in tasks] == [event.agent_id]
            reports += 1
        used += [arrival.task_id for arrival in server.outcome.arrivals]
    kept = [given.report.task_id for given in server.state.memory.kept]
    assert len(set(used) | set(kept)) == len(used) + len(kept) == reports - server.state.unused
    assert len(kept) <= server.rule.aggregator.vectors(AGENTS)


@rivals
@given(happenings, st.integers(0, 2**32))
@settings(max_examples=10)
def test_a_checkpoint_in_the_middle_of_a_batch_changes_no_bit(aggregator, happened, seed):
    server = Fold(both(aggregator)[0].rule, np.zeros(SIZE), agents=AGENTS)
    other = Fold(server.rule, np.zeros(SIZE), agents=AGENTS)
    for event in events(server, happened, seed):
        server(event)
        other.state = from_tree(to_tree(other.state), other.rule)
        other(event)
        assert server.bits == other.bits


def test_each_is_the_special_case_of_all_that_take_one_at_a_time():
    every = (
        "each", "fedbuff:size=1", "fedasync:law=constant", "fedasync:law=hinge,bound=1000", "ringmaster:threshold=1000",
    )  # fmt: skip
    thetas = [train("quadratic", agents=5, iterations=30, aggregator=text).sha256 for text in every]
    assert len(set(thetas)) == 1


def test_with_one_contribution_of_each_agent_malenia_is_rennala():
    """In step, so that nobody is outdated."""
    thetas = [
        train("quadratic", agents=4, iterations=30, timing="equal", aggregator=f"{name}:batch=4").theta
        for name in ("malenia", "rennala")
    ]
    assert np.max(np.abs(thetas[0] - thetas[1])) < 1e-12


def test_rennala_counts_what_is_outdated():
    server = Fold(both("rennala:batch=2")[0].rule, np.zeros(SIZE), agents=3)
    server.answer(0, [1.0, 0.0, 0.0])
    assert (server.state.iteration, server.outcome.unused) == (0, None)
    server.answer(0, [1.0, 0.0, 0.0])  # the fast agent fills the batch alone
    assert server.state.iteration == 1
    server.answer(1, [0.0, 1.0, 0.0])
    assert server.outcome.unused == (1, "delay 1: only contributions of the present iteration count")
    assert (server.state.unused, server.state.iteration, server.tasks[1].version) == (1, 1, 1)


def test_ringmaster_drops_from_its_threshold_on():
    server = Fold(both("ringmaster:threshold=2")[0].rule, np.zeros(SIZE), agents=3)
    for number, delay in ((0, 0), (1, 1), (2, 2)):
        server.answer(number, [1.0, 0.0, 0.0])
        assert (server.outcome.unused is None) == (delay < 2)
    assert server.outcome.unused == (2, "delay 2: at most 1 is used")
    assert (server.state.gradients, server.state.unused, server.tasks[2].version) == (2, 1, 2)


def test_a_buffer_counts_as_old_as_its_contributions_on_average():
    """alpha of the theorems belongs to the version: (v + 1)^-4/5, here with v between k/2 and k."""
    server = Fold(both("fedbuff:size=2", "global")[0].rule, np.zeros(SIZE), agents=2)
    for _ in range(8):  # four steps of agent 0 alone
        server.answer(0, [1.0, 0.0, 0.0])
    server(Join(1))
    for _ in range(5):
        server.answer(0, [1.0, 0.0, 0.0])
    server.answer(1, [1.0, 0.0, 0.0])  # taken at 4; the other one at 6
    assert [arrival.version for arrival in server.outcome.arrivals] == [6, 4]
    assert server.outcome.arrivals[0].alpha == pytest.approx((5 + 1) ** -0.8)


def test_malenia_weighs_agents_equally_however_often_they_report():
    server = Fold(both("malenia:batch=2")[0].rule, np.zeros(SIZE), agents=2)
    for _ in range(9):
        server.answer(0, [1.0, 0.0, 0.0])
    assert server.state.iteration == 0
    server.answer(1, [0.0, 1.0, 0.0])
    assert server.state.iteration == 1
    assert np.allclose(server.theta, [0.1 / 2**0.5, 0.1 / 2**0.5, 0], atol=1e-12)


def test_malenia_waits_for_the_harmonic_mean():
    """N = 2, M = 4: the harmonic mean of (B, 1) stays below M/N = 2 whatever B is; (2, 2) is enough."""
    server = Fold(both("malenia:batch=4")[0].rule, np.zeros(SIZE), agents=2)
    for agent_id in (1, 0, 0, 0, 0):
        server.answer(agent_id, [1.0, 0.0, 0.0])
    assert server.state.iteration == 0
    server.answer(1, [1.0, 0.0, 0.0])
    assert server.state.iteration == 1


def test_malenia_does_not_wait_for_who_has_left_and_waits_for_who_may_come_back():
    server = Fold(both("malenia:batch=2")[0].rule, np.zeros(SIZE), agents=2)
    server.answer(0, [1.0, 0.0, 0.0])
    server(Restart())
    server(Join(0))
    server.answer(0, [1.0, 0.0, 0.0])
    assert server.state.iteration == 0  # agent 1 may come back
    server(Leave(1))
    assert (server.state.iteration, server.state.gradients) == (1, 2)


def test_a_silent_agent_is_refused_where_everybody_is_waited_for():
    for aggregator in ("malenia", "all"):
        with pytest.raises(ConfigError, match="silent: the server waits for every agent"):
            train("quadratic", agents=3, iterations=2, silent=(1,), aggregator=aggregator)
    assert train("quadratic", agents=3, iterations=4, silent=(1,), aggregator="rennala:batch=2").gradients >= 6


@pytest.mark.parametrize(("text", "line"), [
    ("rennala:batch=0", "aggregator: rennala: batch: 0 is outside"),
    ("ringmaster:threshold=0", "aggregator: ringmaster: threshold: 0; at least 1 is needed"),
    ("fedasync:law=cubic", "aggregator: fedasync: law: unknown 'cubic'; choose from constant, polynomial, hinge"),
    ("fedbuff:batch=3", "aggregator: fedbuff has no parameter 'batch'; it has law, power, slope, bound, size"),
])  # fmt: skip
def test_bad_parameters_get_one_line(text, line):
    with pytest.raises(ConfigError) as caught:
        train("quadratic", aggregator=text)
    assert str(caught.value).startswith(line)


def test_the_names_are_those_of_the_settings():
    assert tuple(AGGREGATORS) == configuration.AGGREGATORS


def test_a_weight_multiplies_an_agents_step_and_not_its_values():
    """A critic's parameters are values: a third of them is another critic, not a smaller share of it."""
    exchange = Exchange((Group("policy", 2), Group("critic", 1, "parameters")))
    config = Config("quadratic", agents=1, schedule=ScheduleConfig("constant", eta=1.0))
    aggregator = build("aggregator", "fedasync:power=1", AGGREGATORS)
    server = Fold(make_rule(config, RECIPES["pg-plain"], aggregator=aggregator, exchange=exchange), np.zeros(3))
    task = server.tasks[0]
    server.state.iteration += 2  # others were faster
    server(answer(task, [3.0, 6.0, 5.0]))
    np.testing.assert_allclose(server.theta, [1.0, 2.0, 5.0], rtol=1e-12)


def test_nor_do_the_weights_of_a_batch():
    exchange = Exchange((Group("policy", 2), Group("critic", 1, "parameters")))
    schedule = ScheduleConfig("constant", eta=1.0, literal_constants=True)
    config = Config("quadratic", agents=2, schedule=schedule)
    aggregator = build("aggregator", "fedbuff:size=2,law=polynomial,power=1", AGGREGATORS)
    rule = make_rule(config, RECIPES["pg-plain"], aggregator=aggregator, exchange=exchange)
    server = Fold(rule, np.zeros(3), agents=2)
    tasks = [server.tasks[number] for number in range(2)]
    server.state.iteration += 2
    for task, value in zip(tasks, (5.0, 7.0), strict=True):
        server(answer(task, [3.0, 6.0, value]))
    np.testing.assert_allclose(server.theta, [1.0, 2.0, 6.0], rtol=1e-12)


def test_newest_forgets_who_left_and_who_has_been_silent_for_too_long():
    config = Config("quadratic", agents=2, dimension=1, schedule=ScheduleConfig("constant", eta=1.0))
    aggregator = build("aggregator", "newest:most=2", AGGREGATORS)
    server = Fold(make_rule(config, RECIPES["pg-plain"], aggregator=aggregator), np.zeros(1), agents=2)

    def step_after(agent, gradient):
        before = server.theta
        server.answer(agent, [gradient])
        return float((server.theta - before)[0])

    assert [step_after(1, 4.0), *(step_after(0, 2.0) for _ in range(6))] == [4.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0]
    assert step_after(1, 4.0) == 3.0
    server(Leave(1))
    assert step_after(0, 2.0) == 2.0
