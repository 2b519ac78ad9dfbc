"""From a configuration to the agents' work. Picklable, so that every worker process builds its own."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from afedpg.config import Config
from afedpg.engine.delegate import Delegate
from afedpg.engine.spawn import check_importable, needs_script
from afedpg.errors import ConfigError
from afedpg.messages import AgentState, Codec, Exchange, Float32, Report, Task, Workload
from afedpg.parts import build
from afedpg.problems import ProblemWorkload, make_problem, make_sites

if TYPE_CHECKING:
    from afedpg.agent.attacks.worlds import World
    from afedpg.agent.estimators.estimator import Estimator
    from afedpg.sampling.environments import OwnSites

MakeEnv = Callable[[int], Any]  # agent -> its gymnasium.Env
MakePolicy = Callable[[Any, Any], Any]  # observation space, action space -> a torch module; see policy/own.py
CODECS: dict[str, type[Codec]] = {"float32": Float32}
_CODEC_METHODS = ("start", "encode", "decode", "nbytes")
_CODEC = "codec_"  # what the keys of a codec's arrays begin with, in an agent's state


@dataclass
class Encoded(Delegate):
    """Contributions leave as a codec encodes them; what the encoder remembers is part of the agent's state."""

    codec: Codec

    def __post_init__(self) -> None:
        self._exchange = replace(self.inner.exchange, codec=self.codec)

    @property
    def exchange(self) -> Exchange:
        return self._exchange

    def start(self, agent_id: int) -> AgentState:
        return {**self.inner.start(agent_id), **_named(self.codec.start(self.parameters))}

    def renew(self, state: AgentState, life: int) -> AgentState:
        kept = {key: array for key, array in state.items() if key.startswith(_CODEC)}
        return {**self.inner.renew(_without_codec(state), life), **kept}

    def prepare(self, state: AgentState, agent_id: int) -> AgentState:
        kept = {key: array for key, array in state.items() if key.startswith(_CODEC)}
        return {**self.inner.prepare(_without_codec(state), agent_id), **kept}

    def work(self, state: AgentState, task: Task) -> tuple[AgentState, Report]:
        remembered = {key.removeprefix(_CODEC): array for key, array in state.items() if key.startswith(_CODEC)}
        after, report = self.inner.work(_without_codec(state), task)
        payload, new = self.codec.encode(report.payload, remembered)
        return {**after, **_named(remembered | new)}, report._replace(payload=payload)


def _named(arrays: AgentState) -> AgentState:
    return {f"{_CODEC}{key}": array for key, array in arrays.items()}


def _without_codec(state: AgentState) -> AgentState:
    return {key: array for key, array in state.items() if not key.startswith(_CODEC)}


@dataclass(frozen=True)
class BuildWorkload:
    config: Config
    make_env: MakeEnv | None = None
    make_policy: MakePolicy | None = None
    estimator: Estimator | None = None
    codec: Codec | None = None
    sites: OwnSites | None = None
    contributions: int = 1  # to a server step: estimators' rates fall over the run's steps

    def __call__(self) -> Workload:
        workload = self._bare()
        if self.config.attackers:
            workload = self._attacked(workload)
        codec = self.codec or build("codec", self.config.codec, CODECS)
        if missing := [name for name in _CODEC_METHODS if not callable(getattr(codec, name, None))]:
            raise ConfigError(f"codec: {type(codec).__name__} does not define {', '.join(missing)}")
        return workload if isinstance(codec, Float32) else Encoded(workload, codec)

    def _bare(self) -> Workload:
        if self.config.synthetic:
            config = self.config
            return ProblemWorkload(make_problem(config), config.seed, steps=config.batch, sites=make_sites(config))
        from afedpg.agent.work import EnvironmentWorkload  # Gymnasium, which a synthetic problem does not need

        parts = (self.make_env, self.make_policy, self.estimator, self.sites)
        return EnvironmentWorkload(self.config, *parts, self.contributions)

    def _attacked(self, honest: Workload) -> Workload:
        """With liars among the agents. Those that know everything are the virtual engine's."""
        from afedpg.agent.attacks.reports import Lie  # Gymnasium, again
        from afedpg.agent.attacks.shipped import attack_of
        from afedpg.agent.attacks.worlds import World
        from afedpg.engine.attacked import Attacked

        config, attack = self.config, attack_of(self.config.attack)
        liars = frozenset(config.attackers)
        if isinstance(attack, Lie):
            return Attacked(honest, liars, config.seed, attack.fitted(honest.exchange))
        if isinstance(attack, World):
            return Attacked(honest, liars, config.seed, None, self._elsewhere(attack))
        check_local(config)
        return honest

    def _elsewhere(self, world: World) -> Workload:
        from afedpg.agent.attacks.worlds import ChangedEnvironments, ChangedProblem

        config = self.config
        if config.synthetic:
            return ProblemWorkload(ChangedProblem(make_problem(config), world), config.seed, steps=config.batch)
        make_env = ChangedEnvironments(config, self.make_env, world, self.sites)
        sampler = config.agent.sampler.replace("native", "auto")  # the native one does not know every other world
        changed = replace(config, agent=replace(config.agent, sampler=sampler))
        return replace(self, config=changed, make_env=make_env)._bare()

    def travels_alone(self) -> bool:
        """Whether other processes can have it without running the script that started this one again."""
        try:
            return not needs_script(pickle.dumps(self))
        except (pickle.PicklingError, AttributeError, TypeError):
            return False

    def check_portable(self) -> None:
        """Found out here rather than in a process that cannot start."""
        for name in ("make_env", "make_policy", "estimator", "codec", "sites"):
            part = getattr(self, name)
            function = part is None or hasattr(part, "__name__") or name.startswith("make")
            try:
                check_importable(name, part if function else type(part))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ConfigError(
                    f"{name}: other processes import it by name, so it must be defined at the top level "
                    "of a module; move it there, or use the virtual engine with workers=1"
                ) from error


def check_local(config: Config) -> None:
    """What agents could only do that knew everything exists in virtual time alone."""
    from afedpg.agent.attacks.shipped import Omniscient, attack_of

    if isinstance(attack_of(config.attack), Omniscient) and config.engine != "virtual":
        raise ConfigError(f"attack: {config.attack} knows every agent's contribution; use --engine virtual")
