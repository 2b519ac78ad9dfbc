"""Callbacks hear of everything, may end a run, and a run that they end is a run like any other."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from afedpg import Callback, EarlyStopping, replay, resume, train
from afedpg.cli import main
from afedpg.errors import ConfigError
from afedpg.messages import Evaluation
from afedpg.record.database import read_arrivals, read_evaluations, read_notes
from afedpg.runs.best import Evaluated
from afedpg.runs.callbacks import Watchers

SMALL = {"agents": 3, "iterations": 40, "schedule": "constant", "eta": 0.01, "evaluate_every": 2}


class Heard(Callback):
    def __init__(self) -> None:
        self.arrivals, self.evaluations = [], []

    def on_arrival(self, event):
        self.arrivals.append((event.arrival, event.seconds, event.theta))

    def on_evaluation(self, event):
        self.evaluations.append(event)


class StopAt(Callback):
    def __init__(self, gradient: int) -> None:
        self.gradient = gradient

    def on_arrival(self, event):
        return event.arrival.gradient < self.gradient


def evaluated(mean: float, **also: float) -> Evaluated:
    told = tuple(Evaluation(kind, value) for kind, value in {"sampled": mean, **also}.items())
    return Evaluated(np.zeros(2, np.float32), {}, 1, 1, 1, 1.0, told)


def test_they_hear_of_every_gradient_and_every_evaluation(tmp_path):
    heard = Heard()
    result = train("quadratic", **SMALL, callbacks=[heard], out=tmp_path / "run")
    assert [arrival.gradient for arrival, _, _ in heard.arrivals] == list(range(1, 121))
    assert heard.arrivals[-1][2].tobytes() == result.theta.tobytes()
    rows = read_evaluations(tmp_path / "run" / "run.db")
    assert [event.gradients for event in heard.evaluations] == rows["gradients"].tolist()
    assert [event.mean for event in heard.evaluations] == rows["mean"].tolist()
    assert result.sha256 == train("quadratic", **SMALL).sha256


@pytest.mark.parametrize("method", ["afedpg", "fedpg", "a3c"])
def test_a_run_that_is_ended_is_kept_replayed_and_goes_on(tmp_path, method):
    out = tmp_path / "run"
    settings = {**SMALL, "method": method, "keep_reports": True}
    result = train("quadratic", **settings, callbacks=[StopAt(30)], out=out)
    assert (result.gradients, result.stopped) == (30, "StopAt")
    assert result.evaluations
    assert read_notes(out / "run.db")["state"] == "finished"
    assert read_evaluations(out / "run.db")["gradients"][-1] == 30
    assert replay(out).replayed == result.sha256
    assert resume(out).sha256 == train("quadratic", **settings).sha256
    assert replay(out).agrees


def test_the_end_is_the_same_every_time(tmp_path):
    ends = {train("quadratic", **SMALL, callbacks=[EarlyStopping(threshold=-3.0)]).sha256 for _ in range(2)}
    assert len(ends) == 1


def test_a_run_ends_when_theta_gets_no_better_and_so_does_the_one_that_was_killed(tmp_path):
    """The callback's memory is in the checkpoint."""
    settings = {**SMALL, "iterations": 2000, "eta": 0.3, "checkpoint_seconds": 1e-9}
    whole = train("quadratic", **settings, callbacks=[EarlyStopping(patience=4)], out=tmp_path / "whole")
    means = read_evaluations(tmp_path / "whole" / "run.db")["mean"]
    best = int(means.argmax())
    assert whole.stopped == "EarlyStopping"
    assert len(means) == best + 1 + 4

    class Killed(BaseException): ...

    def kill(arrival, seconds, theta):
        if arrival.gradient == 6 * (best + 3):
            raise Killed

    for out in ("killed", "killed at the end"):
        with pytest.raises(Killed):
            train("quadratic", **settings, callbacks=[EarlyStopping(patience=4)], out=tmp_path / out, on_arrival=kill)
        again = resume(tmp_path / out, callbacks=[EarlyStopping(patience=4)])
        assert (again.sha256, again.stopped) == (whole.sha256, "EarlyStopping")
    once_more = resume(tmp_path / "whole", callbacks=[EarlyStopping(patience=4)])
    assert once_more.sha256 == whole.sha256  # what it remembers has ended the run already
    further = resume(tmp_path / "whole", callbacks=[EarlyStopping(patience=6)])
    assert further.gradients >= whole.gradients + 12


@pytest.mark.parametrize("engine", ["local"])
def test_in_real_time_too(tmp_path, engine):
    out = tmp_path / "run"
    result = train("quadratic", agents=1, iterations=5000, engine=engine, callbacks=[StopAt(25)], out=out)
    assert (result.gradients, result.stopped) == (25, "StopAt")
    assert read_arrivals(out / "run.db")["gradient"][-1] == 25
    assert replay(out).replayed == result.sha256
    assert resume(out, callbacks=[StopAt(40)]).gradients == 40


def test_patience_counts_what_is_not_better_by_enough():
    early = EarlyStopping(patience=2, min_delta=1.0)
    answers = [early.on_evaluation(evaluated(mean)) for mean in (10.0, 10.9, 11.5, 12.0, 12.5)]
    assert answers == [True, True, True, True, False]


def test_the_better_kind_of_acting_counts():
    early = EarlyStopping(threshold=5.0)
    assert early.on_evaluation(evaluated(1.0, deterministic=4.9))
    assert not early.on_evaluation(evaluated(1.0, deterministic=5.0))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: EarlyStopping(), "callbacks: EarlyStopping needs a patience, a threshold, or both"),
        (lambda: EarlyStopping(patience=0), "callbacks: EarlyStopping: a patience of 0; at least 1 is needed"),
        (lambda: EarlyStopping(3, -1.0), r"callbacks: EarlyStopping: a min_delta of -1.0; at least 0 is needed"),
        (lambda: EarlyStopping(patience="3"), "callbacks: EarlyStopping: a patience of '3' is no whole number"),
        (lambda: EarlyStopping(patience=2.5), "callbacks: EarlyStopping: a patience of 2.5 is no whole number"),
        (lambda: EarlyStopping(3, None), "callbacks: EarlyStopping: a min_delta of None is no finite number"),
        (lambda: EarlyStopping(threshold=float("nan")), "callbacks: EarlyStopping: a threshold of nan is no finite"),
        (lambda: len, "callbacks: <built-in function len> is no object of a class made from afedpg.Callback"),
    ],
)
def test_callbacks_that_make_no_sense_are_named(make, line):
    with pytest.raises(ConfigError, match=line):
        train("quadratic", evaluate_every=1, callbacks=[make()])


def test_an_early_stop_needs_evaluations():
    with pytest.raises(ConfigError, match="callbacks: EarlyStopping looks at theta's evaluations; set evaluate_every"):
        train("quadratic", callbacks=[EarlyStopping(patience=2)])


class Counts(Callback):
    """Ends a run after three gradients; of its memory only `forget` takes anything away."""

    def __init__(self) -> None:
        self.seen = 0

    def forget(self):
        self.seen = 0

    def on_arrival(self, event):
        self.seen += 1
        return self.seen < 3

    def to_tree(self):
        return {"seen": self.seen}

    def from_tree(self, tree):
        self.seen = tree["seen"]


def test_one_object_watches_several_runs_and_each_as_if_it_were_the_first():
    settings = {**SMALL, "iterations": 2000, "eta": 0.3}
    early, counts = EarlyStopping(patience=4), Counts()
    for seed in range(3):
        alone = train("quadratic", **settings, seed=seed, callbacks=[EarlyStopping(patience=4)])
        shared = train("quadratic", **settings, seed=seed, callbacks=[early])
        assert (shared.gradients, shared.stopped) == (alone.gradients, "EarlyStopping")
        assert train("quadratic", **settings, seed=seed, callbacks=counts).gradients == 3


def test_one_that_forgets_more_is_made_before_it_has_anything_to_forget():
    class Log(EarlyStopping):
        def __init__(self):
            super().__init__(patience=2)
            self.log = []

        def forget(self):
            super().forget()
            self.log.clear()

        def on_evaluation(self, event):
            self.log.append(event.mean)
            return super().on_evaluation(event)

    log = Log()
    for _ in range(2):
        result = train("quadratic", **SMALL | {"iterations": 4}, callbacks=log)
        assert len(log.log) == result.looks == 2


def test_a_stored_run_brings_what_the_object_remembered_and_another_run_does_not(tmp_path):
    stored, without, counts = tmp_path / "stored", tmp_path / "without", Counts()
    assert train("quadratic", **SMALL, callbacks=StopAt(2), out=without).gradients == 2
    assert train("quadratic", **SMALL, callbacks=[counts], out=stored).gradients == 3
    assert resume(without, callbacks=[counts]).gradients == 5  # three of its own
    assert resume(stored, callbacks=[counts]).gradients == 4  # it remembers three, and the fourth is no fewer


@pytest.mark.parametrize("engine", ["virtual", "local"])
def test_a_theta_that_was_handed_out_belongs_to_who_asked(tmp_path, engine):
    """It stays what it was, and nothing that is written to it reaches the run."""
    settings = {**SMALL, "agents": 1, "iterations": 8, "engine": engine}
    plain, handed, kept = train("quadratic", **settings), [], []

    class Scribble(Heard):
        def on_arrival(self, event):
            super().on_arrival(event)
            kept.append(event)
            event.theta[:] = np.nan
            assert event.theta.tobytes() == self.arrivals[-1][2].tobytes()

        def on_evaluation(self, event):
            event.theta[:] = np.nan

    def note(arrival, seconds, theta):
        handed.append(theta.copy())
        theta[:] = np.nan

    scribble = Scribble()
    result = train("quadratic", **settings, callbacks=[scribble], on_arrival=note)
    assert result.sha256 == plain.sha256
    np.testing.assert_array_equal(result.best.theta, plain.best.theta)
    assert len({theta.tobytes() for theta in handed}) == 8
    assert [theta.tobytes() for _, _, theta in scribble.arrivals] == [theta.tobytes() for theta in handed]
    with pytest.raises(ConfigError, match=r"theta: the server has gone on; ask for event\.theta while on_arrival runs"):
        _ = kept[0].theta


def test_no_theta_is_copied_where_nobody_asks():
    class Theta(np.ndarray):
        def copy(self, *order):
            raise AssertionError("copied")

    arrival = SimpleNamespace(gradient=1)
    Watchers([StopAt(3), Counts()], display=lambda *arrived: None)(arrival, 1.0, np.zeros(2).view(Theta))


@pytest.mark.parametrize(("answer", "gradients"), [(False, 1), (np.False_, 1), (0, 6), (None, 6), ("", 6), (True, 6)])
def test_false_alone_ends_a_run_whoever_says_it(answer, gradients):
    class Says(Callback):
        def on_arrival(self, event):
            return answer

    settings = {"agents": 2, "iterations": 3}
    told = train("quadratic", **settings, on_arrival=lambda *_: answer)
    assert (told.gradients, told.stopped) == (gradients, "on_arrival" if gradients == 1 else "")
    said = train("quadratic", **settings, callbacks=Says())
    assert (said.gradients, said.stopped) == (gradients, "Says" if gradients == 1 else "")


def test_a_run_that_is_not_kept_asks_for_no_memory():
    """Which may be nothing that could be copied."""

    class Locked(Callback):
        def to_tree(self):
            raise NotImplementedError

    assert train("quadratic", agents=1, iterations=2, callbacks=Locked()).gradients == 2


@pytest.mark.parametrize("given", [None, (), []])
def test_no_callback_is_none(given):
    assert train("quadratic", agents=1, iterations=2, callbacks=given).gradients == 2


@pytest.mark.parametrize(("given", "named"), [(Heard, "<class .*Heard'>"), (5, "5")])
def test_what_is_no_callback_is_named(given, named):
    with pytest.raises(ConfigError, match=f"callbacks: {named} is no object of a class made from afedpg.Callback"):
        train("quadratic", iterations=1, callbacks=given)


def test_what_is_no_function_is_named(tmp_path):
    with pytest.raises(ConfigError, match="on_arrival: a EarlyStopping is no function; objects go to callbacks"):
        train("quadratic", iterations=1, on_arrival=EarlyStopping(3), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("goal", "settings"),
    [
        ("stop_at_return", {"stop_at_return": -1e9}),
        ("stop_at_evaluation", {"stop_at_evaluation": -1e9}),
        ("stop_at_seconds", {"stop_at_seconds": 5.0}),
    ],
)
def test_a_run_that_its_goal_ended_says_so(tmp_path, capsys, goal, settings):
    result = train("lq-bandit", agents=2, iterations=100, evaluate_every=1, **settings)
    assert result.gradients < 200
    assert result.stopped == goal
    assert f", stopped by {goal}\n" in repr(result)
    option, value = f"--{goal.replace('_', '-')}", str(settings[goal])
    line = ["train", "lq-bandit", "--agents", "2", "--iterations", "100", "--evaluate-every", "1", option, value]
    assert main([*line, "--out", str(tmp_path / "told")]) == 0
    assert f"seconds, stopped by {goal}\n" in capsys.readouterr().out
    assert main([*line, "--out", str(tmp_path / "json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopped"] == goal


def test_a_run_to_its_end_was_stopped_by_nothing():
    settings = {"agents": 1, "iterations": 5, "evaluate_every": 1}
    result = train("lq-bandit", **settings, stop_at_evaluation=-1e9)  # met by the last gradient's evaluation
    assert (result.gradients, result.stopped) == (5, "")
    assert "stopped" not in repr(result)


@pytest.mark.parametrize(("goal", "stopped"), [({}, ""), ({"stop_at_seconds": 2.0}, "stop_at_seconds")])
def test_an_evaluation_after_the_end_has_not_ended_the_run(goal, stopped):
    """The last theta is evaluated in any case, and the callback is told."""
    settings = {"agents": 1, "iterations": 5, "evaluate_every": 100, **goal}
    result = train("lq-bandit", **settings, callbacks=EarlyStopping(threshold=-1e9))
    assert (result.gradients, result.stopped) == (2 if goal else 5, stopped)
