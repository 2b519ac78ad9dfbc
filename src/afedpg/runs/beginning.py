"""A run that begins at another run's theta: whether it is the same policy here, and whether it is still that theta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from afedpg.config import Config
from afedpg.engine.delegate import bare
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Vector, Workload
from afedpg.record import checkpoint
from afedpg.record.agreement import SETTINGS, settings_of
from afedpg.record.database import read_notes
from afedpg.record.folder import RunFolder, open_run
from afedpg.record.loss import warn_of_beginning
from afedpg.record.recorder import Recorder
from afedpg.server.rules import ServerRule
from afedpg.server.state import ServerState, begin_with, from_tree, initial_state

if TYPE_CHECKING:
    from afedpg.agent.work import EnvironmentWorkload

_BEGAN = "began"  # note of run.db: SHA-256 of the theta that it took from another run


def continued(config: Config, rule: ServerRule, workload: Workload, folder: RunFolder | None) -> ServerState:
    """At the newest theta of `config.from_run`; `folder`: the run that began with it, if it began before."""
    source = open_run(Path(config.from_run), "from_run")
    _, tree = checkpoint.load_latest(source.checkpoints)
    before = from_tree(tree["server"])
    warn_of_beginning(source, before.iteration)
    if folder is not None:
        _check_unmoved(folder, config.from_run, before.theta)
    then = {**settings_of(Config()), **(tree.get(SETTINGS) or settings_of(source.config()))}
    _check_meaning(config, bare(workload), then)
    if before.theta.size != workload.parameters:
        sizes = f"{before.theta.size} parameters, this task's policy has {workload.parameters}"
        raise ConfigError(f"from_run: the policy of {config.from_run} has {sizes}")
    if not config.synthetic:
        _check_policy(source, cast("EnvironmentWorkload", bare(workload)))
    server = initial_state(rule, before.theta)
    used = workload.exchange.statistics
    begin_with(server, {name: moments for name, moments in before.statistics.items() if name in used})
    return server


def note_beginning(config: Config, recorder: Recorder, theta: Vector) -> None:
    """The other run may go on, and has another theta then."""
    if config.from_run:
        recorder.database.note(_BEGAN, checkpoint.theta_sha256(theta))
        recorder.database.commit()


def _check_unmoved(folder: RunFolder, source: str, theta: Vector) -> None:
    notes: dict[str, str] = {}
    with suppress(AfedpgError):  # damaged, or not there: nothing tells
        notes = read_notes(folder.database)
    if notes.get(_BEGAN, sha := checkpoint.theta_sha256(theta)) != sha:
        raise AfedpgError(
            f"from_run: {source} has gone on since {folder.path} began at its theta, which it no longer has; this run "
            "cannot be computed or replayed from its start (next time, begin at a copy of the folder)"
        )


def _check_meaning(config: Config, workload: Workload, then: Mapping[str, Any]) -> None:
    """The settings that say which policy, and which critic, a vector of numbers is."""
    path = config.from_run
    tasks = then["task"], config.task
    if config.synthetic or Config(task=then["task"]).synthetic:
        if tasks[0] != tasks[1]:
            raise ConfigError(f"from_run: {path} is a run on {tasks[0]}, whose theta means nothing on {tasks[1]}")
        return
    own = any(entry.startswith("make_policy:") for entry in then["own"])
    environment = cast("EnvironmentWorkload", workload)
    if own != (environment.make_policy is not None):
        has, how = ("a policy of its own", "give the same") if own else ("a shipped policy", "leave it out")
        raise ConfigError(f"from_run: {path} was trained with {has}; make_policy: {how}")
    now = settings_of(config)
    differing = [name for name in _meaningful(environment) if then[name] != now[name]]
    if differing:
        was, here = (" ".join(_flag(name, settings[name]) for name in differing) for settings in (then, now))
        raise ConfigError(
            f"from_run: {path} was trained with {was}, this run has {here}, with which its theta is another policy or "
            f"critic; use {was}"
        )


def _meaningful(workload: EnvironmentWorkload) -> Iterator[str]:
    """Settings that change what theta says, though not how long it is, where they are used."""
    from afedpg.policy.mlp import MlpPolicy  # Gymnasium's side, which a synthetic problem does not need

    policy, estimator = workload.policy, workload.estimator
    critic = estimator.value_network or workload.parameters > policy.layout.size  # theta goes on with it
    shipped = isinstance(policy, MlpPolicy)
    if shipped:
        yield "hidden"
    if shipped or critic:
        yield "activation"
    if isinstance(policy, MlpPolicy) and policy.gaussian:
        yield "mean"
    if workload.environments.observations.image is None:
        yield "scale_observations"
    if critic:
        yield "scale_rewards"
    if critic and estimator.own_critic:
        yield "baseline_hidden"


def _flag(name: str, value: Any) -> str:
    """As the command line takes it."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{option}"
    return f"--{option} {','.join(map(str, value)) if isinstance(value, list) else value}"


def _check_policy(source: RunFolder, workload: EnvironmentWorkload) -> None:
    """What no setting shows: tensors of other shapes, though as many numbers, and actions of another kind."""
    from afedpg.export.policy_file import read_policy

    try:
        made = read_policy(source.path, which="last")
    except AfedpgError:  # not there, or damaged: the checkpoint is what counts
        return
    actions = workload.environments.actions.space
    if made.layout != workload.policy.layout:
        raise ConfigError(f"from_run: the policy of {source.path} has tensors of other names or shapes than this run's")
    if made.action_space != actions:
        raise ConfigError(
            f"from_run: the policy of {source.path} acts in {made.action_space}, this task takes {actions}"
        )
