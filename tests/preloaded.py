"""What the process has imported from which the fixture `forked_workers` forks workers."""

from __future__ import annotations

import torch  # noqa: F401

import afedpg.agent.estimators.shipped
import afedpg.agent.work  # noqa: F401
from afedpg.engine import crew

# A worker's parent is this process here, which outlives the run; the closed pipe ends the worker.
crew.die_with_parent = lambda: None
