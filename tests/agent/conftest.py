"""What tests of estimators share."""

from __future__ import annotations

import pytest

from afedpg.agent.estimators.clipped import Clipped


@pytest.fixture
def seen(monkeypatch):
    """The rollouts that `clipped` was given."""
    rollouts, estimate = [], Clipped.estimate

    def watched(self, tools, state, task, rollout):
        rollouts.append(rollout)
        return estimate(self, tools, state, task, rollout)

    monkeypatch.setattr(Clipped, "estimate", watched)
    return rollouts
