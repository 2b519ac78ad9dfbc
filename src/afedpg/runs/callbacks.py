"""Who watches a run while it goes on, and may end it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from afedpg.config import Config
from afedpg.engine.federation import HearsRefusals, OnArrival
from afedpg.errors import ConfigError
from afedpg.messages import Arrival, Rejected, Vector
from afedpg.runs.best import Evaluated

if TYPE_CHECKING:
    from afedpg.runs.result import Result

OwnOnArrival = Callable[[Arrival, float, Vector], bool | None]  # a user's: theta is a copy, and False ends the run


@dataclass(frozen=True)
class Started:
    """A run that begins, or goes on.

    Attributes:
        config: the settings.
        out: the run folder, if one is kept.
        gradients: applied so far; 0 of a new run.
        samples: environment steps so far.
    """

    config: Config
    out: Path | None
    gradients: int
    samples: int


@dataclass(frozen=True)
class Arrived:
    """One applied gradient.

    Attributes:
        arrival: what is recorded of it: gradient, iteration, agent, delay, stats.mean_return and so on.
        seconds: of the run's clock.
        theta: after its step; a copy, made whenever it is asked for. Ask while `on_arrival` runs: later the event has
            none.
    """

    arrival: Arrival
    seconds: float
    _theta: Vector | None = field(repr=False, compare=False)  # the server's own, which its next step overwrites

    @property
    def theta(self) -> Vector:
        if self._theta is None:
            raise ConfigError("theta: the server has gone on; ask for event.theta while on_arrival runs, and keep that")
        return self._theta.copy()

    def over(self) -> None:
        """Else an event that was kept would show a later theta."""
        object.__setattr__(self, "_theta", None)


class Callback:
    """Is told what happens in a run. `on_arrival` or `on_evaluation` ends it by returning False, which 0 and None are
    not; the result is kept.

        class Watch(Callback):
            def on_evaluation(self, event):
                print(event.samples, event.mean)

        train("CartPole-v1", evaluate_every=5, callbacks=[Watch()])

    What it remembers belongs into `to_tree`, so that a run that is killed and resumed with the same callbacks ends
    where it would have ended; and `forget` drops it, so that one object can watch several runs, one after the other.
    """

    def forget(self) -> None:
        """Drops what it remembers. Called before `on_start` of a run that stored nothing of this callback: of a new
        run, or of one that had no such callback."""

    def on_start(self, event: Started) -> None:
        """Before the first gradient; in a resumed run after `from_tree`."""

    def on_arrival(self, event: Arrived) -> bool | None:
        """After each applied gradient."""
        return None

    def on_evaluation(self, event: Evaluated) -> bool | None:
        """After each evaluation of theta."""
        return None

    def on_end(self, result: Result | None) -> None:
        """After the run, with what it came to; None where it was interrupted or failed."""

    def to_tree(self) -> dict[str, Any]:
        """What it remembers, for a checkpoint: numbers, strings and arrays by name."""
        return {}

    def from_tree(self, tree: dict[str, Any]) -> bool | None:
        """Takes up what `to_tree` gave; False where that had ended the run already."""
        return None


class EarlyStopping(Callback):
    """Ends a run once theta is good enough, or no longer gets better.

        train("CartPole-v1", evaluate_every=5, callbacks=[EarlyStopping(patience=10)])

    An evaluation counts by its better kind of acting, as the best policy is chosen.

    Args:
        patience: end after so many evaluations in a row that were not better than the best before them.
        min_delta: only what is better by more than this counts as better.
        threshold: end once an evaluation is at least this.
    """

    def __init__(self, patience: int | None = None, min_delta: float = 0.0, threshold: float | None = None) -> None:
        if patience is None and threshold is None:
            raise ConfigError("callbacks: EarlyStopping needs a patience, a threshold, or both")
        _check_number("patience", patience, Integral, "whole")
        _check_number("min_delta", min_delta, Real, "finite")
        _check_number("threshold", threshold, Real, "finite")
        if patience is not None and patience < 1:
            raise ConfigError(f"callbacks: EarlyStopping: a patience of {patience}; at least 1 is needed")
        if not min_delta >= 0:
            raise ConfigError(f"callbacks: EarlyStopping: a min_delta of {min_delta}; at least 0 is needed")
        self.patience, self.min_delta, self.threshold = patience, min_delta, threshold
        self._clear()

    def forget(self) -> None:
        self._clear()

    def _clear(self) -> None:
        """Also for the constructor, which a subclass calls before it has what its own `forget` clears."""
        self._best, self._newest, self._waited = -math.inf, -math.inf, 0

    def on_evaluation(self, event: Evaluated) -> bool | None:
        self._newest = event.mean
        if event.mean > self._best + self.min_delta:
            self._best, self._waited = event.mean, 0
        else:
            self._waited += 1
        return self._go_on()

    def _go_on(self) -> bool:
        good_enough = self.threshold is not None and self._newest >= self.threshold
        return not good_enough and (self.patience is None or self._waited < self.patience)

    def to_tree(self) -> dict[str, Any]:
        return {"best": self._best, "newest": self._newest, "waited": self._waited}

    def from_tree(self, tree: dict[str, Any]) -> bool | None:
        self._best, self._newest, self._waited = tree["best"], tree["newest"], tree["waited"]
        return self._go_on()


def _check_number(name: str, value: Any, kind: Any, what: str) -> None:
    left_out = value is None and name != "min_delta"
    if left_out or (isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)):
        return
    raise ConfigError(f"callbacks: EarlyStopping: a {name} of {value!r} is no {what} number")


class Watchers:
    """All who watch a run, as the one `on_arrival` that engines know."""

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        on_arrival: OwnOnArrival | None = None,
        display: OnArrival | None = None,
    ) -> None:
        self._callbacks, self._on_arrival, self._display = tuple(callbacks), on_arrival, display
        self._taken_up: set[int] = set()  # places of those that had a checkpoint's memory
        self.stopped = ""  # what ended the run: the class of a callback, or on_arrival

    def __call__(self, arrival: Arrival, seconds: float, theta: Vector) -> None:
        if self._display is not None:
            self._display(arrival, seconds, theta)
        if self._on_arrival is not None:
            self._heed("on_arrival", self._on_arrival(arrival, seconds, theta.copy()))
        if self._callbacks:
            event = Arrived(arrival, seconds, theta)
            for callback in self._callbacks:
                self._heed(type(callback).__name__, callback.on_arrival(event))
            event.over()

    def rejected(self, rejected: Rejected) -> None:
        for listener in (self._display, self._on_arrival):
            if isinstance(listener, HearsRefusals):
                listener.rejected(rejected)

    def started(self, event: Started) -> None:
        for place, callback in self._numbered():
            if place not in self._taken_up:
                callback.forget()
            callback.on_start(event)

    def ended(self, result: Result | None) -> None:
        for callback in self._callbacks:
            callback.on_end(result)

    def evaluated(self, event: Evaluated) -> None:
        for callback in self._callbacks:
            own = replace(event, theta=event.theta.copy())  # the run's may be its best
            self._heed(type(callback).__name__, callback.on_evaluation(own))

    def _heed(self, name: str, answer: bool | None) -> None:
        if isinstance(answer, (bool, np.bool)) and not answer:  # a comparison of numpy's numbers is False as well
            self.stopped = self.stopped or name

    def to_tree(self) -> dict[str, Any]:
        return {f"{place} {type(callback).__name__}": callback.to_tree() for place, callback in self._numbered()}

    def from_tree(self, tree: dict[str, Any]) -> None:
        """Callbacks that the run did not have before start from nothing."""
        for place, callback in self._numbered():
            if (kept := tree.get(f"{place} {type(callback).__name__}")) is not None:
                self._taken_up.add(place)
                self._heed(type(callback).__name__, callback.from_tree(kept))

    def _numbered(self) -> enumerate[Callback]:
        return enumerate(self._callbacks)


def watchers(
    config: Config,
    callbacks: Callback | Sequence[Callback] | None,
    on_arrival: OwnOnArrival | None,
    display: OnArrival | None = None,
) -> OnArrival | None:
    """What a run is given as its `on_arrival`: one thing for all of them, or nothing."""
    several = _several(callbacks)
    if on_arrival is not None and not callable(on_arrival):
        raise ConfigError(f"on_arrival: a {type(on_arrival).__name__} is no function; objects go to callbacks")
    if not several and on_arrival is None:
        return display
    if not config.record.evaluate_every and any(isinstance(callback, EarlyStopping) for callback in several):
        raise ConfigError("callbacks: EarlyStopping looks at theta's evaluations; set evaluate_every too")
    return Watchers(several, on_arrival, display)


def _several(callbacks: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    if callbacks is None:
        return ()
    one = isinstance(callbacks, (Callback, type))
    given: tuple[Any, ...] = tuple(callbacks) if isinstance(callbacks, Iterable) and not one else (callbacks,)
    for callback in given:
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks: {callback!r} is no object of a class made from afedpg.Callback")
    return given
