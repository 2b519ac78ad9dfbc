"""Trackers: callbacks that send a run's curves to Weights & Biases, MLflow or TensorBoard.

All of them send the same, against samples: the means over windows of arrivals that the run folder's TensorBoard files
have, the return and the delay of each agent, theta's evaluations, the settings, and at the end what the best theta is
worth. A tracker that fails at the start ends the run; one that fails later is given up with a warning.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from afedpg.config import Config
from afedpg.errors import AfedpgError, ConfigError
from afedpg.record.agreement import settings_of
from afedpg.record.tensorboard import TensorBoard
from afedpg.record.windows import Windows, evaluation_tag, window_of
from afedpg.runs.best import Evaluated
from afedpg.runs.callbacks import Arrived, Callback, Started
from afedpg.runs.result import Result

METRICS, PARAMS = 1000, 100  # that MLflow takes at once
METRIC_SECONDS = 5.0  # between two batches
POLICY = "policy.safetensors"
_NOT_IN_A_NAME = re.compile(r"[^\w\-. /:]")  # of a metric in MLflow
_log = logging.getLogger("afedpg")


class Tracker(Callback, ABC):
    """What trackers share. Those of other services implement `open`, `log` and `close`."""

    service = ""  # its name, for messages
    module = ""  # what must be installed for it
    package = ""  # which pip install brings it

    def __init__(self, agents: bool = True) -> None:
        if importlib.util.find_spec(self.module) is None:
            raise ConfigError(
                f"callbacks: {self.module} is not installed; install it with: pip install '{self.package}'"
            )
        self._agents = agents
        self._clear()

    def forget(self) -> None:
        self._clear()

    def _clear(self) -> None:
        """Also for the constructor, which a subclass calls before it has what its own `forget` clears."""
        self.run_id = ""  # by which the service knows the run; kept in the checkpoint
        self._windows, self._open = Windows(agents=self._agents), False

    def errors(self) -> tuple[type[Exception], ...]:
        """What the service's library raises."""
        return (OSError,)

    @abstractmethod
    def open(self, event: Started) -> None:
        """Begins a run of the service, or goes on with that of `run_id`."""

    @abstractmethod
    def log(self, samples: int, values: Mapping[str, float]) -> None:
        """Finite numbers by tag."""

    @abstractmethod
    def close(self, result: Result | None) -> None:
        """After the last `log`; without a result the run was interrupted or failed."""

    def on_start(self, event: Started) -> None:
        self._windows.samples, self._windows.every = event.samples, window_of(event.config)
        try:
            self.open(event)
        except self.errors() as error:
            raise AfedpgError(f"{self.service}: {_first_line(error)}") from error
        self._open = True

    def on_arrival(self, event: Arrived) -> None:
        if full := self._windows.add(event.arrival):
            self._send(self._windows.samples, {**full, "seconds": event.seconds})

    def on_evaluation(self, event: Evaluated) -> None:
        self._send(event.samples, {evaluation_tag(told): told.mean for told in event.evaluations})

    def on_end(self, result: Result | None) -> None:
        if result is not None:
            best = result.best
            found = {} if best is None else {"best/return": best.mean, "best/iteration": best.iteration}
            self._send(self._windows.samples, {**self._windows.rest(), **found})
        self._guarded(lambda: self.close(result))
        self._open = False

    def to_tree(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "windows": self._windows.to_tree()}

    def from_tree(self, tree: dict[str, Any]) -> None:
        self.run_id = tree["run_id"]
        self._windows.from_tree(tree["windows"])

    def _send(self, samples: int, values: Mapping[str, float]) -> None:
        finite = {tag: float(value) for tag, value in values.items() if math.isfinite(value)}
        if finite:
            self._guarded(lambda: self.log(samples, finite))

    def _guarded(self, action: Callable[[], None]) -> None:
        """Curves are a convenience: where they cannot be sent, the run goes on without."""
        if not self._open:
            return
        try:
            action()
        except self.errors() as error:
            self._open = False
            _log.warning("nothing more is sent to %s: %s", self.service, _first_line(error))


class WandbCallback(Tracker):
    """Sends a run to Weights & Biases (`pip install 'afedpg[wandb]'`).

        train("CartPole-v1", evaluate_every=5, callbacks=[WandbCallback(project="poles")])

    A run that is resumed with the callback goes on as the same run there.

    Args:
        project: where it is shown.
        name: what it is called; TASK-METHOD-seedS unless given.
        mode: online, offline or disabled; otherwise WANDB_MODE decides.
        agents: also send a return and a delay of each agent.
        save_policy: at the end, upload the best policy as an artifact.
        run: a run that you have begun with `wandb.init`; the callback does not finish it, and sends no settings.
    """

    service, module, package = "Weights & Biases", "wandb", "afedpg[wandb]"

    def __init__(
        self,
        project: str = "afedpg",
        name: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        agents: bool = True,
        save_policy: bool = False,
        run: Any = None,
    ) -> None:
        super().__init__(agents)
        self.project, self.name, self.mode, self.save_policy = project, name, mode, save_policy
        self._given = self._run = run

    def errors(self) -> tuple[type[Exception], ...]:
        return importlib.import_module("wandb").Error, OSError

    def open(self, event: Started) -> None:
        if self._given is None:
            self._run = importlib.import_module("wandb").init(
                project=self.project, name=self.name or _name_of(event.config), mode=self.mode, reinit="create_new",
                config=settings_of(event.config), id=self.run_id or None, resume="allow" if self.run_id else None,
            )  # fmt: skip
            self.run_id = self._run.id
        self._run.define_metric("samples", hidden=True)
        self._run.define_metric("*", step_metric="samples")

    def log(self, samples: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "samples": samples})

    def close(self, result: Result | None) -> None:
        if result is not None and self.save_policy:
            with TemporaryDirectory() as folder:
                file = result.save(Path(folder) / POLICY)
                self._run.log_artifact(file, name=f"policy-{self._run.id}", type="model")
        if self._given is None:
            self._run.finish(exit_code=0 if result is not None else 1)


class MlflowCallback(Tracker):
    """Sends a run to MLflow (`pip install 'afedpg[mlflow]'`).

        train("CartPole-v1", evaluate_every=5, callbacks=[MlflowCallback("sqlite:///mlflow.db", "poles")])

    A run that is resumed with the callback goes on as the same run there.

    Args:
        uri: of the tracking server or database; otherwise MLFLOW_TRACKING_URI and MLflow's own default decide.
        experiment: where it is shown; made if there is none of that name.
        name: what it is called; TASK-METHOD-seedS unless given.
        agents: also send a return and a delay of each agent.
        save_policy: at the end, store the best policy as an artifact.
    """

    service, module, package = "MLflow", "mlflow", "afedpg[mlflow]"

    def __init__(
        self,
        uri: str | None = None,
        experiment: str = "afedpg",
        name: str | None = None,
        agents: bool = True,
        save_policy: bool = False,
    ) -> None:
        super().__init__(agents)
        self.uri, self.experiment, self.name, self.save_policy = uri, experiment, name, save_policy
        self._client: Any = None
        self._waiting: list[Any] = []
        self._sent_at = time.monotonic()

    def errors(self) -> tuple[type[Exception], ...]:
        return importlib.import_module("mlflow.exceptions").MlflowException, OSError

    def open(self, event: Started) -> None:
        self._entities = importlib.import_module("mlflow.entities")
        self._client = importlib.import_module("mlflow").MlflowClient(tracking_uri=self.uri)
        if self.run_id:
            self._client.update_run(self.run_id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self.experiment)
        run = self._client.create_run(experiment, run_name=self.name or _name_of(event.config))
        self.run_id = run.info.run_id
        settings = [self._entities.Param(name, str(value)) for name, value in _plain(event.config).items()]
        for start in range(0, len(settings), PARAMS):
            self._client.log_batch(self.run_id, params=settings[start : start + PARAMS])

    def log(self, samples: int, values: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        for tag, value in values.items():
            self._waiting.append(self._entities.Metric(_NOT_IN_A_NAME.sub("_", tag), value, now, samples))
        if len(self._waiting) >= METRICS or time.monotonic() - self._sent_at > METRIC_SECONDS:
            self._flush()

    def to_tree(self) -> dict[str, Any]:
        self._guarded(self._flush)  # what a checkpoint has seen is not sent again
        return super().to_tree()

    def close(self, result: Result | None) -> None:
        self._flush()
        if result is not None and self.save_policy:
            with TemporaryDirectory() as folder:
                self._client.log_artifact(self.run_id, str(result.save(Path(folder) / POLICY)))
        self._client.set_terminated(self.run_id, status="FINISHED" if result is not None else "KILLED")

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), METRICS):
            self._client.log_batch(self.run_id, metrics=waiting[start : start + METRICS])
        self._sent_at = time.monotonic()


class TensorBoardCallback(Tracker):
    """Writes a run for TensorBoard, with HParams and a series per agent, which a run folder's own files do not have.

        train("CartPole-v1", evaluate_every=5, callbacks=[TensorBoardCallback("boards/pole")])

    Args:
        folder: where it is written: one for each run, and not the run folder.
        agents: also write a return and a delay of each agent.
    """

    service, module, package = "TensorBoard", "tensorboard", "tensorboard"

    def __init__(self, folder: str | Path, agents: bool = True) -> None:
        super().__init__(agents)
        self.folder = Path(folder)

    def open(self, event: Started) -> None:
        if event.out is not None and event.out.resolve() == self.folder.resolve():
            raise ConfigError(f"callbacks: {self.folder} is the run folder, whose TensorBoard files are written anyway")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._board = TensorBoard(self.folder, event.samples)
        if not event.gradients:
            self._board.add_settings(_plain(event.config))

    def log(self, samples: int, values: Mapping[str, float]) -> None:
        self._board.write(samples, values)

    def close(self, result: Result | None) -> None:
        self._board.close()


def _name_of(config: Config) -> str:
    return f"{config.task}-{config.method}-seed{config.seed}"


def _plain(config: Config) -> dict[str, bool | float | str]:
    """The settings; those that are lists or tables as JSON."""
    settings = settings_of(config).items()
    return {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value) for name, value in settings
    }


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
