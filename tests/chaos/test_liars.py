"""Real processes of which two lie and one floods: the others learn, every report counts once, and replay agrees."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from federations import Site, site, wait_until

from afedpg.runs.replay import replay

AGENTS, LIARS, FLOODER = 8, (5, 6), 7
SOLVED, MINUTES = 475.0, 10.0


def best(federation: Site) -> float:
    if not federation.gradients():
        return 0.0
    return float(federation.query("SELECT coalesce(max(mean), 0) FROM evaluations")[0][0])


def test_cartpole_among_liars_and_a_flood(tmp_path: Path, long: bool) -> None:
    """A third of them is against the others, so `share` says so."""
    if not long:
        pytest.skip("takes minutes: only with --long")
    settings = (
        "--iterations", 100_000, "--steps", 256, "--schedule", "constant", "--eta", 0.01, "--evaluate-every", 5,
        "--aggregator", "slots:share=0.4", "--keep-reports", "--checkpoint-seconds", 20, "--compute", "auto",
    )  # fmt: skip
    with site(tmp_path, *settings, task="CartPole-v1", agents=AGENTS, tls=True) as federation:
        server = federation.server()
        for number in range(AGENTS):
            how: tuple[object, ...] = ("--seconds-per-gradient", 0.05 if number == FLOODER else 0.5)
            if number in LIARS:
                how += ("--attack", "scaled-sign-flip")
            if number == FLOODER:
                how += ("--attack", "noise")
            federation.agent(number, *how)
        took = wait_until(lambda: best(federation) >= SOLVED, 60 * MINUTES, what="an evaluation of 475")
        suspicions = {agent["agent"]: agent["suspicion"] for agent in federation.status()["agents"]}
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 130
        arrivals = federation.query("SELECT gradient, agent, task_id FROM arrivals ORDER BY gradient")
        [(dropped,)] = federation.query(f"SELECT count(*) FROM unused WHERE agent = {FLOODER}")
        print(
            f"475 after {took:.0f} s, {len(arrivals)} contributions used, {dropped} of the flood dropped, {suspicions}"
        )
        assert [gradient for gradient, _, _ in arrivals] == list(range(1, len(arrivals) + 1))
        assert len({task_id for _, _, task_id in arrivals}) == len(arrivals)
        assert replay(federation.run).agrees
