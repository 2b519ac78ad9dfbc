"""`tune`: a search for settings with Optuna, on seeds that nothing else is judged by.

A trial is one value of each setting, trained once per seed of SEEDS; it is worth the mean of the last evaluations.
Evaluations on the way are compared with those of earlier trials at the same moment, and a trial below their median ends
there. The study is a database in its folder: a search that was interrupted goes on with the trials it has.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Unpack

import tomli_w

from afedpg.config import Config
from afedpg.errors import AfedpgError, ConfigError
from afedpg.options import fit, place, whole
from afedpg.parts import Spec, parse, write_values
from afedpg.preset import base_of, fitted
from afedpg.record.disk import write_bytes
from afedpg.runs.best import Evaluated
from afedpg.runs.callbacks import Callback, watchers
from afedpg.runs.keywords import Settings
from afedpg.runs.parts import laid_over
from afedpg.runs.train import run
from afedpg.validation import READ_BY

SEEDS = (100, 101, 102)  # judge what was found on others, 0 and so on
LOOKS = 10  # evaluations of a run, unless evaluate_every says otherwise
TRIALS = 20
MOST = 1_000_000  # trials, or minutes
SURE = 4  # trials that are not cut short, to compare the others with
STUDY, PRESET = "study.db", "best.toml"


@dataclass(frozen=True)
class Between:
    """Any number from `low` to `high`, evenly on a logarithmic scale."""

    low: float
    high: float

    def draw(self, trial: Any, name: str) -> Any:
        return trial.suggest_float(name, self.low, self.high, log=True)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Among:
    values: tuple[float, ...]

    def draw(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.values)

    def __str__(self) -> str:
        return ", ".join(f"{value:g}" for value in self.values)


Space = dict[str, Between | Among]
_RETURNS: Space = {"gamma": Among((0.95, 0.98, 0.99, 0.995, 0.999)), "gae_lambda": Among((0.8, 0.9, 0.95, 0.98, 1.0))}
_LENGTHS = Between(3e-3, 0.3)  # a rate, too: pg-plain has the same default
STEPS: Space = {"eta": _LENGTHS, "alpha": Between(0.03, 1.0)}
ETAS = {"a3c": Between(7e-5, 7e-3), "afedppo": Between(1e-2, 1.0)}  # RMSProp's rate, and a factor
MIX_NOTHING = ("pg-plain", "a3c", "afedppo")
CLIPPED: Space = {  # parameters of the estimator
    "rate": Between(1e-4, 3e-3), "epochs": Among((3, 5, 10, 20)), "entropy": Among((0.0, 0.001, 0.01)), **_RETURNS
}  # fmt: skip


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        settings: of the best trial, beside those that were given.
        value: its mean evaluation.
        trials: finished ones of the study.
        pruned: those of them that were cut short.
        preset: a file for `train(..., preset=...)` and `afedpg train --preset`.
    """

    settings: dict[str, Any]
    value: float
    trials: int
    pruned: int
    preset: Path


def tune(
    task: str,
    *,
    out: str | Path | None = None,
    trials: int | None = None,
    minutes: float | None = None,
    preset: str | Path | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda line: None,
    **settings: Unpack[Settings],
) -> Tuned:
    """Searches for good settings of `task`, and writes the best ones as a preset.

        tune("CartPole-v1", out="tuned/pole", trials=10, agents=4, iterations=20)

    Searched are eta, alpha, gamma and gae_lambda, as far as method and estimator read them, of a synthetic problem eta
    and alpha; with the clipped estimator (afedppo) its rate, epochs and entropy, gamma and gae_lambda. What `settings`
    name stays as it is.

    Args:
        task: as of `train`.
        out: the folder of the study, tuned/TASK-METHOD unless given; one that is there already is gone on with.
        trials: end once the study has so many; 20 unless `minutes` are given.
        minutes: begin no trial after so many.
        preset: settings to start from.
        workers: processes that compute, as of `train`.
        say: is told a line per trial.
        **settings: as of `train`, but for the seed.

    Raises:
        ConfigError: a setting that makes no sense, or a folder with a study of other settings.
    """
    for name, given, kind in (("trials", trials, int), ("minutes", minutes, float)):
        if given is not None and not 0 < fit(name, given, kind) <= MOST:
            raise ConfigError(f"{name}: {given} is outside (0, {MOST}]")
    if workers is not None:
        workers = whole("workers", workers, 1)
    if own := sorted({"make_env", "make_policy", "on_arrival", "callbacks", "progress"} & settings.keys()):
        register = "; register the environment with Gymnasium" if own[0] == "make_env" else ""
        raise ConfigError(f"{own[0]}: a search takes tasks by their names, and settings, alone{register}")
    if "seed" in settings:
        raise ConfigError(f"seed: a search has seeds of its own, {SEEDS[0]} to {SEEDS[-1]}")
    base = fitted(base_of(task, preset), settings.get("method"))
    search = _Search(task, base, settings, None if out is None else place("out", out), workers)
    study = search.open()
    wanted = trials if trials is not None else TRIALS if minutes is None else None
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    while wanted is None or len(_finished(study)) < wanted:
        study.optimize(search.value, n_trials=1)
        say(_line(study.trials[-1]))
        if deadline is not None and time.monotonic() > deadline:
            break
    return search.outcome(study)


class _Search:
    def __init__(
        self, task: str, base: Mapping[str, Any], settings: Mapping[str, Any], folder: Path | None, workers: int | None
    ) -> None:
        self._task, self._base, self._named, self._workers = task, base, settings, workers
        self._fixed = {**base, **settings}
        config = self._config({}, SEEDS[0])  # refuses now what makes no sense
        self._folder = folder or Path("tuned") / re.sub(r"[^A-Za-z0-9._-]", "_", f"{task}-{config.method}")
        self._spec, self._method = parse("estimator", config.agent.estimator), config.method
        searched = _searched(config, self._spec)
        taken = {*self._fixed, *self._spec.values}
        self.space = {name: values for name, values in searched.items() if name not in taken}
        if not self.space:
            raise ConfigError(f"tune: {', '.join(searched)} are what is searched, and all of them are given")

    def open(self) -> Any:
        """The study, which others of the same folder go on with."""
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # it warns of a failed trial by a traceback
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"out: cannot create {self._folder}: {error.strerror}; choose another --out") from error
        file = self._folder / STUDY
        told = json.dumps({"task": self._task, **self._fixed}, sort_keys=True, default=str)
        try:
            study = optuna.create_study(
                storage=f"sqlite:///{file.absolute()}", study_name=STUDY, direction="maximize", load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=SURE, n_warmup_steps=LOOKS // 3),
            )  # fmt: skip
            study.sampler = optuna.samplers.TPESampler(seed=SEEDS[0] + len(study.trials))
            before = study.user_attrs.get("settings")
        except Exception as error:  # SQLAlchemy's are many
            raise AfedpgError(f"cannot use {file} as a study: {' '.join(str(error).split())[:200]}") from error
        if before not in (None, told):
            raise ConfigError(f"out: {self._folder} has a study of other settings, {before}; name another folder")
        study.set_user_attr("settings", told)
        return study

    def value(self, trial: Any) -> float:
        chosen = {name: values.draw(trial, name) for name, values in self.space.items()}
        last = []
        for number, seed in enumerate(SEEDS):
            config, watch = self._config(self._settings(chosen), seed), _Watch(trial, number)
            run(config, workers=self._workers, on_arrival=watchers(config, [watch], None))
            if watch.cut:
                raise _optuna().TrialPruned
            last.append(watch.value)
        return fmean(last)

    def outcome(self, study: Any) -> Tuned:
        finished = _finished(study)
        if not any(trial.value is not None for trial in finished):
            raise AfedpgError("tune: no trial was finished; give it more time")
        best, chosen = study.best_trial, self._settings(study.best_params)
        pruned = sum(trial.state.name == "PRUNED" for trial in finished)
        told = (
            f"# {self._task}: the best of {len(finished)} trials, {best.value:g} on seeds {SEEDS[0]} to {SEEDS[-1]}\n"
        )
        preset = self._folder / PRESET
        settings = {**self._fixed, **chosen, "method": self._method}  # by which another one knows what is not its own
        write_bytes(preset, (told + tomli_w.dumps(settings)).encode())
        return Tuned(chosen, best.value, len(finished), pruned, preset)

    def _config(self, chosen: Mapping[str, Any], seed: int) -> Config:
        config = laid_over(self._base, self._task, {**self._named, **chosen, "seed": seed})
        often = config.record.evaluate_every or max(1, config.iterations // LOOKS)
        return replace(config, record=replace(config.record, evaluate_every=often))

    def _settings(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """As `train` takes them: parameters of the estimator are written behind its name."""
        own = {name: value for name, value in chosen.items() if name not in {**STEPS, **_RETURNS}}
        rest = {name: value for name, value in chosen.items() if name not in own}
        written = write_values({**self._spec.values, **own})
        return {**rest, "estimator": f"{self._spec.name}:{written}"} if own else rest


def _searched(config: Config, estimator: Spec) -> Space:
    """What the method and the estimator read."""
    if estimator.name == "clipped" and not estimator.file and not config.synthetic:
        return CLIPPED
    unread: set[str] = set()
    if config.method in MIX_NOTHING or config.schedule.schedule in ("global", "fosp"):
        unread.add("alpha")
    if not estimator.file and estimator.name not in READ_BY["estimator"]["gae_lambda"]:
        unread.add("gae_lambda")
    if config.synthetic:  # which draws its gradients itself, and has no returns to discount
        unread |= _RETURNS.keys()
    etas = ETAS.get(config.method, _LENGTHS)
    lowest = max(etas.low, config.schedule.eta_floor)  # which is not above the usual eta, or it was refused
    space = {**STEPS, **_RETURNS, "eta": Between(lowest, etas.high)}
    return {name: values for name, values in space.items() if name not in unread}


class _Watch(Callback):
    """Tells a trial of its run's evaluations, and ends the run where they are below the others'."""

    def __init__(self, trial: Any, number: int) -> None:
        self._trial, self._step = trial, number * MOST  # the trial's runs, one after the other
        self.value, self.cut = 0.0, False

    def on_evaluation(self, event: Evaluated) -> bool:
        self.value = event.mean
        self._trial.report(event.mean, self._step)
        self._step += 1
        self.cut = self._trial.should_prune()
        return not self.cut


def _finished(study: Any) -> list[Any]:
    """Not those that were interrupted."""
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def _line(trial: Any) -> str:
    values = " ".join(f"{name}={value:.4g}" for name, value in trial.params.items())
    worth = "cut short" if trial.value is None else f"{trial.value:.6g}"
    return f"trial {trial.number}: {worth}, with {values}"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise AfedpgError("optuna is not installed; install it with: pip install 'afedpg[tune]'") from error
    return optuna
