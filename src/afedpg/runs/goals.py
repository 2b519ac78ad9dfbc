"""When a run may end before its last gradient: it is good enough, or its time is up."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from afedpg.config import Config
from afedpg.messages import Arrival, Evaluation

RETURN_WINDOW = 5  # gradients per agent over which `stop_at_return` looks at the mean return
EVALUATION_WINDOW = 5  # evaluations over which `stop_at_evaluation` looks at theta's


class Goals:
    """Part of what a checkpoint stores: a resumed run must end where the uninterrupted one does."""

    def __init__(self, config: Config) -> None:
        self._config = config
        goals = (config.stop_at_return, config.stop_at_evaluation, config.stop_at_seconds)
        self._none = goals == (None, None, None)
        self._returns: deque[float] = deque(maxlen=RETURN_WINDOW * config.agents)  # of the newest gradients
        self._evaluations: deque[float] = deque(maxlen=EVALUATION_WINDOW)  # the newest ones
        self._noted = 0  # gradients whose returns were looked at

    def note(self, arrivals: Sequence[Arrival]) -> None:
        """The newest gradients; the same ones may be shown again."""
        if self._config.stop_at_return is not None and arrivals and arrivals[-1].gradient > self._noted:
            self._noted = arrivals[-1].gradient
            self._returns.extend(a.stats.mean_return for a in arrivals if a.stats.mean_return is not None)

    def judge(self, evaluations: Sequence[Evaluation]) -> None:
        """One evaluation of theta: sampled where there are two kinds, the mean where agents have environments of
        their own."""
        if self._config.stop_at_evaluation is not None and evaluations:
            means = [evaluation.mean for evaluation in evaluations if evaluation.kind == evaluations[0].kind]
            self._evaluations.append(math.fsum(means) / len(means))

    def met(self, seconds: float) -> str:
        """The setting that ends the run now; empty where none does."""
        if self._none:
            return ""
        config = self._config
        if _at(self._returns, config.stop_at_return):
            return "stop_at_return"
        if _at(self._evaluations, config.stop_at_evaluation):
            return "stop_at_evaluation"
        over = config.stop_at_seconds is not None and seconds >= config.stop_at_seconds
        return "stop_at_seconds" if over else ""

    def to_tree(self) -> dict[str, Any]:
        return {"recent": list(self._returns), "judged": list(self._evaluations)}

    def from_tree(self, tree: dict[str, Any], gradients: int) -> None:
        self._returns.extend(tree["recent"])
        self._evaluations.extend(tree.get("judged", ()))
        self._noted = gradients


def _at(window: deque[float], goal: float | None) -> bool:
    return goal is not None and len(window) == window.maxlen and math.fsum(window) / len(window) >= goal
