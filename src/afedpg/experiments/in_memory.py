"""A run in virtual time that leaves nothing on the disk, in this process alone."""

from __future__ import annotations

from collections.abc import Callable

from afedpg.engine.crew import Alone
from afedpg.engine.federation import Federation
from afedpg.engine.process import Interruption
from afedpg.engine.timing import make_timing
from afedpg.engine.virtual import VirtualEngine
from afedpg.experiments.jobs import Settings
from afedpg.messages import Workload


def run_in_memory(
    settings: Settings, workload: Workload, federation: Federation, finished: Callable[[VirtualEngine], bool]
) -> VirtualEngine:
    """Until `finished`, which is asked before each event."""
    timing = make_timing(settings.config, settings.own().timing)
    engine = VirtualEngine(federation, workload, Alone(workload), timing, settings.config.agents)
    with Interruption().watched() as interruption:

        def ended() -> bool:
            interruption.check()
            return finished(engine)

        engine.start()
        engine.run(ended)
    return engine
