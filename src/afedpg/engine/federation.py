"""The fold with its journal and its record: what every engine does with an event, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from afedpg.messages import Arrival, Event, Task, Vector
from afedpg.record.recorder import Recorder
from afedpg.server.fold import Limits, step
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState

OnArrival = Callable[[Arrival, float, Vector], None]  # arrival, seconds, theta; the server's own: look or copy


@dataclass
class Federation:
    rule: ServerRule
    server: ServerState
    recorder: Recorder | None = None  # None keeps nothing
    on_arrival: OnArrival | None = None
    limits: Limits = field(default_factory=Limits)

    def apply(self, event: Event, seconds: float) -> list[Task]:
        """Journalled before it is applied, recorded after."""
        if self.recorder is not None:
            self.recorder.journal.append(event, seconds)
        self.server, tasks = step(self.rule, self.server, event, self.limits)
        if self.recorder is not None:
            self.recorder.record(self.server.arrivals, self.server.rejected, self.server.iteration, seconds)
        if self.on_arrival is not None:
            for arrival in self.server.arrivals:
                self.on_arrival(arrival, seconds, self.server.theta)
        return tasks
