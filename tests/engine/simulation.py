"""The virtual engine with agents that cost next to nothing, for laws about time alone."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np

from afedpg.engine.crew import Alone
from afedpg.engine.federation import Federation
from afedpg.engine.timing import Timing, with_clock
from afedpg.engine.virtual import VirtualEngine
from afedpg.errors import AfedpgError
from afedpg.messages import Arrival, Exchange, Report, Stats
from afedpg.server import rules
from afedpg.server.schedules import Constant
from afedpg.server.state import initial_state


@dataclass(frozen=True)
class Idle:
    """Every report says the same."""

    parameters: int = 1
    cost: float = 1.0
    steps: int = 1
    exchange: Exchange = Exchange()

    def start(self, agent_id):
        return {}

    def prepare(self, state, agent_id):
        return state

    def work(self, state, task):
        return state, Report(task.task_id, task.agent_id, np.ones(1, np.float32), task.version, stats=Stats(1))


class Deadly(Idle):
    """Agent 1 takes its worker down, agents 2 and 3 fail in two ways."""

    def work(self, state, task):
        if task.agent_id == 1:
            os._exit(3)
        if task.agent_id == 2:
            raise AfedpgError("agent 2: the environment is gone")
        if task.agent_id == 3:
            raise KeyError("lost")
        return super().work(state, task)


@dataclass
class Simulation:
    engine: VirtualEngine
    arrivals: list[Arrival] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def server(self):
        return self.engine.federation.server

    @property
    def applied_delays(self):
        return [arrival.delay for arrival in self.arrivals]

    @property
    def in_flight_delays(self):
        return [self.server.iteration - task.version for task in self.engine.tasks.values()]


def simulate(timing, agents, gradients, method="afedpg", workload=Idle()):
    """`timing` is a Timing or a function (agent, n) -> seconds."""
    timing = timing if isinstance(timing, Timing) else Timing(with_clock(timing))
    rule = replace(rules.RECIPES[method](Constant(0.1), Constant(0.1)), exchange=workload.exchange)
    federation = Federation(rule, initial_state(rule, np.zeros(1)))
    engine = VirtualEngine(federation, workload, Alone(workload), timing, agents)
    run = Simulation(engine)

    def note(arrival, seconds, theta):
        run.arrivals.append(arrival)
        run.seconds.append(seconds)

    federation.on_arrival = note
    engine.start()
    engine.run(lambda: federation.server.gradients >= gradients)
    return run
