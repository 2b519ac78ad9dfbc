"""The return of each agent over the run, in few points."""

from __future__ import annotations

import numpy as np

from afedpg.dashboard.agent_returns import MOST_AGENTS, AgentReturns


def rows_of(agents, returns, first=0):
    steps = np.arange(first, first + len(agents), dtype=float)
    return {"agent": np.array(agents, float), "iteration": steps, "mean_return": np.array(returns, float)}


def test_agent_returns_are_means_over_equal_stretches_whatever_the_pieces():
    generator = np.random.default_rng(1)
    agents, returns = generator.integers(3, 8, 5000), generator.normal(size=5000)
    returns[::7] = np.nan  # reports in which no episode ended
    agents[:1000] = np.maximum(agents[:1000], 5)  # the first by number come later
    whole, pieces = AgentReturns(), AgentReturns()
    whole.add(rows_of(agents, returns))
    for start in range(0, 5000, 333):
        pieces.add(rows_of(agents[start : start + 333], returns[start : start + 333], start))
    found = whole.points()
    assert pieces.points() == found
    assert found["agent"] == [3, 4, 5, 6, 7]
    assert 24 <= len(found["iteration"]) <= 48
    assert found["iteration"][-1] == 5000
    inside = (np.arange(5000) // whole.width == 5) & (agents == 6)
    assert found["returns"][3][5] == float(f"{np.nanmean(returns[inside]):.6g}")


def test_of_too_many_agents_nothing_is_kept():
    returns = AgentReturns()
    returns.add(rows_of(range(MOST_AGENTS), np.ones(MOST_AGENTS)))
    assert len(returns.points()["agent"]) == MOST_AGENTS
    returns.add(rows_of([MOST_AGENTS], [1.0], MOST_AGENTS))
    assert returns.points() == {"iteration": [], "agent": [], "returns": []}
