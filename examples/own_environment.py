"""An environment of your own, another one for every agent, trained by a federation in a few lines.

Each agent's boat drifts with its own current. Observations are a dictionary, as Gymnasium allows; the one policy learns
to steer to the buoy in all currents at once.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from afedpg import train

MOVES = np.array([(0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1)])


class Boat(gymnasium.Env):
    observation_space = spaces.Dict({"boat": spaces.Box(-1.0, 1.0, (2,)), "buoy": spaces.Box(-1.0, 1.0, (2,))})
    action_space = spaces.Discrete(4)

    def __init__(self, current: float) -> None:
        self.current = np.array((current, 0.0))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.boat, self.buoy = self.np_random.uniform(-1, 1, (2, 2))
        self.steps = 0
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.boat = np.clip(self.boat + MOVES[action] + self.current, -1, 1)
        self.steps += 1
        distance = float(np.linalg.norm(self.boat - self.buoy))
        return self._look(), -distance, distance < 0.1, self.steps == 50, {}

    def _look(self) -> dict[str, Any]:
        return {"boat": self.boat.astype(np.float32), "buoy": self.buoy.astype(np.float32)}


def make_boat(agent_id: int) -> Boat:
    """At the top level of a module, so that worker processes can import it."""
    return Boat(current=0.02 * (agent_id - 1.5))


def main() -> None:
    settings: dict[str, Any] = {"agents": 4, "make_env": make_boat, "steps": 512, "evaluate_episodes": 20}
    settings["evaluate_kind"] = "sampled"
    before = train("Boat", iterations=1, **settings)
    after = train("Boat", iterations=60, **settings)
    for first, last in zip(before.evaluations, after.evaluations, strict=True):
        print(
            f"{first.environment}: return {first.mean:.1f} after 4 gradients, {last.mean:.1f} after {after.gradients}"
        )


if __name__ == "__main__":
    main()
