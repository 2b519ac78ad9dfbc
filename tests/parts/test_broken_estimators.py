"""An estimator of one's own that does not do what it declares: one line that says what, before anything is sent."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afedpg import train
from afedpg.agent.estimators.checks import RESERVED, RESERVED_STARTS
from afedpg.agent.estimators.estimator import Estimator
from afedpg.cli import main
from afedpg.config import from_settings
from afedpg.engine.crew import Job, Pool
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import AfedpgError, BrokenPart, ConfigError
from afedpg.messages import Contribution, Group, Scalar, Task, TaskId
from afedpg.own_parts import asked
from afedpg.sampling.gymnasium import SAMPLING

SETTINGS: dict[str, Any] = {
    "agents": 2, "iterations": 3, "steps": 16, "hidden": (4,), "baseline": "linear", "evaluate_episodes": 1,
    "workers": 1,
}  # fmt: skip
P = 4 * 4 + 4 + 4 * 2 + 2  # parameters of the policy


def parts(**changed: Any) -> dict[str, Any]:
    return {"policy": np.ones(P, np.float32), "value": np.ones(5, np.float32)} | changed


@dataclass(frozen=True)
class Two(Estimator):
    """The policy and five values."""

    answer: Callable[..., Any] = lambda state: ({}, Contribution(parts(), {"fit": 0.5}))
    names: tuple[tuple[str, int, str], ...] = (("policy", P, "step"), ("value", 5, "parameters"))
    beyond: int = 5
    begin: Any = ()
    scalars = (Scalar("fit", 0.0, 1.0),)

    def groups(self, tools):
        return [Group(*each) for each in self.names]

    def initial(self, tools, generator):
        return np.zeros(self.beyond)

    def start(self, tools, generator):
        return dict(self.begin)

    def estimate(self, tools, state, task, rollout):
        return self.answer(state)


def sends(vector: Any, scalars: dict[str, float] | None = None, state: Any = None) -> Callable[[Any], Any]:
    return lambda _: (
        {} if state is None else state,
        Contribution(vector, {"fit": 0.5} if scalars is None else scalars),
    )


ANSWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another group": (
        sends({"policy": np.ones(P), "v": np.ones(5)}), "sent the groups policy, v, but declares policy, value",
    ),
    "a group less": (sends({"policy": np.ones(P)}), "sent the groups policy, but declares policy, value"),
    "a group more": (sends(parts(q=np.ones(1))), "sent the groups policy, value, q, but declares policy, value"),
    "a long group": (sends(parts(value=np.ones(6))), "sent 6 numbers for 'value', which has 5"),
    "a square group": (sends(parts(value=np.ones((5, 1)))), r"sent an array \[5, 1\] for 'value', which has 5"),
    "a long vector": (sends(np.ones(P + 6)), rf"sent {P + 6} numbers, theta has {P + 5} \(policy {P} \+ value 5\)"),
    "another scalar": (sends(parts(), {"fits": 1.0}), "sent the scalars fits, but declares fit"),
    "no scalar": (sends(parts(), {}), "sent the scalars none, but declares fit"),
    "nothing": (lambda state: None, r"estimate returned NoneType, not \(new arrays, Contribution\)"),
    "no pair": (lambda state: Contribution(parts()), r"estimate returned Contribution, not \(new arrays"),
    "a vector": (lambda state: ({}, np.ones(P)), r"estimate returned dict, ndarray, not \(new arrays, Contribution\)"),
    "no dict": (sends(parts(), state=[]), "gave list as the agent's state, not a dict of arrays by name"),
    "a number": (sends(parts(), state={"mean": 1.0}), "gave a float as 'mean' of the agent's state, not an array"),
    "objects": (sends(parts(), state={"mean": np.array([None])}), "gave an array of object as 'mean' of the agent's"),
    "no name": (sends(parts(), state={1: np.ones(1)}), "gave 1 as a name in the agent's state, not a text"),
    "no number": (sends(parts(), {"fit": None}), "sent a NoneType as 'fit', not a number"),
    "numbers for one": (
        lambda _: ({}, Contribution(parts(), {"fit": 0.5}, extra={"loss": np.ones(2)})),
        "sent a ndarray as 'loss', not a number",
    ),
    "the library's": (
        sends(parts(), state={"episode_return": np.ones(1)}),
        "gave 'episode_return' for the agent's state, which the library uses; choose another name",
    ),
    "a liar's": (sends(parts(), state={"attack_rate": np.ones(1)}), "gave 'attack_rate' for the agent's state"),
    "the statistics'": (sends(parts(), state={"own_mean": np.ones(1)}), "gave 'own_mean' for the agent's state"),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none(name: str, tmp_path: Path) -> None:
    answer, said = ANSWERS[name]
    with pytest.raises(BrokenPart, match=f"^estimator: Two:? {said}") as caught:
        train("CartPole-v1", estimator=Two(answer), **SETTINGS, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert " (after gradient 0 of 6); correct its code, then go on with: afedpg resume" in str(caught.value)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (Two(beyond=4), "initial gave 4 numbers; the groups after the policy need one vector for all of them: value 5"),
        (Two(names=(("policy", P, "step"),)), "initial gave 5 numbers; .*: none"),
        (Two(names=(("value", 5, "step"), ("policy", P, "step"))), f"groups: the first one, value, .* has {P}"),
        (Two(names=(("one", P, "step"), ("one", 5, "step"))), "groups: two of one, one have the same name"),
        (
            Two(names=(("policy", P, "step"), ("value", 5, "parameter"))),
            "groups: value is of the kind 'parameter'; choose from step, parameters",
        ),
    ],
)  # fmt: skip
def test_a_declaration_that_does_not_fit(estimator: Two, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^estimator: Two: {said}"):
        train("CartPole-v1", estimator=estimator, **SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Declares(Estimator):
    """What it is given."""

    def __init__(self, scalars: Any = (), groups: Any = (), statistics: Any = None) -> None:
        self.scalars, self.theirs, self.moments = scalars, groups, {} if statistics is None else statistics

    def groups(self, tools):
        return self.theirs

    def statistics(self, tools):
        return self.moments

    def estimate(self, tools, state, task, rollout):
        return {}, Contribution(np.zeros(tools.parameters))


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (
            Declares(scalars=(Scalar("fit", 0.0, 1.0))),
            r"scalars is a Scalar, not a tuple of Scalar; a tuple of one is written "
            r"\(Scalar\(name='fit', low=0.0, high=1.0\),\)$",
        ),
        (Declares(scalars="fit"), r"scalars is a str, not a tuple of Scalar; a tuple of one is written \(Scalar\("),
        (Declares(scalars=("fit",)), "scalars has a str in it, not Scalar alone"),
        (Declares(groups=Group("policy", P)), r"groups is a Group, not a tuple of Group; a .* \(Group\(name='policy'"),
        (Declares(groups=None), "groups is a NoneType, not a tuple of Group"),
        (Declares(groups=[Group("policy", P), ("value", 5)]), "groups has a tuple in it, not Group alone"),
        (Declares(statistics=("fit", 1)), "statistics gave a tuple, not a dict of lengths"),
    ],
)
def test_a_declaration_of_another_type(estimator: Declares, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^estimator: Declares: {said}"):
        train("CartPole-v1", estimator=estimator, **SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_state_that_begins_with_the_librarys_names(tmp_path: Path) -> None:
    estimator = Two(begin=(("noise_stream", np.ones(1)),))
    with pytest.raises(AfedpgError, match=r"^estimator: Two: start gave 'noise_stream' for the agent's state"):
        train("CartPole-v1", estimator=estimator, **SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Writes(Estimator):
    """To what it was given."""

    to: Callable[[dict[str, Any], Task], Any]

    def start(self, tools, generator):
        return {"mean": np.zeros(2)}

    def estimate(self, tools, state, task, rollout):
        self.to(state, task)[:] = 1
        return {}, Contribution(np.ones(P, np.float32))


@pytest.mark.parametrize(
    "to", [lambda state, task: task.theta, lambda state, task: state["mean"], lambda state, task: state["episode_seed"]]
)
def test_one_that_writes_to_what_it_is_given(to: Callable[[dict[str, Any], Task], Any]) -> None:
    """The same work may be computed twice, with the same state and the same Task."""
    line = r"^estimator: Writes writes to an array that it may only read \(.*test_broken_estimators.py, line \d+\)"
    with pytest.raises(BrokenPart, match=line):
        train("CartPole-v1", estimator=Writes(to), **SETTINGS)


class Keeps(Estimator):
    """Sends how much it saw in the rollout before."""

    def start(self, tools, generator):
        return {"seen": np.zeros(0, np.float32)}

    def estimate(self, tools, state, task, rollout):
        length = 1 + np.abs(state["seen"]).sum()
        return {"seen": rollout.observations[:, :4].reshape(-1)}, Contribution(np.full(P, length, np.float32))


def test_a_rollout_that_it_keeps_stays_what_it_was() -> None:
    """Compiled samplers write the rollouts of all agents to the same memory."""

    def lengths(sampler: str) -> list[float]:
        found: list[float] = []
        how = SETTINGS | {"agents": 3, "sampler": sampler}
        train("CartPole-v1", estimator=Keeps(), **how, on_arrival=lambda it, *_: found.append(it.gradient_norm))
        return found

    assert lengths("native") == lengths("gymnasium")


class Widens(Estimator):
    """Its table has a column more after every report, so agents of different speeds have tables of different widths."""

    def start(self, tools, generator):
        return {"table": np.zeros((2, 1))}

    def estimate(self, tools, state, task, rollout):
        table = np.zeros((2, state["table"].shape[1] + 1))
        return {"table": table}, Contribution(np.ones(P, np.float32))


def test_states_that_no_checkpoint_could_hold(tmp_path: Path) -> None:
    said = (
        r"^estimator: 'table' of the agent's state is .* for agent 0 and .* for agent 1; it needs one type.*"
        rf" \(after gradient \d+ of \d+\); correct its code, then go on with: afedpg resume {tmp_path / 'run'}$"
    )
    with pytest.raises(AfedpgError, match=said):
        train("CartPole-v1", estimator=Widens(), **SETTINGS | {"iterations": 5}, out=tmp_path / "run")


class Counts(Estimator):
    """In a scalar of numpy's."""

    def start(self, tools, generator):
        return {"count": np.int64(0)}

    def estimate(self, tools, state, task, rollout):
        gradient = np.full(P, state["count"] + 1, np.float32)
        return {"count": state["count"] + 1}, Contribution(gradient)


def test_a_scalar_of_numpys_is_an_array() -> None:
    lengths: list[float] = []
    how = SETTINGS | {"agents": 1}
    train("CartPole-v1", estimator=Counts(), **how, on_arrival=lambda it, *_: lengths.append(it.gradient_norm))
    np.testing.assert_allclose(lengths, np.arange(1, 4) * np.sqrt(P), rtol=1e-6)


@pytest.mark.parametrize("vector", [np.ones(P + 5), np.ones(P + 5, np.float32), parts(value=np.ones(5))])
def test_what_is_declared_is_taken_in_any_precision(vector: Any) -> None:
    result = train("CartPole-v1", estimator=Two(sends(vector)), **SETTINGS)
    np.testing.assert_array_equal(result.theta[P:], np.ones(5))


def test_the_librarys_names_are_all_reserved() -> None:
    """Whatever an agent's state holds beyond what its estimator gave."""
    settings = {
        **SETTINGS, "task": "CartPole-v1", "scale_rewards": True, "scaling": "local",
        "codec": f"{Path(__file__).parents[2]}/examples/parts/eight_bits.py:EightBits", "estimator": "clipped",
        "attack": "noise", "attackers": (0,),
    }  # fmt: skip
    del settings["workers"]
    work = BuildWorkload(from_settings(settings))()
    state = work.start(0)
    own = {"theta", "clipped_stream", "clipped_fits"}
    for counter in range(2):
        task = Task(TaskId(0, counter), 0, work.initial_theta().astype(np.float32), counter)
        state, _ = work.work(state, task)
        found = state.keys() | work.prepare(state, 0).keys()
        names = {key for key in found if key not in own and not key.startswith("window_")}
        assert {key for key in names if not key.startswith(RESERVED_STARTS)} == RESERVED
        assert names > SAMPLING
    assert {start for start in RESERVED_STARTS if any(key.startswith(start) for key in names)} == set(RESERVED_STARTS)


class Breaks:
    """A workload whose part is broken, for a worker."""

    def __call__(self) -> Any:
        raise BrokenPart("estimator: Two sent 6 numbers for 'value', which has 5")


class Fails(Estimator):
    """In a method of its declarations."""

    def __init__(self, method: str) -> None:
        setattr(self, method, self.fail)

    def fail(self, *given: Any) -> Any:
        raise KeyError("sizes")

    def estimate(self, tools, state, task, rollout):
        return {}, Contribution(np.zeros(tools.parameters))


@pytest.mark.parametrize("method", ["check", "groups", "statistics", "initial", "start"])
def test_a_declaration_that_fails(method: str, tmp_path: Path) -> None:
    with pytest.raises(
        BrokenPart, match=r"^estimator: Fails raised KeyError: 'sizes' \(.*test_broken_estimators.py, l"
    ):
        train("CartPole-v1", estimator=Fails(method), **SETTINGS, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Divides:
    """A workload whose part fails, for a worker."""

    def __call__(self) -> Any:
        return asked("estimator: Two", lambda: 1 / 0)


def test_a_workers_traceback_is_in_the_chain() -> None:
    pool = Pool(Divides(), 1)
    try:
        with pytest.raises(BrokenPart, match=r"^estimator: Two raised ZeroDivisionError") as caught:
            pool.collect(Job(0, 0, {}, None))
    finally:
        pool.close()
    text = "".join(traceback.format_exception(caught.value))
    assert "in a worker process:" in text
    assert "\nZeroDivisionError: division by zero\n" in text


def test_a_worker_says_the_same() -> None:
    pool = Pool(Breaks(), 1)
    try:
        with pytest.raises(BrokenPart, match=r"^estimator: Two sent 6 numbers"):
            pool.collect(Job(0, 0, {}, None))
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("class Part: ...", "estimator: Part does not inherit from afedpg.agent.estimators.estimator.Estimator; write"),
        ("class Part(Estimator): ...", "estimator: Part does not define estimate"),
    ],
)  # fmt: skip
def test_one_that_is_no_estimator(code: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.py"
    file.write_text(f"from afedpg.agent.estimators.estimator import Estimator\n\n\n{code}\n")
    assert main(["train", "CartPole-v1", f"--estimator={file}:Part", "--agents=2", f"--out={tmp_path}/run"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"afedpg: {line}")
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_codec_without_its_methods() -> None:
    class Part:
        def start(self, size: int) -> dict[str, Any]:
            return {}

    with pytest.raises(ConfigError, match=r"^codec: Part does not define encode, decode, nbytes$"):
        train("quadratic", codec=Part(), agents=2, iterations=3)  # type: ignore[arg-type]
