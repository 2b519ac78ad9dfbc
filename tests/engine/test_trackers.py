"""What trackers have of a run is what its database has, in the services' own files."""

from __future__ import annotations

import importlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import curves

from afedpg import Callback, MlflowCallback, TensorBoardCallback, WandbCallback, resume, train
from afedpg.errors import AfedpgError, ConfigError
from afedpg.record.database import read_arrivals, read_evaluations
from afedpg.runs import trackers
from afedpg.runs.trackers import Tracker

SMALL = {"agents": 3, "iterations": 8, "evaluate_every": 3, "timing": "straggler", "spread": 4.0, "eta": 0.1}
Points = dict[str, list[tuple[int, float]]]  # (samples, value) by tag

wandb_too = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install 'afedpg[wandb]'"
)
mlflow_too = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed: pip install 'afedpg[mlflow]'"
)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing leaves this folder."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_TRACKING_URI": "",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # or the next test would find its folder and its process


def expected(run: Path) -> Points:
    """From run.db, where every window is one arrival; a quadratic problem has no episodes and so no returns."""
    rows, told = read_arrivals(run / "run.db"), read_evaluations(run / "run.db")
    samples = rows["steps"].cumsum()
    points: Points = {
        tag: list(zip(samples.tolist(), rows[column].tolist(), strict=True))
        for tag, column in {
            "delay": "delay", "gradient_norm": "gradient_norm", "step_length": "step_length", "seconds": "seconds",
        }.items()
    }  # fmt: skip
    returned = ~np.isnan(rows["mean_return"])
    if returned.any():
        points["return/training"] = list(zip(samples[returned].tolist(), rows["mean_return"][returned], strict=True))
    for agent in np.unique(rows["agent"]):
        its = rows["agent"] == agent
        points[f"agent_delay/{agent}"] = list(zip(samples[its].tolist(), rows["delay"][its].tolist(), strict=True))
        if returned.any():
            both = its & returned
            points[f"agent_return/{agent}"] = list(zip(samples[both].tolist(), rows["mean_return"][both], strict=True))
    for kind in np.unique(told["kind"]):
        those = told["kind"] == kind
        values = zip(told["samples"][those].tolist(), told["mean"][those].tolist(), strict=True)
        points[f"return/evaluation/{kind}"] = list(values)
    return points


def wandb_records(folder: Path) -> list[Any]:
    """Of an offline run's file: records in blocks of 32 KiB, each piece with its checksum, length and kind."""
    protocol = importlib.import_module("wandb.proto.wandb_internal_pb2")
    importlib.import_module("wandb").teardown()  # its own process has then written everything
    (file,) = folder.glob("run-*.wandb")
    data, at, piece, found = file.read_bytes(), 7, b"", []
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        piece += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            found.append(protocol.Record.FromString(piece))
            piece = b""
    return found


def wandb_points(records: list[Any]) -> Points:
    points: Points = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            values = {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
            }
            for tag, value in values.items():
                if tag != "samples" and not tag.startswith("_"):
                    points.setdefault(tag, []).append((values["samples"], value))
    return points


def same(points: Points, wanted: Points) -> None:
    assert {tag for tag in points if not tag.startswith("best/")} == wanted.keys()
    for tag, values in wanted.items():
        assert np.allclose(points[tag], values, rtol=1e-6, atol=1e-5), tag  # TensorBoard has float32


@wandb_too
def test_weights_and_biases_has_the_run(tmp_path: Path) -> None:
    task = {"agents": 2, "iterations": 4, "steps": 64, "evaluate_every": 2}
    result = train("CartPole-v1", **task, callbacks=[WandbCallback("poles", save_policy=True)], out="run")
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    records = wandb_records(folder)
    points = wandb_points(records)
    same(points, expected(tmp_path / "run"))
    assert points["best/return"] == [(result.samples, pytest.approx(result.best.mean))]
    (run,) = (record.run for record in records if record.WhichOneof("record_type") == "run")
    settings = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (run.project, run.display_name) == ("poles", "CartPole-v1-afedpg-seed0")
    assert (settings["agents"], settings["steps"], settings["hidden"]) == (2, 64, [64, 64])
    (artifact,) = [
        getattr(record, kind) for record in records if (kind := record.WhichOneof("record_type")) == "artifact"
    ] or [record.request.log_artifact.artifact for record in records if record.request.HasField("log_artifact")]
    assert artifact.type == "model"
    assert [record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit"] == [0]


def mlflow_client() -> Any:
    return importlib.import_module("mlflow").MlflowClient("sqlite:///m.db")


def mlflow_points(client: Any, run: Any) -> Points:
    return {
        tag: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, tag)]
        for tag in run.data.metrics
    }


@mlflow_too
def test_mlflow_has_the_run(tmp_path: Path) -> None:
    task = {"agents": 2, "iterations": 4, "steps": 64, "evaluate_every": 2}
    callback = MlflowCallback("sqlite:///m.db", "poles", name="one", save_policy=True)
    result = train("CartPole-v1", **task, callbacks=[callback], out="run")
    client = mlflow_client()
    run = client.get_run(callback.run_id)
    same(mlflow_points(client, run), expected(tmp_path / "run"))
    assert client.get_experiment_by_name("poles").experiment_id == run.info.experiment_id
    assert (run.info.run_name, run.info.status) == ("one", "FINISHED")
    assert run.data.metrics["best/return"] == pytest.approx(result.best.mean)
    assert (run.data.params["agents"], run.data.params["hidden"]) == ("2", "[64, 64]")
    assert [file.path for file in client.list_artifacts(callback.run_id)] == ["policy.safetensors"]


def test_tensorboard_has_the_run_with_its_settings_and_its_agents(tmp_path: Path) -> None:
    result = train("quadratic", **SMALL, callbacks=[TensorBoardCallback("board")], out="run")
    points = curves(tmp_path / "board")
    same(points, expected(tmp_path / "run"))
    assert points["best/return"] == [(result.samples, pytest.approx(result.best.mean, abs=1e-5))]
    module = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    plugin = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")
    data = module.EventAccumulator(str(tmp_path / "board")).Reload().summary_metadata["_hparams_/session_start_info"]
    hparams = plugin.HParamsPluginData.FromString(data.plugin_data.content).session_start_info.hparams
    assert (hparams["eta"].number_value, hparams["method"].string_value) == (0.1, "afedpg")
    assert (hparams["keep_reports"].bool_value, hparams["hidden"].string_value) == (False, "[64, 64]")


class Killed(BaseException): ...


class Kill(Callback):
    def __init__(self, gradient: int) -> None:
        self.gradient = gradient

    def on_arrival(self, event):
        if event.arrival.gradient == self.gradient:
            raise Killed


def made(service: str) -> Tracker:
    if service == "tensorboard":
        return TensorBoardCallback("board")
    return WandbCallback("poles") if service == "wandb" else MlflowCallback("sqlite:///m.db")


def shown(service: str, tmp_path: Path, callback: Tracker) -> Points:
    """Points that came twice, with the same value, once."""
    if service == "tensorboard":
        return curves(tmp_path / "board")
    if service == "mlflow":
        points = mlflow_points(mlflow_client(), mlflow_client().get_run(callback.run_id))
    else:
        # Two that begin within one second differ by a number at the end.
        folders = sorted((tmp_path / "wandb").glob(f"offline-run-*-{callback.run_id}*"))
        points = wandb_points([record for folder in folders for record in wandb_records(folder)])
    return {tag: sorted(set(values)) for tag, values in points.items()}


@pytest.mark.parametrize("service", [
    pytest.param("wandb", marks=wandb_too), pytest.param("mlflow", marks=mlflow_too), "tensorboard",
])  # fmt: skip
def test_a_run_that_was_killed_goes_on_as_the_same_run_there(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "checkpoint_seconds": 1e-9}
    monkeypatch.setattr(trackers, "window_of", lambda config: 4)
    whole = train("quadratic", **settings, callbacks=[TensorBoardCallback("whole")])
    first, second = made(service), made(service)
    with pytest.raises(Killed):
        train("quadratic", **settings, callbacks=[first, Kill(10)], out="run")  # in the middle of a window
    result = resume("run", callbacks=[second])
    assert result.sha256 == whole.sha256
    assert second.run_id == first.run_id
    assert (second.run_id == "") == (service == "tensorboard")
    same(
        shown(service, tmp_path, second), {tag: p for tag, p in curves(tmp_path / "whole").items() if "best" not in tag}
    )


class GiveUp(Callback):
    """Takes the service away in the middle of the run."""

    def __init__(self, action: Any) -> None:
        self.action = action

    def on_arrival(self, event):
        if event.arrival.gradient == 5:
            self.action()


@mlflow_too
def test_mlflow_that_fails_is_given_up_with_one_line(caplog: pytest.LogCaptureFixture, monkeypatch) -> None:
    monkeypatch.setattr(trackers, "METRIC_SECONDS", 0.0)
    tracker = MlflowCallback("sqlite:///m.db")
    gone = GiveUp(lambda: mlflow_client().delete_run(tracker.run_id))
    result = train("quadratic", **SMALL, callbacks=[tracker, gone])
    assert result.sha256 == train("quadratic", **SMALL).sha256
    (line,) = [record.message for record in caplog.records if record.name == "afedpg"]
    assert line.startswith("nothing more is sent to MLflow: ")


@wandb_too
def test_a_run_of_ones_own_is_used_and_left_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wandb = importlib.import_module("wandb")
    run = wandb.init(project="mine")
    train("quadratic", **SMALL, callbacks=[WandbCallback(run=run)], out="run")
    run.log({"after": 1.0, "samples": 0})
    run.finish()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    points = wandb_points(wandb_records(folder))
    assert points.pop("after") == [(0, 1.0)]
    same(points, expected(tmp_path / "run"))


@wandb_too
def test_a_run_that_was_finished_meanwhile_is_given_up_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    run = importlib.import_module("wandb").init(project="mine")
    result = train("quadratic", **SMALL, callbacks=[WandbCallback(run=run), GiveUp(run.finish)])
    assert result.gradients == 24
    (line,) = [record.message for record in caplog.records if record.name == "afedpg"]
    assert line.startswith("nothing more is sent to Weights & Biases: ")


@mlflow_too
def test_a_service_that_cannot_be_reached_ends_the_run_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(AfedpgError, match=r"^MLflow: .* \(after gradient 0 of 24\); go on with: afedpg resume run$"):
        train("quadratic", **SMALL, callbacks=[MlflowCallback("http://127.0.0.1:9")], out="run")
    assert resume("run").gradients == 24


@pytest.mark.parametrize("make", [WandbCallback, MlflowCallback, lambda: TensorBoardCallback("board")])
def test_what_is_not_installed_is_named(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"callbacks: (\w+) is not installed; install it with: pip install '.*\1.*'"):
        make()


def test_tensorboard_does_not_write_into_the_run_folder() -> None:
    with pytest.raises(ConfigError, match="callbacks: run is the run folder, whose TensorBoard files are written"):
        train("quadratic", **SMALL, callbacks=[TensorBoardCallback("run")], out="run")


def test_a_run_that_fails_tells_its_callbacks() -> None:
    ends: list[Any] = []

    class Heard(Callback):
        def on_start(self, event):
            ends.append((event.gradients, event.samples, event.config.agents))

        def on_end(self, result):
            ends.append(result)

    with pytest.raises(Killed):
        train("quadratic", **SMALL, callbacks=[Heard(), Kill(10)])
    result = train("quadratic", **SMALL, callbacks=[Heard()])
    assert ends == [(0, 0, 3), None, (0, 0, 3), result]


class Notes(Tracker):
    """A service that knows its runs by numbers."""

    service, module, package = "Notes", "json", "json"

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[tuple[str, int]] = []
        self.sent: list[int] = []

    def forget(self) -> None:
        super().forget()
        self.sent.append(0)

    def open(self, event: Any) -> None:
        self.opened.append((self.run_id, event.samples))
        self.run_id = self.run_id or str(len(self.opened))

    def log(self, samples: int, values: Any) -> None:
        self.sent.append(samples)

    def close(self, result: Any) -> None: ...


def test_every_run_of_one_tracker_is_a_run_of_its_own_there(tmp_path: Path) -> None:
    notes = Notes()
    for seed in range(2):
        train("quadratic", **SMALL, seed=seed, callbacks=notes, out=tmp_path / str(seed))
    assert notes.opened == [("", 0), ("", 0)]
    half = len(notes.sent) // 2
    assert notes.sent[:half] == notes.sent[half:]
    resume(tmp_path / "0", callbacks=notes)
    assert notes.opened[2] == ("1", 24)
