"""A federation that balances a pole, and one agent that lies about what it observed, once."""

from __future__ import annotations

import numpy as np
import pytest

from afedpg import replay, train
from afedpg.agent.work import EnvironmentWorkload
from afedpg.messages import Moments

LIAR, WHEN = 2, 40
LIES = {"mean 1e9": (1e9, 0.0), "mean 10, deviation 10": (10.0, 10.0)}


@pytest.mark.parametrize(("mean", "deviation"), LIES.values(), ids=LIES)
def test_one_lie_about_observations_does_not_undo_what_was_learned(tmp_path, monkeypatch, mean, deviation):
    """Once the pole is up: with a zero gradient, so that the moments are all that is wrong."""
    work, reports = EnvironmentWorkload.work, []

    def lying(self, state, task):
        state, report = work(self, state, task)
        reports.append(task.agent_id)
        if task.agent_id == LIAR and reports.count(LIAR) == WHEN:
            count = report.moments["observations"].count
            poison = Moments(count, np.full(4, mean), np.full(4, count * deviation**2))
            report = report._replace(payload=np.zeros_like(report.payload), moments={"observations": poison})
        return state, report

    monkeypatch.setattr(EnvironmentWorkload, "work", lying)
    result = train(
        "CartPole-v1", agents=3, iterations=60, timing="equal", steps=512, hidden=(32,), keep_reports=True, workers=1,
        out=tmp_path / "run",
    )  # fmt: skip
    assert reports.count(LIAR) > WHEN
    assert min(evaluation.mean for evaluation in result.evaluations) > 400
    assert replay(tmp_path / "run").agrees
