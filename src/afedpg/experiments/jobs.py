"""What has to be computed before a figure can be drawn: training runs in folders, and measurements kept as small CSVs.

A job's name is derived from everything that decides its result, so a job that is done is never done again, and one that
was interrupted is found and finished.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from afedpg import __version__
from afedpg import config as configuration
from afedpg.config import Config, TimingConfig
from afedpg.engine.federation import OnArrival
from afedpg.errors import AfedpgError
from afedpg.experiments.choices import Choices, Method, OwnPart
from afedpg.experiments.own import own_of
from afedpg.experiments.tables import Table, read
from afedpg.messages import Arrival, Vector
from afedpg.preset import base_of, fitted, load_preset, preset_of, presets
from afedpg.record import checkpoint, database
from afedpg.record.folder import RunFolder
from afedpg.runs.parts import Own
from afedpg.runs.train import resume, run
from afedpg.server.schedules import StepPower
from afedpg.validation import check_applicable, validate

Progress = Callable[[float], None]  # how much of a job is done, 0 to 1
GRADIENT_SECONDS = 3e-5  # of a synthetic problem
STEP_SECONDS = 2e-4  # of an environment, its share of the gradient included
START_SECONDS = 5.0  # torch, MuJoCo, compiled loops from their cache


class Job(Protocol):
    """Picklable: it travels to the process that does it."""

    @property
    def name(self) -> str: ...

    @property
    def gradients(self) -> int: ...

    @property
    def cost(self) -> float:
        """Seconds it may take, roughly: for the progress bar, and for doing the longest first."""

    def finished(self, out: Path) -> bool: ...

    def perform(self, out: Path, workers: int, progress: Progress) -> None: ...


class TableJob(ABC):
    """A job that comes to a small table, which stays as OUT/KIND/NAME.csv."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str: ...

    def path(self, out: Path) -> Path:
        return out / self.kind / f"{self.name}.csv"

    def finished(self, out: Path) -> bool:
        return self.path(out).is_file()

    def read(self, out: Path) -> Table:
        return read(self.path(out))


@dataclass(frozen=True)
class Settings:
    """One training, fully described: the configuration and the parts that are the user's own."""

    config: Config
    method: Method
    timing: OwnPart | None = None
    eta_power: float | None = None  # eta0 (k+1)^-power in place of the schedule's own eta

    @property
    def name(self) -> str:
        """Readable first, then a hash of everything: TASK-METHOD-nN-kK-seedS-0a1b2c3d4e."""
        config = self.config
        parts = [
            json.dumps(_chosen(config), sort_keys=True),
            self.method.own.sha256 if self.method.own else "",
            self.timing.sha256 if self.timing else "",
            repr(self.eta_power),
        ]
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
        words = f"{config.task}-{self.method.word}-n{config.agents}-k{config.iterations}-seed{config.seed}"
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{words}-{digest}")

    @property
    def clock(self) -> str:
        """Agents' seconds per gradient, in words."""
        return self.timing.label if self.timing else _describe(self.config.timing)

    def seconds(self, gradients: int) -> float:
        """That so many gradients take in memory, roughly."""
        each = GRADIENT_SECONDS if self.config.synthetic else STEP_SECONDS * self.config.report_steps
        return gradients * each

    def own(self) -> Own:
        eta = None if self.eta_power is None else StepPower(self.config.schedule.eta, self.eta_power)
        return own_of(self.method.own, self.timing, eta)


def _describe(timing: TimingConfig) -> str:
    spread = f", t_max / t_min = {timing.spread:g}"
    told = {
        "linear": spread, "straggler": spread, "leader": spread, "lognormal": f", sigma = {timing.sigma:g}",
        "pareto": f", shape = {timing.shape:g}",
    }  # fmt: skip
    if timing.timing == "list":
        return ", ".join(f"{seconds:g}" for seconds in timing.speeds)
    return timing.timing + told.get(timing.timing, "")


def _chosen(config: Config) -> dict[str, Any]:
    """What differs from the defaults of this version: a setting that is new in the next one changes no name."""
    usual = Config().to_dict()
    flat: dict[str, Any] = {"version": __version__}
    for name, value in config.to_dict().items():
        if isinstance(value, dict) and name in configuration.SECTIONS:
            flat |= {inner: v for inner, v in value.items() if v != usual[name].get(inner)}
        elif value != usual.get(name):
            flat[name] = value
    return flat


@dataclass(frozen=True)
class RunJob:
    """A training run in a folder of its own under OUT/runs."""

    settings: Settings

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def gradients(self) -> int:
        return self.settings.config.gradients

    @property
    def cost(self) -> float:
        config = self.settings.config
        if config.synthetic:
            return config.gradients * GRADIENT_SECONDS
        return START_SECONDS + config.iterations * config.agents * config.agent.steps * STEP_SECONDS

    def folder(self, out: Path) -> RunFolder:
        return RunFolder(out / "runs" / self.name)

    def finished(self, out: Path) -> bool:
        folder = self.folder(out)
        if not folder.database.is_file():
            return False
        try:
            return database.read_notes(folder.database).get("state") == "finished"
        except AfedpgError:  # killed before its tables were there
            return False

    def perform(self, out: Path, workers: int, progress: Progress) -> None:
        path, own, total = self.folder(out).path, self.settings.own(), self.gradients
        on_arrival = _fraction_of(total, progress)
        if (path / "run.toml").is_file():
            resume(path, own, workers, on_arrival)
        else:
            run(self.settings.config, own, path, workers, on_arrival)
        _slim(self.folder(out))


def _slim(folder: RunFolder) -> None:
    """A finished run needs no events to go on from: hundreds of them would fill the disk with old gradients.

    run.toml, run.db, the policy and the last checkpoint stay; `afedpg replay --recompute` still proves the bits.
    """
    shutil.rmtree(folder.journal, ignore_errors=True)
    for name in checkpoint.names(folder.checkpoints)[:-1]:
        shutil.rmtree(folder.checkpoints / str(name), ignore_errors=True)


def _fraction_of(total: int, progress: Progress) -> OnArrival:
    step = max(1, total // 200)

    def arrived(arrival: Arrival, seconds: float, theta: Vector) -> None:
        if arrival.gradient % step == 0:
            progress(arrival.gradient / total)

    return arrived


@dataclass(frozen=True)
class Plan:
    """Settings that the runs of one experiment share, laid over the preset."""

    choices: Choices
    preset: str = ""
    shared: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, task: str, method: Method, agents: int, seed: int, **more: Any) -> Settings:
        """One training of this experiment; `more` wins over `shared`, which wins over the preset."""
        single = method.name in ("pg", "pg-plain")
        flat: dict[str, Any] = {
            **preset_settings(task, self.preset, method),
            **self.shared,
            **({"timing": self.choices.timing} if self.choices.timing else {}),
            **more,
            "method": method.known,
            "agents": 1 if single else agents,
            "seed": seed,
        }
        own_timing = self.choices.own_timing
        names = own_of(method.own, own_timing).names()
        names += ("eta: StepPower",) if flat.get("eta_power") is not None else ()
        power = flat.pop("eta_power", None)
        config = configuration.resolved(configuration.from_settings({**flat, "task": task, "own": names}))
        return Settings(check_applicable(validate(config)), method, own_timing, power)


def preset_settings(task: str, preset: str, method: Method) -> dict[str, Any]:
    """The task's preset; `tuned-a3c` instead of `tuned` where a method has its own; the defaults if there is none."""
    known = presets()
    if preset.endswith(".toml"):
        return dict(fitted(base_of(task, preset), method.known))
    for name in (f"{preset}-{method.name}", preset):
        if preset_of(task, name) in known:
            return dict(fitted(load_preset(task, name), method.known))
    return {}
