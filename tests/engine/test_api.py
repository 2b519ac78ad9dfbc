"""From Python: a callback, and schedules, rules and timing models of one's own, each in a few lines."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import psutil
import pytest
from support import answer

from afedpg import Own, cli, replay, resume, train
from afedpg.config import Config
from afedpg.engine.federation import Federation
from afedpg.errors import AfedpgError, ConfigError
from afedpg.identity import identity
from afedpg.messages import Exchange, Join, Moments, Stats
from afedpg.problems import Quadratic, make_problem
from afedpg.record.database import read_evaluations
from afedpg.runs.parts import check_own, configure
from afedpg.runs.train import default_workers, run
from afedpg.server import rules
from afedpg.server.admission import Limits
from afedpg.server.aggregators import All
from afedpg.server.rules import afedpg, fedpg, pg_plain
from afedpg.server.schedules import Constant
from afedpg.server.state import from_tree, initial_state, to_tree
from afedpg.server.transforms import Chain, Direction, Mix, Scale, Stateless

SMALL = {"agents": 3, "iterations": 20, "schedule": "constant"}


def test_a_callback_sees_every_arrival_with_its_seconds_and_theta():
    seen = []
    result = train(
        "quadratic", **SMALL, eta=0.01, on_arrival=lambda *arrival: seen.append((*arrival[:2], arrival[2].copy()))
    )
    assert [arrival.gradient for arrival, _, _ in seen] == list(range(1, 61))
    assert [seconds for _, seconds, _ in seen] == sorted(seconds for _, seconds, _ in seen)
    assert seen[-1][2].tobytes() == result.theta.tobytes()
    lengths = np.linalg.norm(np.diff([theta for _, _, theta in seen], axis=0), axis=1)
    np.testing.assert_allclose(lengths, 0.01, rtol=1e-12)


def test_a_schedule_of_ones_own():
    named = train("quadratic", agents=3, iterations=20, schedule="global", eta=0.5)
    own = train(
        "quadratic", **SMALL,
        alpha=lambda k, v: (max(v, (k + 1) // 2) + 1) ** -0.8,
        eta=lambda k, v: 0.5 / (k + 1),
    )  # fmt: skip
    np.testing.assert_allclose(own.theta, named.theta, rtol=1e-9)


def test_a_rule_of_ones_own():
    class Sign(Stateless):
        def update(self, direction, buffers, at):
            return Direction(np.sign(direction.vector) * np.sign(direction.factor))

    def sign_descent(alpha, eta):
        return replace(pg_plain(alpha, eta), step=Chain(Mix(alpha), Sign(), Scale(eta)))

    steps = []
    train(
        "quadratic", **SMALL, method=sign_descent, eta=0.25, on_arrival=lambda a, s, theta: steps.append(theta.copy())
    )
    assert set(np.abs(np.diff(steps, axis=0)).ravel()) == {0.25}


def test_a_timing_model_of_ones_own_and_silence_beside_it():
    seen = []
    train(
        "quadratic", **SMALL, timing=lambda agent_id, n: 1.0 + agent_id, silent=(1,),
        on_arrival=lambda arrival, seconds, theta: seen.append((arrival.agent, seconds)),
    )  # fmt: skip
    assert seen[:5] == [(0, 1.0), (0, 2.0), (0, 3.0), (2, 3.0), (0, 4.0)]
    assert {agent for agent, _ in seen} == {0, 2}


def test_a_run_with_own_parts_is_resumed_with_them_alone(tmp_path):
    def slower(k, v):
        return 0.1 / (k + 1)

    own = Own(eta=slower)
    whole = train("quadratic", **SMALL, eta=slower, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"own parts: eta: \S+\.slower; given were: none"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", own).sha256 == replay(tmp_path / "run", own).replayed == whole.sha256


def test_a_preset_decides_what_the_call_does_not_say(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text('method = "fedpg"\ntiming = "equal"\neta = 0.03\nagents = 2\n')
    said = train("quadratic", preset=str(preset), iterations=10)
    assert said.sha256 == train("quadratic", method="fedpg", timing="equal", eta=0.03, agents=2, iterations=10).sha256
    assert said.iteration == 10
    other = train("quadratic", preset=str(preset), iterations=10, method="afedpg")
    assert other.iteration == 20


def test_a_setting_nobody_knows_is_named():
    with pytest.raises(ConfigError, match="learning_rate: no such setting"):
        train("quadratic", learning_rate=0.1)


def test_a_run_ends_early_once_the_return_is_good_enough():
    """The mean of the last five gradients per agent."""
    returns = []
    result = train(
        "quadratic", agents=2, iterations=10_000, noise=0.1, schedule="constant", eta=0.01, stop_at_return=-1.0,
        on_arrival=lambda arrival, seconds, theta: returns.append(arrival.stats.mean_return),
    )  # fmt: skip
    assert result.gradients == len(returns) < 20_000
    means = np.convolve(returns, np.ones(10) / 10, "valid")
    assert means[-1] >= -1.0
    assert means[:-1].max() < -1.0


def test_a_run_ends_early_once_theta_is_good_enough(tmp_path):
    """The mean of the last five evaluations."""
    settings = {"agents": 2, "noise": 0.1, "schedule": "constant", "eta": 0.01, "evaluate_every": 3}
    result = train("quadratic", iterations=10_000, stop_at_evaluation=-1.0, out=tmp_path / "run", workers=1, **settings)
    values = read_evaluations(tmp_path / "run" / "run.db")["mean"]
    means = np.convolve(values, np.ones(5) / 5, "valid")
    assert result.gradients == 6 * len(values) < 20_000
    assert means[-1] >= -1.0
    assert means[:-1].max() < -1.0


def test_a_finished_run_that_is_looked_at_once_more_is_no_nearer_to_its_goal(tmp_path):
    """Four evaluations, one less than the goal asks for; the last of them is made again."""
    settings = {"agents": 1, "evaluate_every": 1, "stop_at_evaluation": -1e9}
    train("lq-bandit", iterations=4, **settings, out=tmp_path / "run")
    assert resume(tmp_path / "run").stopped == ""
    longer = resume(tmp_path / "run", iterations=9)
    assert (longer.gradients, longer.stopped) == (5, "stop_at_evaluation")


def test_a_run_ends_early_once_its_time_is_up():
    seconds = []
    result = train(
        "quadratic", agents=2, iterations=10_000, stop_at_seconds=25.0,
        on_arrival=lambda arrival, at, theta: seconds.append(at),
    )  # fmt: skip
    assert seconds[-2] < 25.0 <= seconds[-1] == result.seconds


def test_theta_cannot_be_judged_when_it_is_evaluated_at_the_end_alone():
    with pytest.raises(ConfigError, match=r"stop_at_evaluation: .* set evaluate_every too"):
        train("quadratic", stop_at_evaluation=-1.0)


@pytest.mark.parametrize("method", ["afedpg", "afedpg-vanilla", "fedpg", "a3c"])
@pytest.mark.parametrize("task", ["quadratic", "lq-bandit", "saturating-bandit", "softmax-mdp"])
def test_every_method_climbs_every_problem(method, task):
    result = train(task, method=method, agents=4, iterations=400, schedule="constant", alpha=0.05, eta=0.02, seed=1)
    start = train(task, method=method, agents=4, iterations=1, eta=1e-12).evaluations[0].mean
    optimum = make_problem(Config(task)).optimum
    assert start < result.evaluations[0].mean < optimum
    assert result.evaluations[0].mean - start > 0.3 * (optimum - start)


MEANT = {
    "afedpg": rules.afedpg, "afedpg-vanilla": rules.afedpg_vanilla, "fedpg": rules.fedpg, "pg": rules.afedpg,
    "pg-plain": rules.pg_plain, "a3c": rules.a3c,
}  # fmt: skip


@pytest.mark.parametrize("name", MEANT)
def test_a_name_stands_for_its_rule(name):
    agents = 1 if name.startswith("pg") else 3
    settings = {
        "agents": agents,
        "iterations": 20,
        "schedule": "constant",
        "alpha": 0.2,
        "eta": 0.05,
        "literal_constants": True,
    }
    bits = {rule: train("quadratic", method=rule, **settings).sha256 for rule in MEANT.values()}
    named = train("quadratic", method=name, **settings)
    assert named.sha256 == bits[MEANT[name]]
    # the rules differ in their bits, so the name matters; alone, a round of one is an asynchronous step
    assert len(set(bits.values())) == (5 if agents > 1 else 4)


def test_without_noise_the_optimum_is_reached():
    result = train("quadratic", agents=4, iterations=2000, noise=0.0, alpha=0.2, eta=0.01, schedule="linear")
    np.testing.assert_allclose(result.theta, np.ones(10), atol=1e-3)


def test_theta_is_evaluated_not_the_lookahead(tmp_path):
    """What is evaluated and delivered is theta, as float32."""
    result = train("quadratic", **SMALL, alpha=0.01, eta=0.05)
    assert result.evaluations[0].mean == Quadratic().value(result.theta.astype(np.float32).astype(np.float64))


def test_an_open_round_is_stored_and_goes_on():
    federation = Federation(*_rounds(), limits=Limits())
    tasks = [federation.apply(Join(agent_id), 0.0).tasks[0] for agent_id in range(2)]
    waits = answer(tasks[0], [1.0, 2.0, 3.0], stats=Stats(4, (0.1,), (3,), {"unstable": 1.0}))
    moments = {"observations": Moments(2.0, np.ones(1), np.zeros(1))}
    federation.apply(waits._replace(moments=moments), 1.0)
    assert federation.outcome.waits == 0
    again = Federation(federation.rule, from_tree(copy.deepcopy(to_tree(federation.server)), federation.rule))
    for each in federation, again:
        each.apply(answer(tasks[1], np.ones(3), moments=moments), 1.0)
    assert again.server.gradients == 2
    assert again.server.theta.tobytes() == federation.server.theta.tobytes()
    assert again.outcome.arrivals == federation.outcome.arrivals
    assert again.server.outstanding == federation.server.outstanding


def _rounds():
    rule = fedpg(Constant(0.1), Constant(0.1))
    rule = replace(rule, exchange=Exchange(statistics={"observations": 1}))
    return rule, initial_state(rule, Quadratic(3).initial_theta())


def test_an_agents_failure_stores_the_run_and_says_how_to_go_on(tmp_path, monkeypatch):
    """The work of one agent fails once; resumed, the run is what it would have been."""
    whole, sample, calls = train("quadratic", **SMALL), Quadratic.sample, []

    def fails_once(self, theta, draw):
        calls.append(1)
        if len(calls) == 30:
            raise AfedpgError("agent: out of luck")
        return sample(self, theta, draw)

    monkeypatch.setattr(Quadratic, "sample", fails_once)
    with pytest.raises(
        AfedpgError, match=rf"out of luck \(after gradient 29 of 60\); go on with: afedpg resume {tmp_path}"
    ):
        train("quadratic", **SMALL, out=tmp_path / "run")
    assert resume(tmp_path / "run").sha256 == whole.sha256


def test_only_work_that_is_worth_it_gets_worker_processes(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 6)

    def workers(task, iterations, agents=4):
        return default_workers(configure(task, None, {"agents": agents, "iterations": iterations, "steps": 1000}))

    assert workers("CartPole-v1", 12) == 1  # 48,000 steps
    assert workers("CartPole-v1", 13) == 4  # never more than agents
    assert workers("CartPole-v1", 13, agents=20) == 6
    assert workers("quadratic", 1_000_000) == 1
    config = configure("CartPole-v1", None, {"agents": 4, "iterations": 13, "steps": 1000})
    assert default_workers(config, Own(make_env=lambda agent_id: None)) == 1  # which no other process could have


def test_the_memory_that_is_announced_is_that_of_the_whole_process():
    announced = []
    run(configure("quadratic", None, {"agents": 2, "iterations": 2}), announce=announced.append)
    held = psutil.Process().memory_info().rss  # with what was loaded since
    assert held / 2 < announced[0].memory < 1.2 * held


def test_python_and_the_command_line_start_as_many_workers(tmp_path, monkeypatch):
    asked = []

    def crew(build, workload, workers, interruption):
        asked.append(workers)
        raise AfedpgError("enough")

    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr("afedpg.runs.virtual._crew", crew)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AfedpgError, match="enough"):
        train("CartPole-v1", agents=4, iterations=13, steps=1000)
    assert cli.main(["train", "CartPole-v1", "--agents", "4", "--iterations", "13", "--steps", "1000"]) == 1
    assert asked == [3, 3]


def own_fedpg(alpha, eta):
    """A copy of fedpg, under another name."""
    return replace(afedpg(alpha, eta), aggregator=All())


@pytest.mark.parametrize("schedule", ["constant", "linear", "global"])
@pytest.mark.parametrize("literal", [False, True])
def test_a_copy_of_fedpg_is_fedpg_bit_for_bit(schedule, literal):
    settings = {"agents": 8, "iterations": 20, "schedule": schedule, "literal_constants": literal}
    assert (
        train("quadratic", method=own_fedpg, **settings).sha256 == train("quadratic", method="fedpg", **settings).sha256
    )


def test_a_rule_that_waits_for_everybody_takes_no_silent_agents():
    with pytest.raises(ConfigError, match="silent: the server waits for every agent"):
        train("quadratic", method=own_fedpg, agents=3, silent=(1,))


def decay(iteration, version, eta0=0.1, power=1.0):
    return eta0 * (iteration + 1) ** -power


def decays(eta0, power=1.0):
    return lambda iteration, version: decay(iteration, version, eta0, power)


@dataclass
class Decay:
    eta0: float

    def __call__(self, iteration, version):
        return decay(iteration, version, self.eta0)


class Bound:
    def __init__(self, eta0):
        self.eta0 = eta0

    def eta(self, iteration, version):
        return decay(iteration, version, self.eta0)


TWINS = {  # the same names, other numbers
    "partials": (partial(decay, eta0=0.1), partial(decay, eta0=0.2)),
    "partials of partials": (
        partial(partial(decay, eta0=0.1), power=1.0),
        partial(partial(decay, eta0=0.1), power=0.5),
    ),
    "closures": (decays(0.1), decays(0.2)),
    "a closure's second variable": (decays(0.1), decays(0.1, 0.5)),
    "lambdas": (lambda k, v: 0.1 / (k + 1), lambda k, v: 0.2 / (k + 1)),
    "defaults": (lambda k, v, eta0=0.1: eta0, lambda k, v, eta0=0.2: eta0),
    "objects": (Decay(0.1), Decay(0.2)),
    "methods": (Bound(0.1).eta, Bound(0.2).eta),
    "closures over arrays": (partial(decay, eta0=np.full(9, 0.1)), partial(decay, eta0=np.full(9, 0.2))),
    "closures over functions": (partial(decay, eta0=decays(0.1)), partial(decay, eta0=decays(0.2))),
}


@pytest.mark.parametrize(("one", "other"), TWINS.values(), ids=TWINS)
def test_functions_with_other_numbers_are_not_the_same(one, other):
    assert Own(eta=one).names() != Own(eta=other).names()
    assert identity(one).certain
    assert identity(other).certain


@pytest.mark.parametrize("make", [lambda: partial(decay, eta0=0.1), lambda: decays(0.1), lambda: Decay(0.1)])
def test_a_function_made_again_with_the_same_numbers_is_the_same(make):
    assert Own(eta=make()).names() == Own(eta=make()).names()


def test_a_run_goes_on_with_its_own_numbers_alone(tmp_path):
    train("quadratic", **SMALL, eta=partial(decay, eta0=0.1), out=tmp_path / "run")
    assert replay(tmp_path / "run", Own(eta=partial(decay, eta0=0.1))).agrees
    with pytest.raises(ConfigError, match=r"own parts: eta: decay\(eta0=0.1\); given were: eta: decay\(eta0=0.2\)"):
        replay(tmp_path / "run", Own(eta=partial(decay, eta0=0.2)))


def test_values_that_cannot_be_told_are_warned_of(caplog):
    hidden = object()
    own = Own(eta=lambda k, v: 0.1 if hidden else 0.2)
    assert not identity(own.eta).certain
    check_own(Config(own=own.names()), own)
    assert "own: eta holds values that have no text: make sure" in caplog.text


def test_a_run_of_an_earlier_version_has_the_bare_name():
    check_own(Config(own=("eta: decay",)), Own(eta=decay))
    check_own(Config(own=("eta: <lambda>",)), Own(eta=decays(0.1)))
    with pytest.raises(ConfigError, match="own parts: eta: decay; given were: none"):
        check_own(Config(own=("eta: decay",)), Own())
