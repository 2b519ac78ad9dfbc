"""Episodes of the compiled loop are those of `evaluate`: lengths and streams to the bit, returns within 1e-6."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from afedpg import train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.config import from_settings
from afedpg.errors import AfedpgError
from afedpg.messages import Moments
from afedpg.sampling import evaluate as evaluating
from afedpg.sampling.environments import make_environment
from afedpg.sampling.evaluate import Episodes, evaluate
from afedpg.sampling.native.sampler import NativeSampler
from afedpg.seeding import stream

from .rolling import Pair
from .test_native_exactness import EVERY, SHORT


def played(pair: Pair, env: Any, deterministic: bool, statistics: Moments | None = None, episodes: int = 3) -> Any:
    generator = stream(3, "evaluation")
    found = pair.native.play(env, 0, pair.theta, statistics, episodes, deterministic, generator)
    return found, generator.bit_generator.state


def judged(pair: Pair, env: Any, deterministic: bool, statistics: Moments | None = None, episodes: int = 3) -> Any:
    generator = stream(3, "evaluation")
    found = evaluate(pair.policy, pair.theta, statistics, env, episodes, deterministic, generator)
    return found, generator.bit_generator.state


def assert_same(pair: Pair, task: str, kwargs: dict[str, Any], deterministic: bool, **how: Any) -> Episodes:
    (ours, our_stream), (theirs, their_stream) = (
        play(pair, make_environment(task, kwargs), deterministic, **how) for play in (played, judged)
    )
    assert ours.lengths == theirs.lengths
    assert our_stream == their_stream
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=0, atol=1e-6)
    return ours


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("task", EVERY)
def test_episodes_are_those_of_gymnasium(task: str, deterministic: bool) -> None:
    assert_same(Pair(task, SHORT), task, SHORT, deterministic)


def test_observations_are_scaled_and_episodes_end_by_falling_and_by_the_limit() -> None:
    pair = Pair("Hopper-v4", SHORT, activation="tanh", mean="linear")
    scaled = Moments(100.0, np.full(11, 0.1), np.full(11, 30.0))
    plain = assert_same(pair, "Hopper-v4", SHORT, False, episodes=8)
    other = assert_same(pair, "Hopper-v4", SHORT, False, statistics=scaled, episodes=8)
    assert plain.returns != other.returns
    assert {length == 90 for length in assert_same(pair, "Hopper-v4", {"max_episode_steps": 12}, True).lengths} == {
        False
    }
    short = assert_same(pair, "Hopper-v4", {"max_episode_steps": 12}, False, episodes=8)
    assert max(short.lengths) == 12
    assert min(plain.lengths) < 90


@pytest.mark.parametrize("kind", ["sampled", "deterministic"])
def test_episodes_of_cart_pole_are_those_of_gymnasium(kind: str) -> None:
    settings = {"task": "CartPole-v1", "hidden": (8,), "evaluate_episodes": 20, "evaluate_kind": kind}
    ours, theirs = (EnvironmentWorkload(from_settings({**settings, "sampler": s})) for s in ("native", "gymnasium"))
    theta = ours.initial_theta() * 30
    assert ours.evaluate(theta, {}, 0) == theirs.evaluate(theta, {}, 0)
    assert ours.evaluate(theta, {}, 0) != ours.evaluate(theta, {}, 1)


def test_an_environment_that_the_loop_does_not_know_is_left_to_the_other_way() -> None:
    pair = Pair("Hopper-v4", SHORT)
    env: Any = make_environment("Hopper-v4", {})
    assert played(pair, gymnasium.wrappers.RescaleAction(env, -0.5, 0.5), True)[0] is None
    assert played(pair, env.unwrapped, True)[0] is None  # without a time limit


def test_numbers_that_are_not_finite_are_told_with_their_step() -> None:
    pair = Pair("Hopper-v4", SHORT)
    pair.theta[:] = np.nan
    with pytest.raises(AfedpgError, match="at the agent's step 0"):
        played(pair, make_environment("Hopper-v4", SHORT), True)


def test_a_workload_plays_compiled_episodes_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    played_by: list[str] = []
    compiled, plain = NativeSampler.play, evaluating.evaluate

    def note_compiled(*arguments: Any) -> Any:
        played_by.append("native")
        return compiled(*arguments)

    def note_plain(*arguments: Any) -> Any:
        played_by.append("plain")
        return plain(*arguments)

    monkeypatch.setattr(NativeSampler, "play", note_compiled)
    monkeypatch.setattr("afedpg.agent.work.evaluate", note_plain)
    means = []
    for sampler in ("native", "gymnasium"):
        settings = {"task": "Hopper-v4", "hidden": (8,), "sampler": sampler, "evaluate_episodes": 2}
        work = EnvironmentWorkload(from_settings(settings))
        means.append([told.mean for told in work.evaluate(work.initial_theta(), {}, 0)])
    np.testing.assert_allclose(means[0], means[1], rtol=0, atol=1e-6)
    assert played_by == ["native", "native", "plain", "plain"]


def test_a_run_has_the_same_evaluations_with_either_sampler() -> None:
    settings = {"agents": 2, "iterations": 4, "steps": 64, "hidden": (8,), "evaluate_every": 2, "evaluate_episodes": 3}
    ours, theirs = (train("hopper", **settings, sampler=name) for name in ("native", "gymnasium"))
    assert ours.sha256 == theirs.sha256
    for one, other in zip(ours.evaluations, theirs.evaluations, strict=True):
        assert one.mean == pytest.approx(other.mean, abs=1e-6)
