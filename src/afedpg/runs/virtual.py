"""A run in virtual time from its start, or from its checkpoint, to its result."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from afedpg.agent.attacks.omniscient import Adversary
from afedpg.config import Config
from afedpg.engine.cost import check_memory
from afedpg.engine.crew import Alone, Crew, Pool
from afedpg.engine.federation import Federation
from afedpg.engine.process import Interruption
from afedpg.engine.timing import Timing, make_timing
from afedpg.engine.virtual import VirtualEngine
from afedpg.engine.workloads import BuildWorkload
from afedpg.errors import ConfigError
from afedpg.messages import Float32, Vector, Workload
from afedpg.record import checkpoint
from afedpg.record.loss import check_rows, check_start, never_written
from afedpg.record.recorder import Position, Recorder
from afedpg.runs.beginning import note_beginning
from afedpg.runs.parts import Own, parts_of, start_state
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.result import Result
from afedpg.runs.session import Session
from afedpg.runs.stored import newest
from afedpg.seeding import freeze, stream
from afedpg.server.admission import Limits
from afedpg.server.defences import centre_and_radius


def run_virtual(new: NewRun, workers: int, until: int | None) -> Result:
    config, own = new.config, new.own
    workload, rule = parts_of(config, own, workers)
    cost = check_memory(config, workload, rule, workers)
    timing = make_timing(config, own.timing)
    server = start_state(config, rule, workload)
    federation = Federation(rule, server, None, new.on_arrival, Limits.of(config))
    with Interruption().watched() as interruption, closing(federation):
        if new.out is not None:  # last: a run that cannot start leaves no folder behind
            federation.recorder = Recorder.new(new.out, config, numbered=new.numbered)
            note_beginning(config, federation.recorder, server.theta)
        new.announce(cost)
        return _session(config, own, workload, federation, workers, None, until, timing, interruption)


def resume_virtual(stored: StoredRun, workers: int) -> Result:
    config, own, folder, warn = stored.config, stored.own, stored.folder, stored.warn
    workload, rule = parts_of(config, own, workers)
    cost = check_memory(config, workload, rule, workers)
    timing = make_timing(config, own.timing)
    with Interruption().watched() as interruption, folder.lock() as lock:  # before reading what others may write
        if checkpoint.names(folder.checkpoints):
            _, tree, server = newest(folder, rule, workload, warn)
            never = never_written(tree, server.gradients, config.reports)
            given_up = check_rows(folder, server.gradients, never, stored.accept_loss, warn)
            position = Position(server.gradients, server.samples, tree["sequence"], given_up=given_up)
        else:  # stopped before its first checkpoint: nothing is lost by starting over
            check_start(folder, stored.accept_loss, warn)
            tree, server, position = None, start_state(config, rule, workload, folder), None
        recorder = Recorder(folder, config, position, lock)
        with closing(Federation(rule, server, recorder, stored.on_arrival, Limits.of(config))) as federation:
            stored.announce(replace(cost, done=server.gradients))
            return _session(config, own, workload, federation, workers, tree, None, timing, interruption)


def _session(
    config: Config,
    own: Own,
    workload: Workload,
    federation: Federation,
    workers: int,
    tree: dict[str, Any] | None,
    until: int | None,
    timing: Timing,
    interruption: Interruption,
) -> Result:
    build = own.workload(config, federation.rule)
    with closing(_crew(build, workload, workers, interruption)) as crew:
        engine = VirtualEngine(federation, workload, crew, timing, config.agents, _adversary(config, federation))
        gradients = config.gradients if until is None else until
        return Session(config, workload, federation, engine, interruption, gradients).run(tree)


def _adversary(config: Config, federation: Federation) -> Adversary | None:
    """The liars that know everything, where the attack is of that kind."""
    if not config.attackers:
        return None
    from afedpg.agent.attacks.shipped import Omniscient, attack_of

    attack = attack_of(config.attack)
    if not isinstance(attack, Omniscient):
        return None
    if not isinstance(federation.rule.exchange.codec, Float32):
        raise ConfigError(f"attack: {config.attack} sends numbers as they are; use --codec float32")

    def defence() -> tuple[Vector, float] | None:
        return centre_and_radius(federation.server.memory)

    return Adversary(attack, frozenset(config.attackers), freeze(stream(config.seed, "attack")), defence)


def _crew(build: BuildWorkload, workload: Workload, workers: int, interruption: Interruption) -> Crew:
    if workers <= 1:
        return Alone(workload)
    return Pool(build, min(workers, build.config.agents), interruption.check)
