"""`afedpg server`, `agent`, `certs` and `status`. Heavy imports happen inside, so that `--help` answers at once."""

from __future__ import annotations

import argparse
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from afedpg import config as configuration
from afedpg.commands.outcome import report
from afedpg.commands.parser import add_accept_loss, command
from afedpg.commands.settings import add_own_settings, add_settings, given_settings
from afedpg.errors import ConfigError
from afedpg.validation import validate

if TYPE_CHECKING:
    from afedpg.messages import Workload
    from afedpg.runs.serve import Place

LISTEN = "127.0.0.1:7443"


def add_commands(commands: Any) -> None:
    _add_server(commands)
    _add_agent(commands)
    _add_certs(commands)
    _add_status(commands)


# server


def _add_server(commands: Any) -> None:
    help = "serve a federation: agents on other machines dial in"
    example = "afedpg server hopper --preset tuned --listen 0.0.0.0:7443 --cert certs/server --out runs/hospital"
    parser = command(commands, "server", help, example, _server)
    add_settings(parser, engine="grpc")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=LISTEN, help=f"where agents dial in (default: {LISTEN})"
    )
    _add_identity(parser, "the server's folder of `afedpg certs`")
    parser.add_argument("--allow", metavar="FILE", help="names that may take part; default: allowed.txt beside --cert")
    parser.add_argument("--out", metavar="DIR", required=True, help="run folder")
    parser.add_argument("--resume", action="store_true", help="go on if the run folder exists; its settings then count")
    add_accept_loss(parser)


def _add_identity(parser: Any, what: str) -> None:
    parser.add_argument("--cert", metavar="DIR", help=what)
    parser.add_argument("--insecure", action="store_true", help="no TLS; on this machine only")


def _server(options: argparse.Namespace) -> int:
    _one_thread_from_the_start()
    from afedpg.compiled import release_compiler_after_use
    from afedpg.options import place as path_of
    from afedpg.parts import files
    from afedpg.record.folder import open_run
    from afedpg.record.trust import check_trust
    from afedpg.runs.parts import Own, configure
    from afedpg.runs.requests import NewRun, StoredRun
    from afedpg.runs.serve import resume_server, run_server
    from afedpg.terminal.progress import Display

    release_compiler_after_use()
    _log_to_stderr()
    place, out = _place(options), path_of("out", options.out)
    going_on = options.resume and (out / "run.toml").is_file()
    given = {**given_settings(options), "engine": "grpc"}
    config = open_run(out).config() if going_on else configure(options.task, options.preset, given)
    with Display(config, quiet=options.json) as display:
        if going_on:
            given = dict(given_settings(options))  # who names the task and the parts names their code
            named = options.task == config.task and all(given.get(kind) for kind in files(config))
            check_trust(config, trust=named)
            stored = StoredRun(open_run(out), Own(), display, display.warn, display.announce, options.accept_loss)
            result = resume_server(stored, place, _listens)
        else:
            result = run_server(NewRun(config, Own(), out, display, display.announce), place, _listens)
    report(options, result)
    return 0


def _place(options: argparse.Namespace) -> Place:
    from afedpg.runs.serve import Place

    _check_identity(options)
    if options.insecure:
        place = Place(options.listen, allow=Path(options.allow) if options.allow else None)
    else:
        cert = Path(options.cert)
        place = Place(options.listen, cert, Path(options.allow) if options.allow else cert.parent / "allowed.txt")
    place.check()
    return place


def _listens(port: int) -> None:
    logging.getLogger("afedpg").info("listening on port %d", port)


# agent


def _add_agent(commands: Any) -> None:
    help = "take part in a federation with this machine's own environment"
    example = "afedpg agent hopper --connect federation.example:7443 --cert certs/agents/clinic-a"
    parser = command(commands, "agent", help, example, _agent)
    parser.add_argument("task", metavar="TASK", help="your own environment; must be the federation's task")
    parser.add_argument("--connect", metavar="HOST:PORT", required=True, help="the server")
    _add_identity(parser, "this agent's folder of `afedpg certs`")
    parser.add_argument("--name", default="", help="who this is, with --insecure; otherwise the certificate says")
    add_own_settings(parser, "env_kwargs", "device", "sampler", "compute", "estimator", "codec", "sites", "attack")
    parser.add_argument(
        "--state", metavar="FILE", help="keep this agent's state here, so that a restart goes on with it"
    )
    parser.add_argument("--patience", type=float, default=0.0, metavar="S", help="give up after S seconds; 0: never")
    parser.add_argument(
        "--seconds-per-gradient", type=float, default=0.0, metavar="X", help="emulate a machine that needs X seconds"
    )


def _agent(options: argparse.Namespace) -> int:
    _one_thread_from_the_start()
    from afedpg.compiled import release_compiler_after_use
    from afedpg.engine.workloads import BuildWorkload, check_local
    from afedpg.transport.grpc.client import agent_main
    from afedpg.transport.grpc.membership import AgentOptions
    from afedpg.transport.grpc.roster import check_name
    from afedpg.transport.grpc.terms import custom_parts
    from afedpg.transport.grpc.tls import Identity, require_loopback, split_address

    release_compiler_after_use()
    _log_to_stderr()
    host, _ = split_address(options.connect, "connect")
    _check_identity(options)
    for name in ("patience", "seconds_per_gradient"):
        if not 0 <= getattr(options, name) <= configuration.LONGEST_LEASE:
            longest = f"{configuration.LONGEST_LEASE:g}"
            raise ConfigError(f"{name}: {getattr(options, name):g} seconds; between 0 and {longest} are needed")
    if options.insecure:
        require_loopback(host)
        if not options.name:
            raise ConfigError("name: with --insecure no certificate says who this is; give --name NAME")
        check_name(options.name)
    config = _own_config(options)
    attack = getattr(options, "attack", "")
    if attack:
        check_local(replace(config, engine="grpc", attack=attack))

    def build(config: configuration.Config) -> Workload:
        liars = tuple(range(config.agents)) if attack else ()  # of all it knows of, it is itself
        return BuildWorkload(replace(config, attack=attack, attackers=liars))()

    agent = AgentOptions(
        options.connect,
        config,
        build,
        None if options.insecure else Identity.read(Path(options.cert)),
        options.name,
        seconds_per_gradient=options.seconds_per_gradient,
        state=None if options.state is None else Path(options.state),
        patience=options.patience,
        custom=custom_parts(BuildWorkload(config)),
    )
    agent_main(agent, lambda reports: json.dumps({"reports": reports}) if options.json else f"{reports} reports")


def _own_config(options: argparse.Namespace) -> configuration.Config:
    """What an agent decides for itself; the rest are the server's terms."""
    settings = {**given_settings(options), "task": options.task, "agents": 1, "attack": ""}
    return validate(configuration.from_settings(settings))


# certs, status


def _add_certs(commands: Any) -> None:
    help = "make the certificates of a federation: an authority, a server, an operator, and one per agent"
    parser = command(
        commands, "certs", help, "afedpg certs certs --host federation.example --agents clinic-a,clinic-b", _certs
    )
    parser.add_argument("folder", metavar="DIR", help="where to write; what is there already stays")
    parser.add_argument(
        "--host", metavar="A,B", default="localhost,127.0.0.1", help="names and addresses of the server"
    )
    parser.add_argument("--agents", metavar="N|A,B,...", default="", help="how many, or their names")
    parser.add_argument("--days", type=int, default=365, help="how long they are good for (default: 365)")


def _certs(options: argparse.Namespace) -> int:
    from afedpg.transport.grpc.certs import agent_names, make_certificates, words

    agents = agent_names(options.agents)
    made = make_certificates(Path(options.folder), words(options.host), agents, options.days)
    if options.json:
        print(json.dumps([str(folder) for folder in made]))
        return 0
    for folder in made:
        print(folder)
    print(f"allow-list: {Path(options.folder) / 'allowed.txt'}; keep {Path(options.folder) / 'authority'} to yourself")
    return 0


def _add_status(commands: Any) -> None:
    help = "who is in: delays, rates, bytes, rejected, last seen"
    parser = command(commands, "status", help, "afedpg status runs/hospital", _status)
    parser.add_argument("where", metavar="RUN|HOST:PORT", help="the server's run folder, or the server itself")
    _add_identity(parser, "the operator's folder of `afedpg certs`, to ask the server")


def _status(options: argparse.Namespace) -> int:
    from afedpg.record.folder import open_run
    from afedpg.terminal.status import stored, table

    folder = Path(options.where)
    document = stored(open_run(folder)) if folder.is_dir() else _asked_status(options)
    print(json.dumps(document) if options.json else table(document))  # JSON as ASCII: nothing in it is obeyed
    return 0


def _asked_status(options: argparse.Namespace) -> dict[str, Any]:
    from afedpg.transport.grpc.ask import ask_status
    from afedpg.transport.grpc.tls import Identity, require_loopback, split_address

    host, _ = split_address(options.where, "where")
    if options.cert is None:
        require_loopback(host)
        return ask_status(options.where, None)
    return ask_status(options.where, Identity.read(Path(options.cert)))


def _check_identity(options: argparse.Namespace) -> None:
    if (options.cert is None) != options.insecure:
        raise ConfigError("cert: give --cert DIR (see `afedpg certs`), or --insecure on this machine only")


def _log_to_stderr() -> None:
    from afedpg.terminal.text import StderrHandler

    logging.basicConfig(handlers=[StderrHandler()], level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def _one_thread_from_the_start() -> None:
    """Before numpy and torch are loaded, which read these once."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
