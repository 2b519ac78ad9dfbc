"""An aggregator of one's own that answers what no step can be made of: one line that says whose fault it is,
and nothing is stored half done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exercises import PARTS

from afedpg import resume, train
from afedpg.cli import main
from afedpg.engine import virtual
from afedpg.errors import AfedpgError, BrokenPart, ConfigError
from afedpg.record import checkpoint
from afedpg.record.folder import RunFolder
from afedpg.runs.parts import Own
from afedpg.server.aggregators import Aggregator, Drop, Given, Here, Keep, Memory, Use

Take = Callable[[Given, Memory, Here], Any]


def step_with(given: Given) -> Use:
    return Use(given.vector, (given,))


@dataclass(frozen=True)
class Broken(Aggregator):
    """Right but for iteration 3."""

    answer: Take

    def start(self, parameters):
        return {"total": np.zeros(parameters)}

    def take(self, given, memory, here):
        return self.answer(given, memory, here) if here.iteration == 3 else step_with(given)


def writing(given, memory, here):
    given.vector[:] = 0
    return step_with(given)


def writing_theta(given, memory, here):
    here.theta[:] += 1
    return step_with(given)


def adding_a_name(given, memory, here):
    memory.arrays["count"] = np.ones(1)
    return step_with(given)


def dropping_a_name(given, memory, here):
    del memory.arrays["total"]
    return step_with(given)


def keeping_a_number(given, memory, here):
    memory.arrays["total"] = 3.0
    return step_with(given)


def keeping_a_list(given, memory, here):
    memory.slots[given.agent] = [1.0, 2.0]
    return step_with(given)


def keeping_text(given, memory, here):
    memory.slots[given.agent] = np.array(["one"])
    return Keep()


def keeping_for_nobody(given, memory, here):
    memory.slots["all"] = np.ones(1)
    return Keep()


def keeping_a_vector(given, memory, here):
    memory.kept.append(given.vector)
    return Keep()


ANSWERS: dict[str, tuple[Take, str]] = {
    "none": (lambda given, memory, here: None, "Broken answered None, not Use, Keep or Drop"),
    "short": (
        lambda given, memory, here: Use(given.vector[:-1], (given,)),
        "Broken answered with a direction of 3 numbers, not of 4",
    ),
    "another shape": (
        lambda given, memory, here: Use(given.vector[:, None], (given,)),
        r"Broken answered with a direction of \[4, 1\] numbers, not of 4",
    ),
    "a list": (
        lambda given, memory, here: Use(given.vector.tolist(), (given,)),
        "Broken answered with a direction of list, not of float64 or float32",
    ),
    "whole numbers": (
        lambda given, memory, here: Use(np.ones(4, np.int64), (given,)), "a direction of int64, not of float64",
    ),
    "nobody": (lambda given, memory, here: Use(given.vector, ()), "Use with other reports than a list of one Given"),
    "no list": (lambda given, memory, here: Use(given.vector, given), "other reports than a list of one Given or more"),
    "none at all": (lambda given, memory, here: Use(given.vector, None), "other reports than a list of one Given or"),
    "twice": (lambda given, memory, here: Use(given.vector, [given, given]), "Use with one report twice"),
    "not finite": (
        lambda given, memory, here: Use(given.vector * np.nan, (given,)),
        "with a direction or a factor that is not finite, at iteration 3, of reports of agents [01], which are finite",
    ),
    "not finite, with the length of another": (
        lambda given, memory, here: Use(given.vector * np.nan, (given,), norm=given.norm), "is not finite",
    ),
    "factors": (
        lambda given, memory, here: step_with(given)._replace(factors=[1.0, 0.5]),
        r"with the factors \[1.0, 0.5\], not one for each of 1 groups",
    ),
    "an infinite factor": (lambda given, memory, here: step_with(given)._replace(factor=np.inf), "is not finite"),
    "a group's factor": (lambda given, memory, here: step_with(given)._replace(factors=[np.nan]), "is not finite"),
    "one factor": (
        lambda given, memory, here: step_with(given)._replace(factors=0.5), "with the factors 0.5, not one for each",
    ),
    "factors of numpy's": (
        lambda given, memory, here: step_with(given)._replace(factors=np.array([np.inf])), "is not finite",
    ),
    "a factor that is no number": (
        lambda given, memory, here: step_with(given)._replace(factor=None), "a factor that is not finite",
    ),
    "scalars that are none": (
        lambda given, memory, here: step_with(given)._replace(scalars=[1.0]), r"the scalars \[1.0\], not a dict of fin",
    ),
    "a scalar that is not finite": (
        lambda given, memory, here: step_with(given)._replace(scalars={"fit": np.nan}), "not a dict of finite numbers",
    ),
    "nobody works on": (
        lambda given, memory, here: Keep(task=False),
        r"Keep\(task=False\), so agent [01] would never work again; write waits = True in the class",
    ),
    "written to": (writing, rf"Broken writes to an array that it may only read \({__file__}, line \d+\); copy it"),
    "theta written to": (writing_theta, "Broken writes to an array that it may only read"),
    "a new name": (adding_a_name, "Broken has count, total in memory.arrays, its start gave total; give all"),
    "a lost name": (dropping_a_name, "Broken has nothing in memory.arrays, its start gave total"),
    "a number": (keeping_a_number, r"Broken put a float into memory.arrays\['total'\], not an array of numbers"),
    "a slot's list": (keeping_a_list, r"Broken put a list into memory.slots\[[01]\], not an array of numbers"),
    "nobody's slot": (keeping_for_nobody, "Broken put 'all' into memory.slots, whose keys are agents' numbers"),
    "no report": (keeping_a_vector, "Broken put a ndarray into memory.kept, not a Given"),
    "a slot's text": (keeping_text, r"Broken put an array of <U3 into memory.slots\[[01]\], not an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none(tmp_path: Path, name: str) -> None:
    answer, said = ANSWERS[name]
    with pytest.raises(BrokenPart, match=f"^aggregator: .*{said}") as caught:
        train("lq-bandit", agents=2, iterations=5, aggregator=Broken(answer), out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert " (after gradient 3 of 10); correct its code, then go on with: afedpg resume" in str(caught.value)
    folder = RunFolder(tmp_path / "run")
    assert checkpoint.names(folder.checkpoints) == [0]  # the one from the start: what was left half done is not stored


def test_once_it_is_corrected_the_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = "from afedpg.server.aggregators import Aggregator, Use\n\n\nclass Mine(Aggregator):\n"
    text += "    def take(self, given, memory, here):\n        {}Use(given.vector, [given])\n"
    file.write_text(text.format("return here.iteration < 3 and "))
    words = ["lq-bandit", "--agents=2", "--iterations=5", f"--out={tmp_path}/run"]
    assert main(["train", *words, f"--aggregator={file}:Mine"]) == 3
    file.write_text(text.format("return "))
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert main(["replay", str(tmp_path / "run")]) == 0


@dataclass(frozen=True)
class Leaving(Aggregator):
    """Says something wrong when somebody leaves."""

    answer: Any

    def take(self, given, memory, here):
        memory.kept.append(given)
        if len(memory.kept) < 50:
            return Keep()
        reports, memory.kept = memory.kept, []
        return Use(given.vector, reports)

    def changed(self, memory, here):
        return self.answer(memory)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda memory: Keep(), r"changed answered Keep\(task=True\), not Use or None"),
        (lambda memory: Use(np.ones(3), list(memory.kept)), "a direction of 3 numbers, not of 4"),
        (lambda memory: memory.arrays.update(late=np.ones(1)), "has late in memory.arrays, its start gave nothing"),
    ],
)
def test_an_answer_to_who_left_that_is_none(answer: Any, said: str) -> None:
    with pytest.raises(BrokenPart, match=f"^aggregator: Leaving.*{said}"):
        train("lq-bandit", agents=2, iterations=50, drop={"1": 9.0}, aggregator=Leaving(answer))


@dataclass(frozen=True)
class Hoard(Aggregator):
    def take(self, given, memory, here):
        memory.kept.append(given)
        return Keep()


@dataclass(frozen=True)
class Waiting(Hoard):
    waits = True

    def take(self, given, memory, here):
        memory.kept.append(given)
        return Keep(task=False)

    def changed(self, memory, here):
        return None


def test_one_that_keeps_everything_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual, "MOST_KEPT", 20)
    with pytest.raises(
        AfedpgError, match="no step was made of the last 41 events; check the aggregator Hoard, which keeps 39 reports"
    ):
        train("lq-bandit", agents=2, iterations=5, aggregator=Hoard())
    with pytest.raises(AfedpgError, match=r"no agent is left .*, and the aggregator Waiting, which keeps 2 reports"):
        train("lq-bandit", agents=2, iterations=5, aggregator=Waiting())


@dataclass(frozen=True)
class Selective(Aggregator):
    """Keeps two reports and steps with what `used` leaves of them."""

    used: Callable[[Given], bool]

    def take(self, given, memory, here):
        memory.kept.append(given)
        if len(memory.kept) < 2:
            return Keep()
        reports, memory.kept = [each for each in memory.kept if self.used(each)], []
        return Use(given.vector, reports) if reports else Drop("nobody's")


def test_a_kept_report_that_is_never_used_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """And does not count: the run takes as long as it needs for the others."""
    settings: dict[str, Any] = {"agents": 2, "iterations": 10, "timing": "equal"}
    whole = train("lq-bandit", aggregator=Selective(lambda given: True), **settings)
    assert "no Use had" not in caplog.text
    result = train("lq-bandit", aggregator=Selective(lambda given: given.agent == 1), **settings)
    assert caplog.text.count("aggregator: Selective keeps a report no longer that no Use had") == 1
    assert (whole.gradients, result.gradients) == (20, 20)
    assert result.seconds == 2 * whole.seconds


def forgetting(given, memory, here):
    """What was used stays among what is kept."""
    memory.kept.append(given)
    return Use(given.vector, list(memory.kept)) if len(memory.kept) > 1 else Keep()


def dropping_and_keeping(given, memory, here):
    memory.kept.append(given)
    return Drop("late")


def elsewhere() -> Take:
    """In a variable of its own, where no checkpoint finds them."""
    seen: list[Given] = []

    def take(given, memory, here):
        seen.append(given)
        return Use(given.vector, list(seen))

    return take


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (forgetting, "has a report in memory.kept that it used or dropped, which would count twice; remove it there"),
        (dropping_and_keeping, "has a report in memory.kept that it used or dropped"),
        (elsewhere(), "answered Use with a report that neither came now nor is in memory.kept; it may have been used"),
    ],
)
def test_a_report_that_would_count_twice(answer: Take, said: str) -> None:
    @dataclass(frozen=True)
    class Mine(Aggregator):
        def take(self, given, memory, here):
            return answer(given, memory, here)

    with pytest.raises(BrokenPart, match=f"^aggregator: Mine {said}"):
        train("lq-bandit", agents=2, iterations=5, aggregator=Mine())


BASE = "does not inherit from afedpg.server.aggregators.Aggregator"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("class Part(Aggregator): ...", "aggregator: Part does not define take"),
        ("class Part: ...", f"aggregator: Part {BASE}; write class Part(Aggregator)"),
        ("def Part(): ...", f"aggregator: Part {BASE}; write class Part(Aggregator)"),
        ("class Part(Aggregator):\n    take = start = lambda *_: None", "aggregator: Part: start gave None, not"),
        (
            "class Part(Aggregator):\n    take = None\n    def start(self, n): return {'a': 1.0}",
            "aggregator: Part: start gave a float as 'a', not an array of numbers",
        ),
    ],
)  # fmt: skip
def test_one_that_is_no_aggregator(code: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"from afedpg.server.aggregators import Aggregator\n\n\n{code}\n")
    words = ["lq-bandit", "--agents=2", "--iterations=5", f"--out={tmp_path}/run"]
    assert main(["train", *words, f"--aggregator={file}:Part"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"afedpg: {line}"), told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_class_instead_of_an_object() -> None:
    with pytest.raises(ConfigError, match=r"^aggregator: Hoard is a class; give an object of it, as Hoard\(\)$"):
        train("lq-bandit", agents=2, iterations=5, aggregator=Hoard)  # type: ignore[arg-type]


def test_a_run_whose_aggregator_remembered_other_names_blames_it(tmp_path: Path) -> None:
    """As a run folder has it that was made before names were compared."""
    run, right = tmp_path / "run", Broken(lambda given, memory, here: step_with(given))
    train("lq-bandit", agents=2, iterations=5, aggregator=right, out=run)
    name, tree = checkpoint.load_latest(run / "checkpoints")
    tree["server"]["memory"]["arrays"]["count"] = np.ones(1)
    checkpoint.save(run / "checkpoints", name, tree, keep=1)
    with pytest.raises(
        ConfigError, match=r"^aggregator: .*the checkpoint's aggregator remembers count, total, the one"
    ):
        resume(run, Own(aggregator=right))


@dataclass(frozen=True)
class Scores(Aggregator):
    """Steps with other scalars than came with the reports."""

    scalars: dict[str, float]

    def take(self, given, memory, here):
        return Use(given.vector, (given,), scalars=self.scalars)


def test_scalars_that_lack_one_are_the_aggregators_fault() -> None:
    file = f"{PARTS}/shared_value.py"
    settings: dict[str, Any] = {"agents": 1, "iterations": 2, "steps": 16, "baseline": "linear"}
    settings |= {"method": f"{file}:Mixed", "estimator": f"{file}:SharedValue"}
    with pytest.raises(BrokenPart, match=r"^aggregator: Scores answered with the scalars fit and without explained, "):
        train("CartPole-v1", aggregator=Scores({"fit": 1.0}), **settings)
    train("CartPole-v1", aggregator=Scores({"explained": 1.0, "fit": 1.0}), **settings)


@dataclass(frozen=True)
class Unfair(Hoard):
    weigh = "agent"


class Alone(Aggregator):
    waits = True
    take = Waiting.take


@pytest.mark.parametrize(
    ("aggregator", "said"),
    [
        (Unfair(), "Unfair: weigh is 'agent'; choose from arrivals, agents"),
        (Alone(), r"Alone has waits = True and no changed\(memory, here\)"),
    ],
)
def test_a_declaration_that_is_none(aggregator: Aggregator, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^aggregator: {said}"):
        train("lq-bandit", agents=2, aggregator=aggregator, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Trusting(Aggregator):
    def take(self, given, memory, here):
        return step_with(given)

    def suspicions(self, memory):
        return None


def test_suspicions_that_are_none() -> None:
    with pytest.raises(BrokenPart, match=r"^aggregator: Trusting: suspicions gave None, not a dict of numbers"):
        train("lq-bandit", agents=2, iterations=5, aggregator=Trusting())
