"""A rule of one's own that answers what no step can be made of: one line that says whose fault it is."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exercises import PARTS

from afedpg import train
from afedpg.errors import BrokenPart, ConfigError, FailedPart
from afedpg.server.rules import afedpg
from afedpg.server.transforms import At, Chain, Direction, Normalize, Stateless

BASE = "does not inherit from afedpg.server.aggregators.Aggregator"


@dataclass(frozen=True)
class Odd(Stateless):
    answer: Any

    def update(self, direction, buffers, at):
        return self.answer(direction, at) if at.iteration == 3 else direction


@dataclass(frozen=True)
class Rule:
    answer: Any

    def __call__(self, alpha, eta):
        return replace(afedpg(alpha, eta), step=Odd(self.answer))


def scaled_in_place(direction: Direction, at: At) -> Direction:
    direction.vector[:] *= 2
    return direction


def moved_by_itself(direction: Direction, at: At) -> Direction:
    at.theta[:] += direction.vector  # type: ignore[index]
    return direction


def without_a_word(direction: Direction, at: At) -> Direction:
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda direction, at: None, "Odd.update gave a NoneType, not a Direction"),
        (lambda direction, at: Direction(direction.vector[:2]), "Odd.update gave a direction of 2 numbers, not of 4"),
        (lambda direction, at: Direction([1.0] * 4), "Odd.update gave a direction of list, not of float64 or float32"),
        (
            lambda direction, at: Direction(direction.vector * np.nan),
            "Odd.update gave a direction that is not finite at iteration 3",
        ),
        (
            lambda direction, at: Direction(direction.vector * np.nan, norm=1.0),
            "Odd.update gave a direction that is not finite at iteration 3",
        ),
        (
            lambda direction, at: Direction(direction.vector, np.inf),
            "Odd.update gave a direction that is not finite at iteration 3",
        ),
        (lambda direction, at: at.scalars["fit"], r"raised KeyError: 'fit' \(.*test_broken_rules.py, line \d+\)"),
        (lambda direction, at: np.linalg.inv(np.zeros((2, 2))), r"raised LinAlgError: .*test_broken_rules.py, line"),
        (lambda direction, at: json.loads("?"), r"raised JSONDecodeError: .*test_broken_rules.py, line \d+\)"),
        (without_a_word, r"raised AssertionError \(.*test_broken_rules.py, line \d+\)"),
        (scaled_in_place, "writes to an array that it may only read"),
        (moved_by_itself, "writes to an array that it may only read"),
    ],
)
def test_a_step_that_is_none(answer: Any, said: str) -> None:
    with pytest.raises(BrokenPart, match=f"^method: Rule.*{said}"):
        train("lq-bandit", agents=2, iterations=5, method=Rule(answer))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda direction, at: direction.vector, "Odd.update gave a ndarray, not a Direction"),
        (lambda direction, at: Direction(direction.vector[:2]), "Odd.update gave a direction of 2 numbers, not of 4"),
        (lambda direction, at: Direction(direction.vector, "1"), "Odd.update gave a direction that is not finite"),
        (scaled_in_place, "writes to an array that it may only read"),
    ],
)
@pytest.mark.parametrize("chain", [lambda part: Chain(Normalize(), part, Normalize()), lambda part: Chain(Chain(part))])
def test_a_transform_in_a_chain_is_told_of_by_its_name(answer: Any, said: str, chain: Any) -> None:
    def rule(alpha, eta):
        return replace(afedpg(alpha, eta), step=chain(Odd(answer)))

    with pytest.raises(BrokenPart, match=f"^method: rule.*{said}"):
        train("lq-bandit", agents=2, iterations=5, method=rule)


class Halves:
    def update(self, direction, buffers, at):
        return direction


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mixing": 0.3}, r"mixing is a float, not a function of \(at\)"),
        ({"eta": 0.3}, r"eta is a float, not a function of \(iteration, version\)"),
        ({"alpha": 0.0}, r"alpha is a float, not a function of \(iteration, version\)"),
        ({"broadcast": lambda at: 0.0}, r"broadcast.stretch is a NoneType, not a function of \(at\)"),
        ({"scalars": ("fit")}, r"scalars is a str, not a tuple of str; a tuple of one is written \('fit',\)"),
        ({"step": Halves()}, "its step, Halves, does not define buffers"),
    ],
)
def test_a_field_of_a_rule_that_is_none(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    """Told before the run begins, not at its first step."""
    with pytest.raises(ConfigError, match=f"^method: <lambda>: {said}"):
        train(
            "lq-bandit", method=lambda alpha, eta: replace(afedpg(alpha, eta), **changed), agents=2,
            out=tmp_path / "run",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_python_shows_the_whole_traceback_of_code_that_failed() -> None:
    with pytest.raises(BrokenPart, match="raised ZeroDivisionError") as caught:
        train("lq-bandit", agents=2, iterations=5, method=Rule(lambda direction, at: 1 / 0))
    text = "".join(traceback.format_exception(caught.value))
    assert "in <lambda>" in text
    assert "\nZeroDivisionError: division by zero\n" in text


@dataclass(frozen=True)
class Mixes:
    weight: Any

    def __call__(self, alpha, eta):
        return replace(afedpg(alpha, eta), mixing=lambda at: self.weight)


@pytest.mark.parametrize("weight", [1e30, 1.5, -0.1, np.nan, None])
def test_a_weight_of_an_agents_values_that_is_none(weight: Any) -> None:
    with pytest.raises(BrokenPart, match=r"^method: Mixes: mixing gave .* at iteration 0, not a number from 0 to 1"):
        train(
            "CartPole-v1",
            method=Mixes(weight),
            estimator=f"{PARTS}/shared_value.py:SharedValue",
            agents=1,
            iterations=2,
            steps=16,
        )


@dataclass(frozen=True)
class Ahead:
    answer: Any

    def __call__(self, alpha, eta):
        return replace(afedpg(alpha, eta), broadcast=self)

    def stretch(self, at):
        return self.answer if at.iteration == 3 else 0.0


@pytest.mark.parametrize("answer", [np.nan, None, "1"])
def test_a_stretch_that_is_none(answer: Any) -> None:
    """What agents are sent would not be finite, and they would be blamed for what they make of it."""
    with pytest.raises(
        BrokenPart, match=f"^method: Ahead: stretch gave {answer!r} at iteration 3, not a finite number"
    ):
        train("lq-bandit", agents=2, iterations=5, method=Ahead(answer))


@dataclass(frozen=True)
class Remembers(Stateless):
    start: Any

    def buffers(self, size):
        return self.start

    def update(self, direction, buffers, at):
        return direction


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (None, "Remembers.buffers gave None, not a dict of arrays by name"),
        ({"steps": 0}, "Remembers.buffers gave a int as 'steps', not an array of numbers"),
    ],
)
def test_buffers_that_are_none(start: Any, said: str) -> None:
    """A number would be the same at every step: what `update` puts in its place is not kept."""

    def rule(alpha, eta):
        return replace(afedpg(alpha, eta), step=Remembers(start) if start is None else Chain(Remembers(start)))

    with pytest.raises(ConfigError, match=f"^method: rule: {said}"):
        train("lq-bandit", agents=2, iterations=5, method=rule)


class NoRecipe:
    """Cannot be called."""


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (lambda alpha, eta: alpha, "method: <lambda> gave .*, not a ServerRule"),
        (NoRecipe(), r"method: NoRecipe cannot be called; give it __call__\(self, alpha, eta\)"),
        (lambda alpha, eta: replace(afedpg(alpha, eta), aggregator=NoRecipe()), f"aggregator: NoRecipe {BASE}"),
    ],
)
def test_a_method_that_makes_no_rule(method: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}"):
        train("lq-bandit", agents=2, iterations=5, method=method)


def test_a_method_that_fails() -> None:
    with pytest.raises(BrokenPart, match=r"^method: <lambda> raised ZeroDivisionError.*test_broken_rules.py, line"):
        train("lq-bandit", agents=2, iterations=5, method=lambda alpha, eta: 1 / 0)


def test_a_file_that_is_not_there_is_a_fault_of_the_code() -> None:
    """It is not there the next time either: a service that started again would do so for ever."""

    def fails(direction: Direction, at: At) -> Direction:
        Path("/nonexistent/weights.npy").read_bytes()
        return direction

    with pytest.raises(BrokenPart, match="raised FileNotFoundError") as caught:
        train("lq-bandit", agents=2, iterations=5, method=Rule(fails))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("error", [MemoryError("of 3 GiB"), OSError(5, "Input/output error")])
def test_what_may_be_over_the_next_time_is_no_fault_of_the_code(error: Exception, tmp_path: Path) -> None:
    """A service is started again after exit code 1, and not after 3."""

    def fails(direction: Direction, at: At) -> Direction:
        if at.iteration == 3:
            raise error
        return direction

    with pytest.raises(FailedPart, match=f"raised {type(error).__name__}") as caught:
        train("lq-bandit", agents=2, iterations=5, method=Rule(fails), out=tmp_path / "run")
    assert (caught.value.exit_code, BrokenPart.exit_code) == (1, 3)
    assert "; go on with: afedpg resume" in str(caught.value)
    assert "correct its code" not in str(caught.value)
