"""Guards of a user's own parts say no to mistakes, and change nothing of what is right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support import Fold, answer

from afedpg.config import from_settings
from afedpg.messages import CloseRound, Join, Leave
from afedpg.record import checkpoint
from afedpg.server.aggregators import Aggregator, All, Drop, Each, Keep, Use, mean
from afedpg.server.guards import GuardedAggregator, GuardedNumber, GuardedStep
from afedpg.server.rules import RECIPES, afedpg, make_rule
from afedpg.server.schedules import Constant
from afedpg.server.shipped import AGGREGATORS
from afedpg.server.state import to_tree
from afedpg.server.transforms import Chain

vectors = arrays(np.float32, 3, elements=st.floats(-100, 100, width=32))
events = st.lists(st.tuples(st.sampled_from(["report"] * 4 + ["join", "leave", "close"]), st.integers(0, 2), vectors))
RULE = afedpg(Constant(0.2), Constant(0.1))


@dataclass(frozen=True)
class Three(Aggregator):
    """The mean of every three contributions but what is ten steps late, and all that it can remember."""

    waits: bool = False

    def start(self, parameters):
        return {"total": np.zeros(parameters)}

    def take(self, given, memory, here):
        if here.iteration - given.version > 10:
            return Drop("late")
        memory.arrays["total"] += given.vector
        memory.slots[given.agent] = given.vector.astype(np.float64)
        memory.kept = [*memory.kept, given]
        return self.changed(memory, here, 3) or Keep(task=not self.waits)

    def changed(self, memory, here, enough=2):
        if len(memory.kept) < enough:
            return None
        reports, memory.kept = memory.kept, []
        return Use(mean([each.vector for each in reports]), reports, factor=0.5)


def bits(tree):
    """Of a checkpoint's tree: arrays as bytes, and everything else."""
    found: dict[str, object] = {}
    plain = checkpoint._split(tree, "", found)  # type: ignore[arg-type]
    return plain, {name: (array.dtype, array.tobytes()) for name, array in found.items()}  # type: ignore[attr-defined]


@given(events, st.sampled_from([Three(), Three(waits=True), All(), *(part() for part in AGGREGATORS.values())]))
def test_a_guarded_server_has_the_bits_of_one_that_is_not(events, aggregator):
    plain = replace(RULE, aggregator=aggregator)
    guarded = replace(
        plain,
        aggregator=GuardedAggregator(aggregator),
        step=GuardedStep(RULE.step, "method: mine"),
        broadcast=GuardedNumber(RULE.broadcast.stretch, "method: mine: stretch"),
    )
    servers = [Fold(rule, np.zeros(3), agents=3) for rule in (plain, guarded)]
    for kind, agent_id, vector in events:
        for server in servers:
            others = {"join": Join(agent_id), "leave": Leave(agent_id), "close": CloseRound()}
            server(answer(server.tasks[agent_id], vector) if kind == "report" else others[kind])
        one, other = servers
        assert one.outcome.arrivals == other.outcome.arrivals
        assert one.outcome.unused == other.outcome.unused
        assert one.outcome.suspicion == other.outcome.suspicion
    assert bits(to_tree(servers[0].state)) == bits(to_tree(servers[1].state))


def test_what_ships_is_not_guarded_and_what_does_not_is():
    config = from_settings({"task": "quadratic"})
    for recipe in RECIPES.values():
        rule = make_rule(config, recipe)
        assert type(rule.aggregator) in (Each, All)
        assert not isinstance(rule.step, GuardedStep)
    for aggregator in AGGREGATORS.values():
        assert type(make_rule(config, afedpg, aggregator=aggregator()).aggregator) is aggregator
    own = make_rule(config, lambda alpha, eta: replace(RULE, aggregator=Three(waits=True)))
    assert isinstance(own.aggregator, GuardedAggregator)
    assert isinstance(own.step, GuardedStep)
    assert isinstance(own.step.inner, Chain)
    assert own.synchronous
