"""From a configuration to the agents' work. Picklable, so that every worker process builds its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afedpg.config import Config
from afedpg.engine.spawn import check_importable, needs_script
from afedpg.errors import ConfigError
from afedpg.messages import Workload
from afedpg.problems import ProblemWorkload, make_problem

MakeEnv = Callable[[int], Any]  # agent -> its gymnasium.Env
MakePolicy = Callable[[Any, Any], Any]  # observation space, action space -> a torch module; see policy/own.py


@dataclass(frozen=True)
class BuildWorkload:
    config: Config
    make_env: MakeEnv | None = None
    make_policy: MakePolicy | None = None

    def __call__(self) -> Workload:
        if self.config.synthetic:
            return ProblemWorkload(make_problem(self.config), self.config.seed)
        from afedpg.agent.work import EnvironmentWorkload  # Gymnasium, which a synthetic problem does not need

        return EnvironmentWorkload(self.config, self.make_env, self.make_policy)

    def travels_alone(self) -> bool:
        """Whether other processes can have it without running the script that started this one again."""
        try:
            return not needs_script(pickle.dumps(self))
        except (pickle.PicklingError, AttributeError, TypeError):
            return False

    def check_portable(self) -> None:
        """Found out here rather than in a process that cannot start."""
        for name in ("make_env", "make_policy"):
            try:
                check_importable(name, getattr(self, name))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ConfigError(
                    f"{name}: other processes import it by name, so it must be a function at the top level "
                    "of a module; move it there, or use the virtual engine with workers=1"
                ) from error
