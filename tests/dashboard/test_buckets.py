"""However the rows come, the page's curves are those of all rows at once, in a bounded number of points."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afedpg.dashboard import buckets
from afedpg.dashboard.buckets import CAPACITY, Concurrency, Curves
from afedpg.dashboard.members import Members
from afedpg.dashboard.tail import COLUMNS


def rows(count: int, agents: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """A run's rows: agents of random speeds who are always at work."""
    random = np.random.default_rng(seed)
    speed, due = random.uniform(1, 3, agents), random.uniform(0, 1, agents)
    version = np.zeros(agents, int)
    table = {name: np.zeros(count) for name in COLUMNS}
    for step in range(count):
        agent = int(due.argmin())
        values = (step + 1, step, agent, version[agent], step - version[agent], due[agent], 7)
        for name, value in zip(COLUMNS, values, strict=False):
            table[name][step] = value
        version[agent], due[agent] = step + 1, due[agent] + speed[agent]
    table["mean_return"] = np.where(random.random(count) < 0.3, np.nan, random.normal(size=count))
    for name in COLUMNS[8:]:
        table[name] = random.uniform(1, 9, count)
    return table


def pieces(table: dict[str, np.ndarray], cuts: list[int]) -> list[dict[str, np.ndarray]]:
    count = len(table["gradient"])
    edges = [0, *sorted(cut % (count + 1) for cut in cuts), count]
    return [{name: column[a:b] for name, column in table.items()} for a, b in pairwise(edges)]


@settings(max_examples=40)
@given(st.integers(1, 4000), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_bucket_is_the_mean_of_its_rows(count, cuts):
    table, curves = rows(count), Curves()
    for piece in pieces(table, cuts):
        curves.add(piece)
    points = curves.points()
    assert len(points["gradient"]) <= 2 * CAPACITY
    for place, start in enumerate(range(0, count, curves.width)):
        part = slice(start, min(start + curves.width, count))
        assert points["gradient"][place] == table["gradient"][part][-1]
        assert points["seconds"][place] == pytest.approx(table["seconds"][part][-1], rel=1e-5)
        assert points["steps"][place] == 7 * part.stop
        returns = table["mean_return"][part]
        known = returns[~np.isnan(returns)]
        if len(known):
            assert points["mean_return"][place] == pytest.approx(known.mean(), rel=1e-5, abs=1e-9)
            assert points["return_low"][place] == pytest.approx(known.min(), rel=1e-5)
            assert points["return_high"][place] == pytest.approx(known.max(), rel=1e-5)
        else:
            assert points["mean_return"][place] is None
    assert place == len(points["gradient"]) - 1


@given(st.integers(1, 3000), st.integers(1, 9), st.lists(st.integers(0, 10_000), max_size=4))
def test_agents_who_always_work_are_all_at_work_at_every_step(count, agents, cuts):
    table = rows(count, agents, seed=count)
    concurrency, members = Concurrency(), Members()
    for piece in pieces(table, cuts):
        concurrency.add(piece)
        members.add(piece)
    seen = np.unique(table["agent"])
    last = {agent: int(table["iteration"][table["agent"] == agent][-1]) + 1 for agent in seen}
    silent = agents - len(seen)  # not heard of yet: nothing in the rows says that they are there
    points = concurrency.points(list(last.values()))
    assert points["concurrency"] == [agents - silent] * len(points["iteration"])
    assert points["iteration"][-1] == count
    assert len(points["iteration"]) <= 2 * CAPACITY


def test_a_gap_in_an_agents_work_is_seen():
    table = {name: np.zeros(4) for name in COLUMNS}
    table["iteration"], table["version"] = np.arange(4.0), np.array([0.0, 0, 2, 3])
    concurrency = Concurrency()
    concurrency.add(table)
    assert concurrency.points([]) == {"iteration": [1, 2, 3, 4], "concurrency": [2, 1, 1, 1]}


def test_numbers_that_no_run_can_have_take_no_memory():
    table = {name: np.zeros(1) for name in COLUMNS}
    table["iteration"], table["delay"], table["version"] = np.array([2.0**52]), np.array([1e15]), np.array([-7.0])
    concurrency, members = Concurrency(), Members()
    concurrency.add(table)
    members.add(table)
    assert len(concurrency.points([])["iteration"]) <= 2 * buckets.CAPACITY
    assert len(members.delays) < 1e5


@given(st.integers(1, 500), st.integers(1, 40))
def test_the_histogram_counts_every_delay_once(count, agents):
    table, members = rows(count, agents, seed=agents), Members()
    members.add(table)
    histogram = members.histogram()
    width = histogram["width"][0]
    for start, times in zip(histogram["delay"], histogram["count"], strict=True):
        assert times == ((table["delay"] >= start) & (table["delay"] < start + width)).sum()
    assert sum(histogram["count"]) == count
