"""A finished run becomes a longer one."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from afedpg.config import Config
from afedpg.errors import ConfigError
from afedpg.options import digits
from afedpg.record import checkpoint
from afedpg.record.agreement import check_agreement
from afedpg.record.database import read_notes
from afedpg.record.disk import to_copy
from afedpg.runs.parts import Own, check_values, rule_of
from afedpg.runs.stored import open_checked
from afedpg.server.schedules import schedules, server_steps

_log = logging.getLogger("afedpg")


def extend(path: str | Path, iterations: int | str, own: Own = Own(), trust_code: bool = False) -> str:
    """Gives a finished run more iterations, 300 in all or "+200", and says in one line what its schedules do then;
    `resume` goes on with it.

    run.toml says what the run had before, and at which server step: so it can be replayed and recomputed.
    """
    folder, config = open_checked(path, own, trust_code)
    check_values(config)
    with folder.lock():
        if not folder.database.exists() or read_notes(folder.database).get("state") != "finished":
            raise ConfigError(
                f"iterations: {path} is not finished; go on with `{to_copy('resume', folder.path)}` first"
            )
        _, tree = checkpoint.load_latest(folder.checkpoints)
        check_agreement(folder, tree, lambda text: None)  # `resume` tells what may change
        step = int(tree["server"]["iteration"])
        config = _as_begun(config, step)
        total = _total(iterations, config.iterations)
        longer = replace(config, iterations=total, extended=(*config.extended, config.iterations, step))
        said = f"{config.iterations} iterations become {total}: {_schedules(config, longer, own, step)}"
        folder.rewrite(iterations=total, extended=list(longer.extended))
    _log.info(said)
    return said


def _as_begun(config: Config, step: int) -> Config:
    """Without an extension that was written down and then refused to go on, for files that are gone: it is replaced."""
    if config.extended[-1:] != (step,):
        return config
    return replace(config, iterations=config.extended[-2], extended=config.extended[:-2])


def _total(iterations: int | str, now: int) -> int:
    text = str(iterations)
    more = digits(text.removeprefix("+"))
    if more is None:
        raise ConfigError(
            f"iterations: '{text:.32}' is neither a number of iterations in all, as 300, nor one more, as +200"
        )
    total = now + more if text.startswith("+") else more
    if total <= now:
        raise ConfigError(f"iterations: the run has {now} already, and {total} are not more; '+200' adds 200 to them")
    return total


def _schedules(config: Config, longer: Config, own: Own, step: int) -> str:
    given = {entry.partition(":")[0] for entry in config.own}
    falling = config.agent.estimator.partition(":")[0] == "clipped" and not config.agent.horizon
    agents = "; the agents' rates fall over the longer run, too" if falling else ""
    if "eta" in given or "method" in given:
        return f"your own schedules go on with the server step{agents}"
    if config.schedule.schedule != "linear":
        same = "alpha and eta go on as in a run that was this long from the start"
        exact = config.engine == "virtual" and not agents
        return f"{same}, and so does theta, bit for bit" if exact else f"{same}{agents}"
    contributions = rule_of(config, own).contributions(config.agents)
    before, after = (schedules(each, contributions)[1] for each in (config, longer))
    end = server_steps(longer, contributions)
    down, now, floor = before(step, step), after(step, step), after(end, end)
    return f"eta, which had come down to {down:.3g}, goes on at {now:.3g} and falls linearly to {floor:g}{agents}"
