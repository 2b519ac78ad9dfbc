"""The fold with its journal and its record: what every engine does with an event, in one place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from afedpg.messages import Arrival, Event, Outcome, Rejected, Vector
from afedpg.record.recorder import Recorder
from afedpg.server.admission import Limits, admit
from afedpg.server.fold import apply
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState

OnArrival = Callable[[Arrival, float, Vector], None]  # arrival, seconds, theta; the server's own: look or copy
_CAVEATS = {  # what an agent may say of its rollout in Stats.extra
    "restarted": "its episode could not be brought back exactly and was started again",
    "unstable": "the physics became unstable",
}
_log = logging.getLogger("afedpg")


@runtime_checkable
class HearsRefusals(Protocol):
    """An `on_arrival` that has this method, too, is told of the reports that were refused."""

    def rejected(self, rejected: Rejected) -> None: ...


@dataclass
class Federation:
    rule: ServerRule
    server: ServerState
    recorder: Recorder | None = None  # None keeps nothing
    on_arrival: OnArrival | None = None
    limits: Limits = field(default_factory=Limits)
    finished: bool = False  # the run has reached its end
    outcome: Outcome = Outcome([], [])  # of the newest event
    _warned: set[tuple[int, str]] = field(default_factory=set)  # agent, caveat

    def apply(self, event: Event, seconds: float) -> Outcome:
        """Journalled before it is applied, recorded after. Of a refused report the journal keeps the reason alone."""
        observed = self.server.observed
        aside = {name: each.aside for name, each in observed.items()} if observed else {}
        admitted, given = admit(self.rule, self.server, event, self.limits)
        if self.recorder is not None:
            self.recorder.journal.append(admitted, seconds)
        self.server, outcome = apply(self.rule, self.server, admitted, given)
        self.outcome = outcome
        for name, before in aside.items():
            if observed[name].aside is not before:
                _say_who_is_aside(name, before, observed[name].aside)
        if self.recorder is not None:
            self.recorder.record(outcome, self.server.iteration, seconds)
        if outcome.rejected is not None and isinstance(self.on_arrival, HearsRefusals):
            self.on_arrival.rejected(outcome.rejected)
        for arrival in outcome.arrivals:
            if arrival.stats.extra:
                self._warn(arrival)
            if self.on_arrival is not None:
                self.on_arrival(arrival, seconds, self.server.theta)
        return outcome

    @property
    def open_round(self) -> bool:
        """Contributions wait for those of other agents."""
        return self.rule.aggregator.waits and bool(self.server.memory.kept)

    def close(self) -> None:
        if self.recorder is not None:
            self.recorder.close(self.finished)

    def _warn(self, arrival: Arrival) -> None:
        """Once per agent and caveat: a run of days must not fill the screen."""
        for kind, text in _CAVEATS.items():
            if arrival.stats.extra.get(kind) and (arrival.agent, kind) not in self._warned:
                self._warned.add((arrival.agent, kind))
                _log.warning("agent %d: %s", arrival.agent, text)


def _say_who_is_aside(name: str, before: frozenset[int], now: frozenset[int]) -> None:
    for agent_id in sorted(now - before):
        _log.warning("agent %d: its %s are far from the others'; they are not used for scaling", agent_id, name)
    for agent_id in sorted(before - now):
        _log.info("agent %d: its %s are used for scaling again", agent_id, name)
