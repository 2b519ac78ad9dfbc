"""Who watches a run while it goes on, and may end it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg.config import Config
from afedpg.engine.federation import HearsRefusals, OnArrival
from afedpg.errors import ConfigError
from afedpg.messages import Arrival, Rejected, Vector
from afedpg.runs.best import Evaluated

if TYPE_CHECKING:
    from afedpg.runs.result import Result


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
        theta: after its step. It is the server's own array: look at it or copy it.
    """

    arrival: Arrival
    seconds: float
    theta: Vector


class Callback:
    """Is told what happens in a run. `on_arrival` or `on_evaluation` ends it by returning False; the result is kept.

        class Watch(Callback):
            def on_evaluation(self, event):
                print(event.samples, event.mean)

        train("CartPole-v1", evaluate_every=5, callbacks=[Watch()])

    What it remembers belongs into `to_tree`, so that a run that is killed and resumed with the same callbacks ends
    where it would have ended.
    """

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
        if patience is not None and patience < 1:
            raise ConfigError(f"callbacks: EarlyStopping: a patience of {patience}; at least 1 is needed")
        if not min_delta >= 0:
            raise ConfigError(f"callbacks: EarlyStopping: a min_delta of {min_delta}; at least 0 is needed")
        self.patience, self.min_delta, self.threshold = patience, min_delta, threshold
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


class Watchers:
    """All who watch a run, as the one `on_arrival` that engines know."""

    def __init__(self, callbacks: Sequence[Callback] = (), listeners: Sequence[OnArrival] = ()) -> None:
        for callback in callbacks:
            if not isinstance(callback, Callback):
                raise ConfigError(f"callbacks: {callback!r} is no object of a class made from afedpg.Callback")
        self._callbacks, self._listeners = tuple(callbacks), tuple(listeners)
        self.stopped = ""  # the class of the callback that ended the run

    def __call__(self, arrival: Arrival, seconds: float, theta: Vector) -> None:
        for listener in self._listeners:
            listener(arrival, seconds, theta)
        event = Arrived(arrival, seconds, theta)
        for callback in self._callbacks:
            self._heed(callback, callback.on_arrival(event))

    def rejected(self, rejected: Rejected) -> None:
        for listener in self._listeners:
            if isinstance(listener, HearsRefusals):
                listener.rejected(rejected)

    def started(self, event: Started) -> None:
        for callback in self._callbacks:
            callback.on_start(event)

    def ended(self, result: Result | None) -> None:
        for callback in self._callbacks:
            callback.on_end(result)

    def evaluated(self, event: Evaluated) -> None:
        for callback in self._callbacks:
            self._heed(callback, callback.on_evaluation(event))

    def _heed(self, callback: Callback, answer: bool | None) -> None:
        if answer is not None and not answer:
            self.stopped = self.stopped or type(callback).__name__

    def to_tree(self) -> dict[str, Any]:
        return {f"{place} {type(callback).__name__}": callback.to_tree() for place, callback in self._numbered()}

    def from_tree(self, tree: dict[str, Any]) -> None:
        """Callbacks that the run did not have before start from nothing."""
        for place, callback in self._numbered():
            if (kept := tree.get(f"{place} {type(callback).__name__}")) is not None:
                self._heed(callback, callback.from_tree(kept))

    def _numbered(self) -> enumerate[Callback]:
        return enumerate(self._callbacks)


def watchers(
    config: Config, callbacks: Sequence[Callback], on_arrival: OnArrival | None, display: OnArrival | None = None
) -> OnArrival | None:
    """What a run is given as its `on_arrival`: one thing for all of them, or nothing."""
    listeners = [listener for listener in (display, on_arrival) if listener is not None]
    if not callbacks:
        return listeners[0] if len(listeners) == 1 else Watchers((), listeners) if listeners else None
    if not config.record.evaluate_every and any(isinstance(callback, EarlyStopping) for callback in callbacks):
        raise ConfigError("callbacks: EarlyStopping looks at theta's evaluations; set evaluate_every too")
    return Watchers(callbacks, listeners)
