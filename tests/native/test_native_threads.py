"""A native rollout does not hold the GIL."""

from __future__ import annotations

import threading

from .rolling import Pair


def test_python_goes_on_while_a_rollout_runs() -> None:
    pair = Pair("Humanoid-v4", steps=3000)
    state = pair.native.start(seed=0, agent_id=0)
    pair.native.sample(0, state, pair.theta, None)
    thread = threading.Thread(target=pair.native.sample, args=(0, state, pair.theta, None))
    turns = 0
    thread.start()
    while thread.is_alive():
        turns += 1
    assert turns > 1000  # holding the GIL, the whole rollout would pass within a handful
