"""Asynchronous federated policy gradients.

    Task(theta~, version)                            a server hands out work ...
      -> policy -> rollout -> advantage -> gradient -> agent/ (or problems/): work(state, task) -> (state, report)
    Report(gradient, version)                        ... an agent answers when it is done ...
      -> mix -> normalize -> step -> lookahead ->      server/: step(state, event) -> (state, tasks)
    Task(theta~, version) ...                        ... and gets fresh parameters, at once, alone

engine/ decides when they meet (virtual time or real), record/ keeps what happened, cli.py is the command `afedpg`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from afedpg.version import VERSION

if TYPE_CHECKING:
    from afedpg.engine.process import Interrupted
    from afedpg.errors import AfedpgError, ConfigError
    from afedpg.export.policy_file import load_policy
    from afedpg.runs.best import Evaluated
    from afedpg.runs.callbacks import Arrived, Callback, EarlyStopping, Started
    from afedpg.runs.evaluate import evaluate_run
    from afedpg.runs.parts import Own
    from afedpg.runs.replay import recompute, replay
    from afedpg.runs.result import Result
    from afedpg.runs.trackers import MlflowCallback, TensorBoardCallback, WandbCallback
    from afedpg.runs.train import resume, train
    from afedpg.runs.tune import Tuned, tune

__version__ = VERSION

# Loaded when first used: `import afedpg` and `afedpg --help` cost nothing.
_HOMES = {
    "AfedpgError": "afedpg.errors",
    "Arrived": "afedpg.runs.callbacks",
    "Callback": "afedpg.runs.callbacks",
    "ConfigError": "afedpg.errors",
    "EarlyStopping": "afedpg.runs.callbacks",
    "Evaluated": "afedpg.runs.best",
    "Interrupted": "afedpg.engine.process",
    "MlflowCallback": "afedpg.runs.trackers",
    "Own": "afedpg.runs.parts",
    "Result": "afedpg.runs.result",
    "Started": "afedpg.runs.callbacks",
    "TensorBoardCallback": "afedpg.runs.trackers",
    "WandbCallback": "afedpg.runs.trackers",
    "evaluate_run": "afedpg.runs.evaluate",
    "load_policy": "afedpg.export.policy_file",
    "recompute": "afedpg.runs.replay",
    "replay": "afedpg.runs.replay",
    "resume": "afedpg.runs.train",
    "train": "afedpg.runs.train",
    "Tuned": "afedpg.runs.tune",
    "tune": "afedpg.runs.tune",
}
__all__ = [
    "AfedpgError", "Arrived", "Callback", "ConfigError", "EarlyStopping", "Evaluated", "Interrupted", "MlflowCallback",
    "Own", "Result", "Started", "TensorBoardCallback", "Tuned", "WandbCallback",
    "evaluate_run", "load_policy", "recompute", "replay", "resume", "train", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'afedpg' has no attribute '{name}'")


def __dir__() -> list[str]:
    """The public names, whether or not they are loaded yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
