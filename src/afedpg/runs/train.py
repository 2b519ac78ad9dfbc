"""`train`, `run` and `resume`: one training run from its configuration to its result, whichever the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from afedpg.config import Config
from afedpg.engine import spawn
from afedpg.engine.cost import Cost
from afedpg.engine.federation import OnArrival
from afedpg.engine.workloads import MakeEnv, MakePolicy
from afedpg.errors import ConfigError
from afedpg.messages import Codec
from afedpg.options import place, whole
from afedpg.record.folder import open_run
from afedpg.runs.callbacks import Callback, OwnOnArrival, watchers
from afedpg.runs.extend import extend
from afedpg.runs.keywords import Settings
from afedpg.runs.parts import Own, configure, warn_of_versions
from afedpg.runs.requests import NewRun, StoredRun
from afedpg.runs.result import Result
from afedpg.runs.stored import open_checked
from afedpg.runs.virtual import resume_virtual, run_virtual
from afedpg.server.aggregators import Aggregator
from afedpg.server.rules import Recipe
from afedpg.server.schedules import Schedule

if TYPE_CHECKING:
    from afedpg.agent.estimators.estimator import Estimator
    from afedpg.sampling.environments import OwnSites
    from afedpg.terminal.progress import Display

PLAIN_SECONDS = 2.0  # between two lines of progress where there is no terminal
WORTH_A_WORKER = 50_000  # environment steps; a worker needs about as long to start as one core for these


def train(
    task: str,
    *,
    method: str | Recipe | None = None,
    alpha: float | Schedule | None = None,
    eta: float | Schedule | None = None,
    timing: str | Callable[..., float] | None = None,
    estimator: str | Estimator | None = None,
    aggregator: str | Aggregator | None = None,
    codec: str | Codec | None = None,
    sites: str | OwnSites | None = None,
    make_env: MakeEnv | None = None,
    make_policy: MakePolicy | None = None,
    on_arrival: OwnOnArrival | None = None,
    callbacks: Callback | Sequence[Callback] | None = (),
    progress: bool = False,
    preset: str | Path | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    **settings: Unpack[Settings],
) -> Result:
    """Trains one policy and returns it; with `out`, also writes a run folder that can be resumed.

        train("quadratic", agents=4, iterations=500, eta=lambda k, v: 0.5 / (k + 1))

    Args:
        task: a short name (hopper, ...), a Gymnasium id, MODULE:ID or a synthetic problem.
        method: the server's rule, by name or as a recipe (alpha, eta) -> ServerRule of your own.
        alpha: a number, or a schedule (iteration, version) -> float.
        eta: a number, or a schedule (iteration, version) -> float.
        timing: a timing model by name, or a function (agent, n) -> seconds.
        estimator: what an agent makes of its rollout, by name or as an object of your own.
        aggregator: when the server steps, by name or as an object of your own.
        codec: how a contribution travels, by name or as an object of your own.
        sites: how environments differ between agents: by name, or a function (env, agent) -> env of your own, or an
            object with the method site(agent).
        make_env: agent -> its gymnasium.Env, instead of the task of that name.
        make_policy: (observation space, action space) -> a torch module of your own.
        on_arrival: called with (arrival, seconds, theta) after each applied gradient; theta is a copy. It ends the run
            by returning False, which 0 and None are not.
        callbacks: objects of afedpg.Callback, or one of them, which hear of gradients and evaluations and may end the
            run, as afedpg.EarlyStopping does.
        progress: show how far the run is, on stderr or below a notebook's cell.
        preset: settings to start from: paper, ppo, tuned, or a .toml file.
        out: the run folder to write; without it nothing is kept on the disk.
        workers: processes that compute, without an influence on the result; by default one per core where that pays,
            and 1 where they would have to run your script again to have your functions.
        **settings: as in `afedpg train --help`, typed and explained in `afedpg.runs.keywords.Settings`.
            The run: agents, iterations, seed, engine, from_run, stop_at_return, stop_at_evaluation, stop_at_seconds;
            of synthetic problems batch, of the quadratic one dimension, noise, optima.
            alpha and eta: schedule, eta_floor, literal, literal_constants.
            Virtual time: fastest, spread, speeds, sigma, shape, trace, silent, late, drop, update_share; of messages
            latency, bandwidth, transfer.
            Agents that lie: attack, attackers.
            The policy: hidden, activation, mean, log_std.
            The gradient: steps, gamma, gae_lambda, baseline, baseline_hidden, baseline_rate, baseline_epochs,
            scale_advantages, scale_observations, scaling, scale_rewards, horizon, segment, entropy, value_weight.
            The code that computes: sampler, compute, device. The environment: env_kwargs,
            max_episode_steps.
            What is kept: checkpoint_seconds, keep_checkpoints, journal_mib, keep_reports, evaluate_every,
            evaluate_episodes, evaluate_kind.
            Agents in other processes: lease, deadline, max_norm, max_delay, max_rate, max_share, durable.
            A Ray cluster: ray_address, agent_cpus, agent_gpus.

    Raises:
        ConfigError: a setting that makes no sense, alone or with the others, in one line that names it.
    """
    spawn.reached()
    given: dict[str, Any] = {
        "method": method, "alpha": alpha, "eta": eta, "timing": timing,
        "estimator": estimator, "aggregator": aggregator, "codec": codec, "sites": sites,
    }  # fmt: skip
    plain = (str, int, float, np.generic)
    named = {name: value for name, value in given.items() if isinstance(value, plain)}
    brought = {name: value for name, value in given.items() if value is not None and name not in named}
    own = Own(**brought, make_env=make_env, make_policy=make_policy)
    config = configure(task, preset, {**named, **settings}, own)
    with shown(config, progress) as display:
        heard = watchers(config, callbacks, on_arrival, display)
        announce = _silently if display is None else display.announce
        return run(config, own, None if out is None else place("out", out), workers, heard, announce)


def _silently(cost: Cost) -> None: ...


@contextmanager
def shown(config: Config, progress: bool) -> Iterator[Display | None]:
    """A line every few seconds where there is no terminal, as in a notebook, and one at the end."""
    if not progress:
        yield None
        return
    from afedpg.terminal.progress import Display

    with Display(config, plain_seconds=PLAIN_SECONDS, to_the_end=True) as display:
        yield display


def run(
    config: Config,
    own: Own = Own(),
    out: Path | None = None,
    workers: int | None = None,
    on_arrival: OnArrival | None = None,
    announce: Callable[[Cost], None] = lambda cost: None,
    until: int | None = None,
    numbered: bool = False,
) -> Result:
    """A new run of a validated configuration; `until` ends it after so many gradients, as `replay` does. Where `out`
    exists, it is refused, or with `numbered` the run goes to OUT-2, OUT-3, ...
    """
    spawn.reached()
    workers = _check_workers(config, own, workers)
    new = NewRun(config, own, out, on_arrival, announce, numbered)
    if config.engine == "ray":
        from afedpg.runs.ray import run_ray

        return run_ray(new)
    if config.engine != "virtual":
        from afedpg.runs.local import run_local  # brings gRPC, which virtual time does not need

        return run_local(new)
    return run_virtual(new, workers, until)


def resume(
    path: str | Path,
    own: Own = Own(),
    workers: int | None = None,
    on_arrival: OwnOnArrival | None = None,
    warn: Callable[[str], None] = lambda text: None,
    announce: Callable[[Cost], None] = lambda cost: None,
    cluster: Mapping[str, Any] = MappingProxyType({}),
    accept_loss: bool = False,
    trust_code: bool = False,
    callbacks: Callback | Sequence[Callback] | None = (),
    progress: bool = False,
    iterations: int | str | None = None,
) -> Result:
    """Goes on where the newest whole checkpoint stands; the result is that of a run that was never interrupted.

        resume("runs/pole", iterations="+200")

    Args:
        path: the run folder.
        own: the parts of your own that the run was made with.
        workers: as of `train`.
        on_arrival: as of `train`.
        warn: is told in one line each what is not as it was.
        announce: is told what the run needs, before it goes on.
        cluster: ray_address, agent_cpus and agent_gpus for a run of the ray engine that goes on elsewhere.
        accept_loss: go on though files of the run folder are gone or cut off, without what they held.
        trust_code: import the module of its task MODULE:ID, though you have not run it before.
        callbacks: as of `train`; they take up what the checkpoint has of them.
        progress: as of `train`.
        iterations: of a finished run, how many it shall have in all, or "+200" for so many more; see `extend`.

    Raises:
        AfedpgError: the folder holds no run, or too little of it.
    """
    spawn.reached()
    check_resume(open_run(place("run", path)).config(), workers, cluster)
    longer = None if iterations is None else extend(path, iterations, own, trust_code)
    folder, config = open_checked(path, own, trust_code)
    workers = _check_workers(config, own, workers)
    with shown(config, progress) as display:
        if display is not None:
            warn, announce = display.warn, display.announce
            if longer is not None:
                display.say(longer)
        heard = watchers(config, callbacks, on_arrival, display)
        return _resume(StoredRun(folder, own, heard, warn, announce, accept_loss, cluster), workers)


def check_resume(config: Config, workers: int | None, cluster: Mapping[str, Any]) -> None:
    """Arguments that do not fit the run: found before it is made longer."""
    if cluster and config.engine != "ray":
        raise ConfigError(
            f"{next(iter(cluster))}: only used with --engine ray; this is a run of --engine {config.engine}"
        )
    if workers is not None:
        _check_workers(config, Own(), workers)


def _resume(stored: StoredRun, workers: int) -> Result:
    if stored.config.engine in ("local", "grpc"):
        from afedpg.runs.local import resume_live

        return resume_live(stored)
    warn_of_versions(stored.folder, stored.warn)
    if stored.config.engine == "ray":
        from afedpg.runs.ray import resume_ray

        return resume_ray(stored)
    return resume_virtual(stored, workers)


def _check_workers(config: Config, own: Own, workers: int | None) -> int:
    chosen = None if workers is None else whole("workers", workers, 1)
    if spawn.childless() and (config.engine == "local" or (chosen or 1) > 1):
        setting = "engine" if config.engine == "local" else "workers"
        raise ConfigError(
            f"{setting}: a process of multiprocessing.Pool may start none of its own; use the virtual engine with "
            "workers=1, or concurrent.futures.ProcessPoolExecutor"
        )
    if chosen is None:
        return default_workers(config, own)
    workers = chosen
    if workers != 1 and config.engine != "virtual":
        raise ConfigError("workers: only used with --engine virtual; elsewhere every agent is a process of its own")
    return workers


def default_workers(config: Config, own: Own = Own()) -> int:
    """One per core where the work is worth the start of a process; a synthetic gradient or a short run is not."""
    short = config.iterations * config.agents * config.agent.steps < WORTH_A_WORKER
    if config.engine != "virtual" or config.synthetic or short or spawn.childless():
        return 1
    if not own.workload(config).travels_alone():
        return 1
    return min(os.cpu_count() or 1, config.agents)
