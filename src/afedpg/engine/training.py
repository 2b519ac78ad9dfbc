"""One training run from its configuration to its result, in virtual time: `train` and `resume`."""

from __future__ import annotations

import math
import os
import pickle
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import psutil

from afedpg import config as configuration
from afedpg.config import Config
from afedpg.engine.crew import Alone, Crew, Pool
from afedpg.engine.federation import Federation, OnArrival
from afedpg.engine.process import Interrupted, Interruption, one_thread
from afedpg.engine.timing import Seconds, Timing, make_timing
from afedpg.engine.virtual import VirtualEngine
from afedpg.engine.workloads import BuildWorkload, MakeEnv
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Arrival, Evaluation, Moments, Vector, Workload
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.record.recorder import Position, Recorder
from afedpg.server.fold import Limits
from afedpg.server.rules import RECIPES, Recipe, ServerRule
from afedpg.server.schedules import Schedule, schedules
from afedpg.server.state import ServerState, from_tree, initial_state, to_tree

RETURN_WINDOW = 5  # gradients per agent over which `stop_at_return` looks at the mean return
WORKER_BYTES = 400 * 2**20  # what a worker process with torch and an environment weighs


@dataclass(frozen=True)
class Own:
    """Parts of a run that a user brings as Python functions instead of naming them."""

    method: Recipe | None = None
    alpha: Schedule | None = None
    eta: Schedule | None = None
    timing: Seconds | None = None
    make_env: MakeEnv | None = None

    def names(self) -> tuple[str, ...]:
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return tuple(
            f"{name}: {getattr(part, '__name__', type(part).__name__)}" for name, part in parts.items() if part
        )


@dataclass(frozen=True)
class Result:
    theta: Vector  # what is delivered
    statistics: Moments | None
    iteration: int
    gradients: int
    samples: int
    seconds: float  # virtual, in the virtual engine
    virtual: bool
    sha256: str  # of theta
    evaluations: tuple[Evaluation, ...]  # of the final theta
    out: Path | None


@dataclass(frozen=True)
class Cost:
    """What a run will take, known before it starts."""

    gradients: int
    parameters: int
    memory: int  # bytes
    disk: int  # bytes, at most


def train(
    task: str,
    *,
    method: str | Recipe | None = None,
    alpha: float | Schedule | None = None,
    eta: float | Schedule | None = None,
    timing: str | Seconds | None = None,
    make_env: MakeEnv | None = None,
    on_arrival: OnArrival | None = None,
    preset: str | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    **settings: Any,
) -> Result:
    """Trains one policy and returns it; with `out`, also writes a run folder that can be resumed.

    `method`, `alpha`, `eta` and `timing` take a name or number, or a function of your own: a recipe (alpha, eta) ->
    ServerRule, schedules (iteration, version) -> float, a timing model (agent, n) -> seconds. Every other setting of
    `afedpg train --help` is a keyword. `on_arrival(arrival, seconds, theta)` is called after each applied gradient.

        train("quadratic", agents=4, iterations=500, eta=lambda k, v: 0.5 / (k + 1))
    """
    own = Own(
        method if callable(method) else None,
        alpha if callable(alpha) else None,
        eta if callable(eta) else None,
        timing if callable(timing) else None,
        make_env,
    )
    named = {"method": method, "alpha": alpha, "eta": eta, "timing": timing}
    named = {name: value for name, value in named.items() if value is not None and not callable(value)}
    config = configure(task, preset, {**named, **settings}, own)
    return run(config, own, None if out is None else Path(out), workers, on_arrival)


def configure(task: str, preset: str | None, settings: Mapping[str, Any], own: Own = Own()) -> Config:
    """Defaults, under the preset, under the settings given; validated."""
    base = configuration.load_preset(task, preset) if preset else {}
    return configuration.validate(configuration.from_settings({**base, **settings, "task": task, "own": own.names()}))


def run(
    config: Config,
    own: Own = Own(),
    out: Path | None = None,
    workers: int = 1,
    on_arrival: OnArrival | None = None,
    announce: Callable[[Cost], None] = lambda cost: None,
    until: int | None = None,
) -> Result:
    """A new run of a validated configuration; `until` ends it after so many gradients, as `replay` does."""
    if config.engine != "virtual":
        from afedpg.engine.local import run_local  # brings gRPC, which virtual time does not need

        return run_local(config, own, out, on_arrival, announce)
    workload, rule = _parts(config, own)
    cost = check_memory(config, workload, workers)
    timing = make_timing(config, own.timing)
    server = _start_state(config, rule, workload)
    recorder = None
    if out is not None:
        recorder = Recorder(
            folders.create(out, config), config.record, config.gradients // config.reports, config.reports
        )
    announce(cost)
    federation = Federation(rule, server, recorder, on_arrival, Limits.of(config))
    return _session(config, own, workload, federation, workers, None, until, timing)


def resume(
    path: str | Path,
    own: Own = Own(),
    workers: int = 1,
    on_arrival: OnArrival | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> Result:
    """Goes on where the newest whole checkpoint stands; the result is that of a run that was never interrupted."""
    folder = folders.open_run(Path(path))
    config = folder.config()
    if own.names() != config.own:
        given, needed = ", ".join(own.names()) or "none", ", ".join(config.own) or "none"
        raise ConfigError(
            f"own: this run was made with own parts: {needed}; given were: {given}; resume it from Python"
        )
    for change in folder.changed_versions():
        warn(f"{change}: the bits may differ from an uninterrupted run")
    if config.engine != "virtual":
        from afedpg.engine.local import resume_live

        return resume_live(folder, own, on_arrival, warn)
    workload, rule = _parts(config, own)
    check_memory(config, workload, workers)
    timing = make_timing(config, own.timing)
    if checkpoint.names(folder.checkpoints):
        _, tree = checkpoint.load_latest(folder.checkpoints, warn)
        server = from_tree(tree["server"])
        position = Position(server.gradients, server.samples, tree["sequence"], tree["pending"])
    else:  # stopped before its first checkpoint: nothing is lost by starting over
        tree, server, position = None, _start_state(config, rule, workload), None
    recorder = Recorder(folder, config.record, config.gradients // config.reports, config.reports, position)
    federation = Federation(rule, server, recorder, on_arrival, Limits.of(config))
    return _session(config, own, workload, federation, workers, tree, None, timing)


def start_of(config: Config, own: Own) -> tuple[ServerRule, ServerState]:
    """The rule and the state a run begins with."""
    _, rule, server = prepare(config, own)
    return rule, server


def prepare(config: Config, own: Own) -> tuple[Workload, ServerRule, ServerState]:
    """What a run begins with, whichever engine it is for."""
    workload, rule = _parts(config, own)
    return workload, rule, _start_state(config, rule, workload)


def _parts(config: Config, own: Own) -> tuple[Workload, ServerRule]:
    one_thread()
    alpha, eta = schedules(config)
    recipe = own.method or RECIPES[config.method]
    return BuildWorkload(config, own.make_env)(), recipe(own.alpha or alpha, own.eta or eta)


def _start_state(config: Config, rule: ServerRule, workload: Workload) -> ServerState:
    if not config.from_run:
        return initial_state(rule, workload.initial_theta())
    source = folders.open_run(Path(config.from_run))
    _, tree = checkpoint.load_latest(source.checkpoints)
    before = from_tree(tree["server"])
    if before.theta.size != workload.parameters:
        sizes = f"{before.theta.size} parameters, this task's policy has {workload.parameters}"
        raise ConfigError(f"from_run: the policy of {config.from_run} has {sizes}")
    server = initial_state(rule, before.theta)
    server.statistics = before.statistics
    return server


def check_memory(config: Config, workload: Workload, workers: int) -> Cost:
    """N x parameters and N agent states must fit; refused here, not halfway through the run."""
    vector = workload.parameters
    server = 4 * 8 * vector + (4 * vector * config.agents if config.method == "fedpg" else 0)
    memory = config.agents * (4 * vector + 1024) + server + (WORKER_BYTES * workers if workers > 1 else 0)
    _refuse_beyond_memory(config, vector, memory)  # before even one agent is made, to see how much it remembers
    state = sum(array.nbytes for array in workload.start(0).values())
    memory += config.agents * state
    _refuse_beyond_memory(config, vector, memory)
    stored = config.record.keep_checkpoints * (config.agents * (4 * vector + state) + 4 * 8 * vector)
    journal = 4 * vector * config.gradients
    if not config.record.keep_reports:
        journal = min(journal, round((config.record.keep_checkpoints + 1) * config.record.journal_mib * 2**20))
    return Cost(config.gradients, vector, memory, stored + journal + 200 * config.gradients // config.reports)


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
) -> Result:
    interruption = Interruption()
    with interruption.watched():
        crew = _crew(config, own, workload, workers, interruption)
        try:
            engine = VirtualEngine(federation, workload, crew, timing, config.agents)
            gradients = config.gradients if until is None else until
            session = Session(config, workload, federation, engine, interruption, gradients)
            return session.run(tree)
        finally:
            crew.close()


def _crew(config: Config, own: Own, workload: Workload, workers: int, interruption: Interruption) -> Crew:
    if workers <= 1:
        return Alone(workload)
    build = BuildWorkload(config, own.make_env)
    try:
        pickle.dumps(build)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            "make_env: worker processes import it by name, so it must be a function at the top level of a module; "
            "move it there or use workers=1"
        ) from error
    return Pool(build, min(workers, config.agents), interruption.check)


def default_workers(config: Config) -> int:
    """One per core where the work is worth a message; a synthetic gradient is not."""
    return 1 if config.synthetic else min(os.cpu_count() or 1, config.agents)


class Engine(Protocol):
    """What decides when agents and server meet."""

    @property
    def seconds(self) -> float: ...

    @property
    def consistent(self) -> bool:
        """Between events: only then may the run be stored."""

    def start(self) -> None: ...

    def run(self, finished: Callable[[], bool]) -> None: ...

    def to_tree(self) -> dict[str, Any]: ...

    def from_tree(self, tree: dict[str, Any]) -> None: ...


@dataclass
class Session:
    """The engine at work, with what happens between its events: checkpoints, evaluations, the end."""

    config: Config
    workload: Workload
    federation: Federation
    engine: Engine
    interruption: Interruption
    gradients: int  # where it ends
    evaluations: tuple[Evaluation, ...] = ()
    evaluated: int = 0  # gradients at the last evaluation
    recent: deque[float] = field(default_factory=deque)  # mean returns of the newest gradients
    noted: int = 0  # gradients whose returns are in `recent`

    def run(self, tree: dict[str, Any] | None) -> Result:
        recorder = self.federation.recorder
        self.recent = deque(maxlen=RETURN_WINDOW * self.config.agents)
        if tree is None:
            self.engine.start()
            self._checkpoint()
        else:
            self.engine.from_tree(tree["engine"])
            self.evaluated, self.noted = tree["evaluated"], self.federation.server.gradients
            self.recent.extend(tree["recent"])
        finished = False
        try:
            self.engine.run(self._finished)
            if self.federation.server.gradients > self.evaluated or not self.evaluations:
                self._evaluate()
            self._checkpoint()
            finished = True
        except AfedpgError as error:
            if self.engine.consistent:
                self._checkpoint()
            raise self._with_hint(error) from error
        finally:
            if recorder is not None:
                recorder.close(finished)
        return self._result()

    def _finished(self) -> bool:
        """Asked between events."""
        server, recorder = self.federation.server, self.federation.recorder
        self._note_returns(server.arrivals)  # first: what an interruption stores must know of them
        self.interruption.check()
        period = self.config.record.evaluate_every * self.config.agents * self.config.reports
        if period and server.gradients // period > self.evaluated // period:
            self._evaluate()
        if recorder is not None and recorder.checkpoint_due() and not server.waiting:
            self._checkpoint()
        return server.gradients >= self.gradients or self._good_enough()

    def _note_returns(self, arrivals: list[Arrival]) -> None:
        if self.config.stop_at_return is not None and arrivals and arrivals[-1].gradient > self.noted:
            self.noted = arrivals[-1].gradient
            self.recent.extend(a.stats.mean_return for a in arrivals if a.stats.mean_return is not None)

    def _good_enough(self) -> bool:
        goal = self.config.stop_at_return
        return (
            goal is not None
            and len(self.recent) == self.recent.maxlen
            and math.fsum(self.recent) / len(self.recent) >= goal
        )

    def _evaluate(self) -> None:
        server, recorder = self.federation.server, self.federation.recorder
        self.evaluations = tuple(
            self.workload.evaluate(server.theta.astype(np.float32), server.statistics, server.iteration)
        )
        self.evaluated = server.gradients
        if recorder is not None:
            recorder.evaluated(
                self.evaluations, server.iteration, server.gradients, server.samples, self.engine.seconds
            )

    def _checkpoint(self) -> None:
        server, recorder = self.federation.server, self.federation.recorder
        if recorder is None or server.waiting:
            return
        recorder.checkpoint({
            "server": to_tree(server),
            "engine": self.engine.to_tree(),
            "evaluated": self.evaluated,
            "recent": list(self.recent),
        })  # fmt: skip
        recorder.write_policy(*self.workload.export(server.theta.astype(np.float32), server.statistics))

    def _with_hint(self, error: AfedpgError) -> AfedpgError:
        recorder, server = self.federation.recorder, self.federation.server
        if recorder is None or "afedpg resume" in str(error):
            return error
        where = f"{error} after gradient {server.gradients} of {self.config.gradients}"
        text = f"{where}; go on with: afedpg resume {recorder.folder.path}"
        return Interrupted(text) if isinstance(error, Interrupted) else AfedpgError(text)

    def _result(self) -> Result:
        server, recorder = self.federation.server, self.federation.recorder
        return Result(
            theta=server.theta,
            statistics=server.statistics,
            iteration=server.iteration,
            gradients=server.gradients,
            samples=server.samples,
            seconds=self.engine.seconds,
            virtual=self.config.engine == "virtual",
            sha256=checkpoint.theta_sha256(server.theta),
            evaluations=self.evaluations,
            out=None if recorder is None else recorder.folder.path,
        )
