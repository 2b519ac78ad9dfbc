"""One training run from its configuration to its result, whichever the engine: `train` and `resume`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from afedpg import config as configuration
from afedpg.config import Config
from afedpg.engine import spawn
from afedpg.engine.crew import Alone, Crew, Pool
from afedpg.engine.federation import Federation, OnArrival
from afedpg.engine.own_schedules import Checked
from afedpg.engine.process import Interruption, one_thread
from afedpg.engine.timing import Seconds, Timing, make_timing
from afedpg.engine.virtual import VirtualEngine
from afedpg.engine.workloads import BuildWorkload, MakeEnv, MakePolicy
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.journal import SEGMENT_BYTES
from afedpg.record.loss import check_rows, check_start, never_written
from afedpg.record.recorder import Position, Recorder
from afedpg.record.trust import check_trust
from afedpg.runs.identity import identity
from afedpg.runs.session import Result, Session
from afedpg.runs.stored import newest
from afedpg.server.admission import Limits
from afedpg.server.rules import Recipe, ServerRule, make_rule
from afedpg.server.schedules import Schedule
from afedpg.server.state import ServerState, begin_with, from_tree, initial_state
from afedpg.validation import check_heeded, validate

WORTH_A_WORKER = 50_000  # environment steps; a worker needs about as long to start as one core for these
WORKER_BYTES = 400 * 2**20  # what a worker process with torch and an environment weighs

_log = logging.getLogger("afedpg")


@dataclass(frozen=True)
class Own:
    """Parts of a run that a user brings as Python functions instead of naming them."""

    method: Recipe | None = None
    alpha: Schedule | None = None
    eta: Schedule | None = None
    timing: Seconds | None = None
    make_env: MakeEnv | None = None
    make_policy: MakePolicy | None = None

    def workload(self, config: Config) -> BuildWorkload:
        return BuildWorkload(config, self.make_env, self.make_policy)

    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}: {identity(part).text}" for name, part in self.parts().items())

    def parts(self) -> dict[str, Any]:
        return {name: part for name in self.__dataclass_fields__ if (part := getattr(self, name)) is not None}


def check_own(config: Config, own: Own, kinds: tuple[str, ...] = tuple(Own.__dataclass_fields__)) -> None:
    """A run is continued, replayed and evaluated with the functions it was made with; their names and the values they
    carry must agree.
    """
    made = {entry.partition(":")[0]: entry for entry in config.own if entry.partition(":")[0] in kinds}
    parts = {name: part for name, part in own.parts().items() if name in kinds}
    given = {name: f"{name}: {identity(part).text}" for name, part in parts.items()}
    for name, part in parts.items():  # runs of earlier versions have the bare name
        if made.get(name) == f"{name}: {getattr(part, '__name__', type(part).__name__)}":
            given[name] = made[name]
        elif not identity(part).certain:
            text = "own: %s holds values that have no text: make sure that they are those the run was made with"
            _log.warning(text, name)
    if made != given:
        texts = (", ".join(entries.values()) or "none" for entries in (made, given))
        raise ConfigError(
            "own: this run was made with own parts: {}; given were: {}; use Python and Own(...)".format(*texts)
        )


@dataclass(frozen=True)
class Cost:
    """What a run will take, known before it starts."""

    gradients: int
    parameters: int
    memory: int  # bytes, of this process and the workers it starts
    disk: int  # bytes, at most
    done: int = 0  # gradients of an earlier session


def train(
    task: str,
    *,
    method: str | Recipe | None = None,
    alpha: float | Schedule | None = None,
    eta: float | Schedule | None = None,
    timing: str | Seconds | None = None,
    make_env: MakeEnv | None = None,
    make_policy: MakePolicy | None = None,
    on_arrival: OnArrival | None = None,
    preset: str | Path | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    **settings: Any,
) -> Result:
    """Trains one policy and returns it; with `out`, also writes a run folder that can be resumed.

    `method`, `alpha`, `eta` and `timing` take a name or number, or a function of your own: a recipe (alpha, eta) ->
    ServerRule, schedules (iteration, version) -> float, a timing model (agent, n) -> seconds. `make_env(agent)` and
    `make_policy(observation space, action space)` bring an environment and a torch module of your own. Every other
    setting of `afedpg train --help` is a keyword. `on_arrival(arrival, seconds, theta)` is called after each applied
    gradient. `workers` processes compute, without an influence on the result; by default one per core where that pays,
    and 1 where they would have to run your script again to have your functions.

        train("quadratic", agents=4, iterations=500, eta=lambda k, v: 0.5 / (k + 1))
    """
    spawn.reached()
    own = Own(
        method if callable(method) else None,
        alpha if callable(alpha) else None,
        eta if callable(eta) else None,
        timing if callable(timing) else None,
        make_env,
        make_policy,
    )
    named = {"method": method, "alpha": alpha, "eta": eta, "timing": timing}
    named = {name: value for name, value in named.items() if value is not None and not callable(value)}
    config = configure(task, preset, {**named, **settings}, own)
    return run(config, own, None if out is None else Path(out), workers, on_arrival)


def configure(task: str, preset: str | Path | None, settings: Mapping[str, Any], own: Own = Own()) -> Config:
    """Defaults, under the preset, under the settings given; validated, and nothing among them that would be ignored."""
    base = configuration.load_preset(task, preset) if preset else {}
    settings = configuration.with_whole_paths({**base, **settings, "task": task, "own": own.names()})
    return check_heeded(validate(configuration.from_settings(settings)))


def run(
    config: Config,
    own: Own = Own(),
    out: Path | None = None,
    workers: int | None = None,
    on_arrival: OnArrival | None = None,
    announce: Callable[[Cost], None] = lambda cost: None,
    until: int | None = None,
) -> Result:
    """A new run of a validated configuration; `until` ends it after so many gradients, as `replay` does."""
    spawn.reached()
    workers = _check_workers(config, own, workers)
    if config.engine == "ray":
        from afedpg.runs.ray import run_ray

        return run_ray(config, own, out, on_arrival, announce)
    if config.engine != "virtual":
        from afedpg.runs.local import run_local  # brings gRPC, which virtual time does not need

        return run_local(config, own, out, on_arrival, announce)
    workload, rule = parts_of(config, own, workers)
    cost = check_memory(config, workload, rule, workers)
    timing = make_timing(config, own.timing)
    server = start_state(config, rule, workload)
    federation = Federation(rule, server, None, on_arrival, Limits.of(config))
    with Interruption().watched() as interruption, closing(federation):
        if out is not None:  # last: a run that cannot start leaves no folder behind
            federation.recorder = Recorder(folders.create(out, config), config)
        announce(cost)
        return _session(config, own, workload, federation, workers, None, until, timing, interruption)


def resume(
    path: str | Path,
    own: Own = Own(),
    workers: int | None = None,
    on_arrival: OnArrival | None = None,
    warn: Callable[[str], None] = lambda text: None,
    announce: Callable[[Cost], None] = lambda cost: None,
    cluster: Mapping[str, Any] = MappingProxyType({}),
    accept_loss: bool = False,
    trust_code: bool = False,
) -> Result:
    """Goes on where the newest whole checkpoint stands; the result is that of a run that was never interrupted.

    `cluster`: ray_address, agent_cpus and agent_gpus for a run of the ray engine that goes on elsewhere. `accept_loss`:
    go on though files of the run folder are gone or cut off, without what they held. `trust_code`: import the module of
    its task MODULE:ID, though you have not run it before.
    """
    spawn.reached()
    folder = folders.open_run(Path(path))
    config = folder.config()
    if cluster and config.engine != "ray":
        raise ConfigError(
            f"{next(iter(cluster))}: only used with --engine ray; this is a run of --engine {config.engine}"
        )
    check_own(config, own)
    check_trust(config, trust_code)
    workers = _check_workers(config, own, workers)
    if config.engine in ("local", "grpc"):
        from afedpg.runs.local import resume_live

        return resume_live(folder, own, on_arrival, warn, announce, accept_loss)
    warn_of_versions(folder, warn)
    if config.engine == "ray":
        from afedpg.runs.ray import resume_ray

        config = validate(configuration.from_settings(cluster, config))
        return resume_ray(folder, config, own, on_arrival, warn, announce, accept_loss)
    workload, rule = parts_of(config, own, workers)
    cost = check_memory(config, workload, rule, workers)
    timing = make_timing(config, own.timing)
    with Interruption().watched() as interruption, folder.lock() as lock:  # before reading what others may write
        if checkpoint.names(folder.checkpoints):
            _, tree, server = newest(folder, rule, workload, warn)
            never = never_written(tree, server.gradients, config.reports)
            given_up = check_rows(folder, server.gradients, never, accept_loss, warn)
            position = Position(server.gradients, server.samples, tree["sequence"], given_up=given_up)
        else:  # stopped before its first checkpoint: nothing is lost by starting over
            check_start(folder, accept_loss, warn)
            tree, server, position = None, start_state(config, rule, workload), None
        recorder = Recorder(folder, config, position, lock)
        with closing(Federation(rule, server, recorder, on_arrival, Limits.of(config))) as federation:
            announce(replace(cost, done=server.gradients))
            return _session(config, own, workload, federation, workers, tree, None, timing, interruption)


def warn_of_versions(folder: folders.RunFolder, warn: Callable[[str], None]) -> None:
    for change in folder.changed_versions():
        warn(f"{change}: the bits may differ from an uninterrupted run")


def prepare(config: Config, own: Own) -> tuple[Workload, ServerRule, ServerState]:
    """What a run begins with, whichever engine it is for."""
    workload, rule = parts_of(config, own)
    return workload, rule, start_state(config, rule, workload)


def parts_of(config: Config, own: Own, workers: int = 1) -> tuple[Workload, ServerRule]:
    one_thread()
    build = own.workload(config)
    if workers > 1:
        build.check_portable()
    alpha, eta = own.alpha and Checked("alpha", own.alpha), own.eta and Checked("eta", own.eta)
    rule = make_rule(config, own.method, alpha, eta)
    if rule.synchronous and config.timing.silent:
        raise ConfigError(
            "silent: fedpg waits for every agent and would wait for ever; use afedpg, or no silent agents"
            if own.method is None
            else "silent: this rule waits for every agent and would wait for ever; use no silent agents"
        )
    workload = build()
    workload.check()
    return workload, rule


def start_state(config: Config, rule: ServerRule, workload: Workload) -> ServerState:
    if not config.from_run:
        return initial_state(rule, workload.initial_theta())
    source = folders.open_run(Path(config.from_run))
    _, tree = checkpoint.load_latest(source.checkpoints)
    before = from_tree(tree["server"])
    if before.theta.size != workload.parameters:
        sizes = f"{before.theta.size} parameters, this task's policy has {workload.parameters}"
        raise ConfigError(f"from_run: the policy of {config.from_run} has {sizes}")
    server = initial_state(rule, before.theta)
    begin_with(server, before.statistics)
    return server


def check_memory(config: Config, workload: Workload, rule: ServerRule, workers: int, store: int = 0) -> Cost:
    """N x parameters and N agent states must fit; refused here, not halfway through the run. `store`: bytes set aside
    for what processes share.
    """
    vector = workload.parameters
    server = 4 * 8 * vector + (4 * vector * config.agents if rule.synchronous else 0)
    memory = config.agents * (4 * vector + 1024) + server + store + (WORKER_BYTES * workers if workers > 1 else 0)
    _refuse_beyond_memory(config, vector, memory)  # before even one agent is made, to see how much it remembers
    state = sum(array.nbytes for array in workload.start(0).values())
    memory += config.agents * state
    _refuse_beyond_memory(config, vector, memory)
    stored = config.record.keep_checkpoints * (config.agents * (4 * vector + state) + 4 * 8 * vector)
    journal = max(SEGMENT_BYTES, 4 * vector * config.gradients)  # written in whole segments
    if not config.record.keep_reports:
        journal = min(journal, round((config.record.keep_checkpoints + 1) * config.record.journal_mib * 2**20))
    memory += _resident()
    return Cost(config.gradients, vector, memory, stored + journal + 200 * config.gradients)


def _resident() -> int:
    """Bytes that Python, numpy and, for environments, torch take already."""
    return int(psutil.Process().memory_info().rss)


def _refuse_beyond_memory(config: Config, parameters: int, memory: int) -> None:
    free = psutil.virtual_memory().available
    if memory > free:
        raise ConfigError(
            f"agents: {config.agents} agents x {parameters} parameters need about {memory / 2**30:.1f} GiB of memory, "
            f"{free / 2**30:.1f} GiB are free; use fewer agents or a smaller network"
        )


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
    with closing(_crew(config, own, workload, workers, interruption)) as crew:
        engine = VirtualEngine(federation, workload, crew, timing, config.agents)
        gradients = config.gradients if until is None else until
        return Session(config, workload, federation, engine, interruption, gradients).run(tree)


def _crew(config: Config, own: Own, workload: Workload, workers: int, interruption: Interruption) -> Crew:
    if workers <= 1:
        return Alone(workload)
    return Pool(own.workload(config), min(workers, config.agents), interruption.check)


def _check_workers(config: Config, own: Own, workers: int | None) -> int:
    if workers is None:
        return default_workers(config, own)
    if workers < 1:
        raise ConfigError(f"workers: {workers}; at least 1 is needed")
    if workers != 1 and config.engine != "virtual":
        raise ConfigError("workers: only used with --engine virtual; elsewhere every agent is a process of its own")
    return workers


def default_workers(config: Config, own: Own = Own()) -> int:
    """One per core where the work is worth the start of a process; a synthetic gradient or a short run is not."""
    short = config.iterations * config.agents * config.agent.steps < WORTH_A_WORKER
    if config.engine != "virtual" or config.synthetic or short or not own.workload(config).travels_alone():
        return 1
    return min(os.cpu_count() or 1, config.agents)
