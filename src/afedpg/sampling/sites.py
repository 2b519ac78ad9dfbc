"""Sites: environments that differ between agents in one quantity, as where machines or patients differ.

    gravity:low=0.5,high=1.5       from half of the task's own gravity to 1.5 times as much, agent by agent
    gravity:values=[0.5,1,1.5]     agents take these in turn
    slopes.py:Slopes               one's own: a class with `site(agent)`, or a function (env, agent) -> env

A family changes the numbers of the environment that Gymnasium made. The compiled sampler uses that environment's own
model, so both samplers see the same site.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np

from afedpg.config import option
from afedpg.errors import ConfigError
from afedpg.parts import build

Environment = gymnasium.Env[Any, Any]
AIR = {"density": 1.2, "viscosity": 1.8e-5}  # kg/m^3, kg/(m s): the medium of tasks that have none
INSTEAD = "the sites themselves, instead of low, high and count"
WEIGHTS = {"forward": "_forward_reward_weight", "control": "_ctrl_cost_weight", "healthy": "_healthy_reward"}


class Site(NamedTuple):
    name: str  # sites of one name are the same
    change: Callable[[Environment], Environment]  # an environment as the task has it -> the site's


class Sites(ABC):
    """Which site an agent is at."""

    @abstractmethod
    def site(self, agent_id: int) -> Site: ...


@dataclass(frozen=True)
class Function(Sites):
    """A user's function of (env, agent): every agent is a site by itself."""

    function: Callable[[Environment, int], Environment]

    def site(self, agent_id: int) -> Site:
        return Site(f"agent {agent_id}", lambda env: self.function(env, agent_id))


@dataclass(frozen=True)
class Family(Sites):
    """Sites that differ in a factor of one quantity of the task."""

    low: float = option(0.5, "the first site's, in units of the task's own", at_least=0, at_most=100)
    high: float = option(1.5, "the last site's", at_least=0, at_most=100)
    count: int = option(0, "sites from low to high, which agents take in turn; 0: one per agent", at_least=0)
    values: tuple[float, ...] = option((), INSTEAD, at_least=0, at_most=100)

    name: ClassVar[str]

    def value(self, agent_id: int) -> float:
        if self.values:
            return self.values[agent_id % len(self.values)]
        if self.count < 2:
            return self.low
        return self.low + (self.high - self.low) * (agent_id % self.count) / (self.count - 1)

    def site(self, agent_id: int) -> Site:
        value = self.value(agent_id)
        return Site(f"{self.label.rpartition('=')[2]}={value:.6g}", partial(self._apply, value))

    @property
    def label(self) -> str:
        """As it is asked for."""
        return self.name

    def _apply(self, value: float, env: Environment) -> Environment:
        known = changes_of(env)
        if self.label not in known:
            env.close()
            task = type(env.unwrapped).__name__ if env.unwrapped.spec is None else env.unwrapped.spec.id
            has = f"it has {', '.join(known)}" if known else "it has no family"
            raise ConfigError(f"sites: {task} has no {self.label}; {has}, or give FILE.py:NAME of your own")
        known[self.label](env.unwrapped, value)
        return env


@dataclass(frozen=True)
class Gravity(Family):
    """Gravity, times a factor."""

    name = "gravity"


@dataclass(frozen=True)
class Friction(Family):
    """Sliding friction of everything that touches, times a factor (MuJoCo)."""

    name = "friction"


@dataclass(frozen=True)
class Wind(Family):
    """Wind in m/s along x, in air where the task has no medium of its own (MuJoCo)."""

    low: float = option(-5.0, "the first site's, in m/s", at_least=-100, at_most=100)
    high: float = option(5.0, "the last site's", at_least=-100, at_most=100)
    values: tuple[float, ...] = option((), INSTEAD, at_least=-100, at_most=100)

    name = "wind"


@dataclass(frozen=True)
class Length(Family):
    """Size: the pole's length, or all of a MuJoCo body with its mass, times a factor."""

    low: float = option(0.8, "the first site's, in units of the task's own", above=0, at_most=100)
    high: float = option(1.2, "the last site's", above=0, at_most=100)
    values: tuple[float, ...] = option((), INSTEAD, above=0, at_most=100)

    name = "length"


@dataclass(frozen=True)
class Reward(Family):
    """A weight of the reward, times a factor (MuJoCo)."""

    weight: str = option("forward", "which weight", tuple(WEIGHTS))

    name = "reward"

    @property
    def label(self) -> str:
        return f"reward:weight={self.weight}"


FAMILIES: dict[str, type[Family]] = {kind.name: kind for kind in (Gravity, Friction, Wind, Length, Reward)}


def make_sites(text: str, own: Any, agents: int) -> Sites | None:
    """The run's sites: an own object or function, or what the setting says; None where there are none."""
    part = own if own is not None else build("sites", text, FAMILIES) if text else None
    if part is None or isinstance(part, Sites):
        return replace(part, count=agents) if isinstance(part, Family) and not part.count else part
    if not callable(part):
        raise ConfigError(f"sites: {part!r} is no function (env, agent) -> env, and has no method site(agent)")
    return Function(part)


def changes_of(env: Environment) -> dict[str, Callable[[Any, float], None]]:
    """What can be changed in this environment, by the family's name."""
    inner: Any = env.unwrapped
    named = _ATTRIBUTES.get(f"{type(inner).__module__}:{type(inner).__name__}", {})
    found: dict[str, Callable[[Any, float], None]] = {
        name: partial(_scale, attributes) for name, attributes in named.items()
    }
    model = getattr(inner, "model", None)
    if hasattr(model, "geom_friction"):
        found |= {"gravity": _gravity, "friction": _friction, "wind": _wind}
        if model is not None and model.nmesh == 0 and _MUJOCO_FREE not in model.jnt_type:
            found["length"] = _length
        weights = {f"reward:weight={name}": attribute for name, attribute in WEIGHTS.items()}
        found |= {name: partial(_scale, (at,)) for name, at in weights.items() if hasattr(inner, at)}
    return found


_MUJOCO_FREE = 0  # mjJNT_FREE: a free body's height is a coordinate, which a change of size does not move
_ATTRIBUTES: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # class -> family -> what is multiplied
    "gymnasium.envs.classic_control.cartpole:CartPoleEnv": {
        "gravity": ("gravity",),
        "length": ("length", "polemass_length"),
    },
    "gymnasium.envs.classic_control.pendulum:PendulumEnv": {"gravity": ("g",), "length": ("l",)},
}


def _scale(attributes: tuple[str, ...], env: Any, factor: float) -> None:
    for name in attributes:
        setattr(env, name, getattr(env, name) * factor)


def _gravity(env: Any, factor: float) -> None:
    env.model.opt.gravity[:] *= factor


def _friction(env: Any, factor: float) -> None:
    env.model.geom_friction[:, 0] *= factor


def _wind(env: Any, speed: float) -> None:
    medium = env.model.opt
    if not (medium.density or medium.viscosity):
        medium.density, medium.viscosity = AIR["density"], AIR["viscosity"]
    medium.wind[0] = speed


def _length(env: Any, factor: float) -> None:
    """Every length of the moving bodies; mass goes with the third power, inertia with the fifth."""
    import mujoco

    model = env.model
    of_body = {"geom": model.geom_bodyid > 0, "site": model.site_bodyid > 0}
    for name in ("pos", "size"):
        for kind, moving in of_body.items():
            getattr(model, f"{kind}_{name}")[moving] *= factor
    for array in (model.geom_rbound, model.geom_aabb):
        array[of_body["geom"]] *= factor
    for array in (model.body_pos, model.body_ipos, model.jnt_pos):
        array[:] *= factor
    first = int(model.body_bvhnum[0])  # the world's own boxes come first
    model.bvh_aabb[first:] *= factor
    model.body_mass[:] *= factor**3
    model.body_inertia[:] *= np.float64(factor) ** 5
    mujoco.mj_setConst(model, env.data)
