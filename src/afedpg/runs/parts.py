"""From a configuration and a user's own functions to the parts a run is made of, whichever the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg import config as configuration
from afedpg import parts
from afedpg.config import Config
from afedpg.engine.own_schedules import Checked
from afedpg.engine.process import one_thread
from afedpg.engine.workloads import BuildWorkload, MakeEnv, MakePolicy
from afedpg.errors import ConfigError
from afedpg.identity import identity
from afedpg.imports import modules_in, place_of
from afedpg.messages import Codec, Workload
from afedpg.options import check_decorated
from afedpg.preset import base_of, fitted
from afedpg.record import folder as folders
from afedpg.runs.beginning import continued
from afedpg.server.aggregators import Aggregator
from afedpg.server.rules import RECIPES, Recipe, ServerRule, make_rule
from afedpg.server.schedules import Schedule
from afedpg.server.shipped import AGGREGATORS
from afedpg.server.state import ServerState, initial_state
from afedpg.validation import check_applicable, check_effect, validate

if TYPE_CHECKING:
    from afedpg.agent.estimators.estimator import Estimator
    from afedpg.sampling.environments import OwnSites

_KINDS = tuple(kind for kind, _ in configuration.PARTS)
_VALUES = "values of "  # what an entry of `own` with the parameters of a part from a file begins with
_log = logging.getLogger("afedpg")


@dataclass(frozen=True)
class Own:
    """Parts of a run that a user brings as Python functions instead of naming them.

        resume("runs/pole", Own(eta=my_schedule, make_env=my_environment))

    `train` takes each of them as an argument of the same name; whoever goes on with such a run needs them again.

    Attributes:
        method: a recipe (alpha, eta) -> ServerRule.
        alpha: a schedule (iteration, version) -> float.
        eta: a schedule (iteration, version) -> float.
        timing: (agent, n) -> seconds.
        make_env: agent -> its gymnasium.Env.
        make_policy: (observation space, action space) -> a torch module.
        estimator: what an agent makes of its rollout.
        aggregator: when the server steps.
        codec: how a contribution travels.
        sites: how environments differ between agents.
    """

    method: Recipe | None = None
    alpha: Schedule | None = None
    eta: Schedule | None = None
    timing: Callable[..., float] | None = None
    make_env: MakeEnv | None = None
    make_policy: MakePolicy | None = None
    estimator: Estimator | None = None
    aggregator: Aggregator | None = None
    codec: Codec | None = None
    sites: OwnSites | None = None

    def workload(self, config: Config, rule: ServerRule | None = None) -> BuildWorkload:
        """Who works in a run gives its rule."""
        contributions = 1 if rule is None else rule.contributions(config.agents)
        parts = (self.make_env, self.make_policy, self.estimator, self.codec, self.sites)
        return BuildWorkload(config, *parts, contributions)

    def names(self) -> tuple[str, ...]:
        return tuple(f"{name}: {identity(part).text}" for name, part in self.parts().items())

    def parts(self) -> dict[str, Any]:
        return {name: part for name in self.__dataclass_fields__ if (part := getattr(self, name)) is not None}


def check_own(config: Config, own: Own, kinds: tuple[str, ...] = tuple(Own.__dataclass_fields__)) -> None:
    """A run is continued, replayed and evaluated with the functions it was made with; their names and the values they
    carry must agree.
    """
    warn_of_code(config)
    made = {entry.partition(":")[0]: entry for entry in config.own if entry.partition(":")[0] in kinds}
    parts = {name: part for name, part in own.parts().items() if name in kinds}
    given = {name: f"{name}: {identity(part).text}" for name, part in parts.items()}
    for name, part in parts.items():  # runs of earlier versions have the bare name
        if made.get(name) == f"{name}: {getattr(part, '__name__', type(part).__name__)}":
            given[name] = made[name]
        elif not identity(part).certain:
            text = "own: %s holds values that have no text: make sure that they are those the run was made with"
            _log.warning(text, name)
    if made != given:
        texts = (", ".join(entries.values()) or "none" for entries in (made, given))
        named = "make_policy" in made and "make_policy" not in given and "method" not in kinds  # it shall act alone
        how = ", or name the policy's function: --policy FILE.py:NAME" if named else ""
        raise ConfigError(
            "own: this run was made with own parts: {}; given were: {}; use Python and Own(...)".format(*texts) + how
        )


def configure(task: str, preset: str | Path | None, settings: Mapping[str, Any], own: Own = Own()) -> Config:
    """Defaults, under the preset, under the settings given; validated, and nothing among them that would be ignored."""
    return laid_over(base_of(task, preset), task, settings, own)


def laid_over(base: Mapping[str, Any], task: str, settings: Mapping[str, Any], own: Own = Own()) -> Config:
    """The same of a preset's settings."""
    named = tuple(settings)
    base = fitted(base, settings.get("method"))
    settings = configuration.absolute_paths({**base, **settings, "task": task})
    for kind, _ in configuration.PARTS:
        if isinstance(settings.get(kind), str) and settings[kind]:
            settings[kind] = parts.absolute(kind, settings[kind])
    config = configuration.resolved(configuration.from_settings({**settings, "own": own.names()}))
    config = _counted(check_effect(check_applicable(validate(config)), named))
    if config.agent.sites or own.sites:
        if config.synthetic:
            other = "; its agents differ by --optima" if config.task == "quadratic" else ""
            raise ConfigError(f"sites: {config.task} is a synthetic problem and has no environment{other}")
        if own.make_env:
            raise ConfigError("sites: make_env makes every agent's environment already; use one of the two")
    return replace(config, own=(*config.own, *code_entries(config), *value_entries(config)))


def _counted(config: Config) -> Config:
    """With the number of sites written out: an agent of a federation does not know how many agents there are."""
    text = config.agent.sites
    spec = parts.parse("sites", text) if text else None
    if spec is None or spec.file or {"count", "values"} & spec.values.keys():
        return config
    counted = f"{text}{',' if spec.values else ':'}count={config.agents}"
    return replace(config, agent=replace(config.agent, sites=counted))


def code_entries(config: Config) -> tuple[str, ...]:
    """What run.toml keeps of the files that parts and the task's module come from, to tell when one was changed."""
    named = parts.files(config)
    for module in modules_in(config.environment):
        if (place := place_of(module)) is not None and Path(place).is_file():
            named["task"] = place
    return tuple(f"code of {kind}: {parts.code_of(kind, file)}" for kind, file in named.items())


def warn_of_code(config: Config) -> None:
    """A file that was changed since: its name and its parameters are the same, what it does may not be."""
    for entry in code_entries(config):
        kind = entry.partition(":")[0]
        if any(made.startswith(f"{kind}:") and made != entry for made in config.own):
            _log.warning("%s: its file was changed since the run was made; the bits may differ", kind)


def value_entries(config: Config) -> tuple[str, ...]:
    """What run.toml keeps of the parameters of parts from files: a default in a file is changed more easily than one of
    the package, and nothing else would tell.
    """
    found = []
    for kind in parts.files(config):
        text = parts.chosen(config)[kind]
        file, name, _ = parts.parse(kind, text)
        parts.check_fields(kind, name, parts.load(kind, file, name))
        if values := parts.values_of(parts.build(kind, text, {})):
            found.append(f"{_VALUES}{kind}: {parts.write_values(values)}")
    return tuple(found)


def check_values(config: Config, kinds: tuple[str, ...] = _KINDS) -> None:
    """A part from a file has the values that it had when the run was made. It executes the file, so trust comes first.
    Runs of earlier versions have no such entry, only what was named.
    """
    files, now = parts.files(config), parts.chosen(config)
    for entry in config.own:
        kind, _, text = entry.removeprefix(_VALUES).partition(": ")
        if not entry.startswith(_VALUES) or kind not in kinds or kind not in files:
            continue
        made = parts.read_values(kind, text)
        values = parts.read_values(kind, parts.write_values(parts.values_of(parts.build(kind, now[kind], {}))))
        for key in {**made, **values}:
            if made.get(key) != values.get(key):
                has, had = (f"{key}={each[key]!r}" if key in each else f"no {key}" for each in (values, made))
                raise ConfigError(
                    f"{kind}: {parts.parse(kind, now[kind]).name} of {files[kind]} has {has} now, but the run was made "
                    f"with {had}; put it back in the file, or in run.toml if you edited that, or begin another run at "
                    "this one's theta with `afedpg train ... --from RUN`"
                )


def warn_of_versions(folder: folders.RunFolder, warn: Callable[[str], None]) -> None:
    for change in folder.changed_versions():
        warn(f"{change}: the bits may differ from an uninterrupted run")


def prepare(config: Config, own: Own) -> tuple[Workload, ServerRule, ServerState]:
    """What a run begins with, whichever engine it is for."""
    workload, rule = parts_of(config, own)
    return workload, rule, start_state(config, rule, workload)


def parts_of(config: Config, own: Own, workers: int = 1) -> tuple[Workload, ServerRule]:
    one_thread()
    check_values(config)
    for kind, part in own.parts().items():
        check_decorated(kind, part if isinstance(part, type) else type(part))
    if workers > 1:
        own.workload(config).check_portable()
    rule = rule_of(config, own)  # before the workload, which takes longer to make
    if rule.aggregator.everyone and config.timing.silent:
        raise ConfigError(
            "silent: the server waits for every agent and would wait for ever; use afedpg, or no silent agents"
        )
    workload = own.workload(config, rule)()
    workload.check()
    if rule.synchronous and workload.exchange.late_fetch:
        raise ConfigError("aggregator: this estimator's agents fetch late, so there are no rounds to wait for")
    missing = set(rule.scalars) - {scalar.name for scalar in workload.exchange.scalars}
    if missing:
        names = ", ".join(sorted(missing))
        raise ConfigError(f"method: its rule reads {names}, which this estimator does not send; name one that does")
    return workload, replace(rule, exchange=workload.exchange)


def rule_of(config: Config, own: Own) -> ServerRule:
    """Without what its reports look like, which the workload knows."""
    recipe = own.method or parts.build("method", config.method, RECIPES)
    aggregator = own.aggregator
    if aggregator is None and config.aggregator:
        aggregator = parts.build("aggregator", config.aggregator, AGGREGATORS)
    alpha, eta = own.alpha and Checked("alpha", own.alpha), own.eta and Checked("eta", own.eta)
    return make_rule(config, recipe, alpha, eta, aggregator)


def start_state(
    config: Config, rule: ServerRule, workload: Workload, folder: folders.RunFolder | None = None
) -> ServerState:
    """`folder`: of a run that begins once more."""
    if config.from_run:
        return continued(config, rule, workload, folder)
    return initial_state(rule, workload.initial_theta())
