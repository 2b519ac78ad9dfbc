"""kill -9, again and again: the run ends, every gradient counts once, and the journal gives the same bits."""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from federations import Site, site, wait_until
from twin import check_draws

from afedpg.runs.replay import replay


@pytest.mark.parametrize("aggregator", ["each", "rennala:batch=5", "malenia:batch=6", "fedbuff:size=5", "newest"])
def test_a_run_survives_kill_9_of_everything(tmp_path: Path, long: bool, aggregator: str) -> None:
    agents, iterations, server_kills, period = (8, 250, 5, 1.0) if long else (2, 80, 1, 0.5)
    total = agents * iterations
    # Emulated work, so that there is time to be killed in; run.db says a second late how far it is.
    slow = ("--seconds-per-gradient", "0.15" if long else "0.1")
    quick = slow if long else ("--seconds-per-gradient", "0.005")
    settings = ("--iterations", iterations, "--dimension", 1000, "--checkpoint-seconds", 3, "--keep-reports")
    settings += ("--aggregator", aggregator)
    with site(tmp_path, *settings, agents=agents, tls=True) as federation:
        server = federation.server()
        crew = {number: (federation.agent(number, *slow), 0) for number in range(agents)}
        server_dies_at = [total * (turn + 1) // (7 if long else 8) for turn in range(server_kills)]
        generator, agent_kills = random.Random(0), 0
        next_kill = time.monotonic() + 3 * period
        deadline = time.monotonic() + (600 if long else 180)
        while server.poll() is None:
            assert time.monotonic() < deadline, federation.log()[-2000:]
            if server_dies_at and _answered(federation) >= server_dies_at[0]:
                server_dies_at.pop(0)
                _kill(server)
                server = federation.server()
            if time.monotonic() >= next_kill:
                number = generator.randrange(agents)
                agent, before = crew[number]
                joined = _joined(federation, number)
                if joined > before:  # on a slow machine, agents killed as they start would never get to work
                    _kill(agent)
                    how = slow if server_dies_at else quick
                    crew[number], agent_kills = (federation.agent(number, *how), joined), agent_kills + 1
                next_kill = time.monotonic() + period
            time.sleep(0.02)
        assert server.returncode == 0, federation.log()[-2000:]
        assert not server_dies_at
        assert agent_kills
        _check(federation, total)


def _answered(federation: Site) -> int:
    """What brings the run to its end: a dropped report counts as an applied gradient does."""
    with contextlib.suppress(sqlite3.Error):
        return federation.gradients() + int(federation.query("SELECT count(*) FROM unused")[0][0])
    return 0


def _joined(federation: Site, number: int) -> int:
    return federation.log().count(f"agent {number} (agent-{number}) joined")


def _check(federation: Site, total: int) -> None:
    """Every report that was believed was used once, or counted as unused; the last step may be made of several."""
    rows = federation.query("SELECT gradient, task_id FROM arrivals ORDER BY gradient")
    [(unused,)] = federation.query("SELECT count(*) FROM unused")
    used = len(rows)
    assert [gradient for gradient, _ in rows] == list(range(1, used + 1))
    assert len({task_id for _, task_id in rows}) == used  # none twice
    newest = "SELECT max(iteration) FROM arrivals"
    [(last,)] = federation.query(f"SELECT count(*) FROM arrivals WHERE iteration = ({newest})")
    assert total <= used + unused < total + last
    assert replay(federation.run).agrees
    check_draws(federation.run)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_the_bits_after_a_kill_are_those_of_the_journal(tmp_path: Path) -> None:
    """Nothing is applied between the kill and the look, so the resumed server must stand exactly there."""
    with site(tmp_path, "--iterations", 100000, "--dimension", 50, "--keep-reports", agents=1) as federation:
        server = federation.server()
        agent = federation.agent(0)
        wait_until(lambda: federation.gradients() > 50)
        _kill(agent)
        _kill(server)
        before = federation.gradients()
        server = federation.server()
        wait_until(lambda: _epoch(federation) == 1)
        server.send_signal(signal.SIGTERM)  # stores a checkpoint, to be compared with
        assert server.wait(60) == 130
        assert federation.gradients() >= before
        comparison = replay(federation.run)
        assert comparison.agrees
        assert comparison.gradients == federation.gradients()
        check_draws(federation.run)


def test_a_round_that_a_kill_interrupted_waits_for_all_who_took_part(tmp_path: Path) -> None:
    """The server dies with two of three reports; of the agents one comes back, then another, then the last."""
    iterations = 100
    settings = ("--method", "fedpg", "--iterations", iterations, "--dimension", 50, "--lease", 60, "--keep-reports")
    with site(tmp_path, *settings, agents=3) as federation:
        server = federation.server()
        crew = {}
        # The first keeps the round open until all are in. The others' rounds take so long that most are to come when
        # run.db tells of the first.
        for number, seconds in enumerate((1000, 0.05, 0.05, 0.05)):
            crew[number] = federation.agent(number, "--seconds-per-gradient", seconds)
            wait_until(lambda number=number: _joined(federation, number), what=f"agent {number} joins as itself")
        _kill(crew[0])
        wait_until(lambda: federation.gradients() >= 6, what="rounds are closed")
        crew[3].send_signal(signal.SIGSTOP)
        wait_until(lambda: {1, 2} <= set(_waiting(federation)), what="a round waits for the last agent")
        crew[2].send_signal(signal.SIGSTOP)
        _kill(server)
        server = federation.server()
        before = None  # run.db is whole again once a report has come: rows since the checkpoint are written anew
        for number in (2, 3):
            wait_until(lambda number=number: _waiting(federation).count(number - 1) == 2, what="a report came again")
            before = federation.gradients() if before is None else before
            time.sleep(2.5)  # the server looks after its round ten times a second, and commits every second
            assert 6 <= federation.gradients() == before < 3 * iterations
            crew[number].send_signal(signal.SIGCONT)
        assert server.wait(90) == 0, federation.log()[-2000:]
        _check(federation, 3 * iterations)
        members = federation.query("SELECT iteration, group_concat(agent) FROM arrivals GROUP BY iteration")
        assert [(k, sorted(agents.split(","))) for k, agents in members] == [
            (k, ["1", "2", "3"]) for k in range(iterations)
        ]
        assert not federation.query("SELECT reason FROM unused")


def _waiting(federation: Site) -> list[int]:
    """Whose reports came in for the round that is open, and before a kill for the same one."""
    query = "SELECT agent FROM waits WHERE iteration > (SELECT coalesce(max(iteration), -1) FROM arrivals)"
    return [agent for (agent,) in federation.query(query)]


def _epoch(federation: Site) -> int:
    return int(federation.status()["epoch"])
