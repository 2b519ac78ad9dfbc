"""From a configuration to the agents' work. Picklable, so that every worker process builds its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afedpg.config import Config
from afedpg.messages import Workload
from afedpg.problems import ProblemWorkload, make_problem

MakeEnv = Callable[[int], Any]  # agent -> its gymnasium.Env


@dataclass(frozen=True)
class BuildWorkload:
    config: Config
    make_env: MakeEnv | None = None

    def __call__(self) -> Workload:
        if self.config.synthetic:
            return ProblemWorkload(make_problem(self.config), self.config.seed)
        from afedpg.agent.work import (
            EnvironmentWorkload,
        )  # torch and Gymnasium, which a synthetic problem does not need

        return EnvironmentWorkload(self.config, self.make_env)
