"""The benchmark's rows; its targets are for a quiet machine, not for a test."""

from __future__ import annotations

import json

import numpy as np
import pytest

from afedpg.bench import compute
from afedpg.errors import ConfigError


def test_rows_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = compute.run(["8x8"], rounds=1)
    operations = ["16 steps of 64 rows", "gradient, T=1024", "Fisher-vector product", "log-probabilities", "values"]
    assert [(row["task"], row["reference"]) for row in rows] == [
        (f"8x8, {operation}", reference) for operation in operations for reference in ("arithmetic limit", "torch")
    ]
    assert all(row["benchmark"] == "compute" and row["subject"] == "native kernels" for row in rows)
    assert all(row["ratio"] > 0 for row in rows)
    json.dumps(rows)
    assert "8x8, gradient" in capsys.readouterr().out


def test_both_sides_do_the_same() -> None:
    """What is compared in time is the same in numbers."""
    operations = compute._operations((8, 12), 1024)
    for name, (ours, usual, _) in operations.items():
        if "steps" not in name:
            mine, other = np.sort(ours()), np.sort(usual().detach().numpy())  # torch's weights lie transposed
            assert abs(mine - other).max() <= 1e-4 * abs(other).max()


@pytest.mark.parametrize("name", ["64y64", "", "64x0", "64x-1", "Hopper-v4"])
def test_a_network_that_is_none(name: str) -> None:
    with pytest.raises(ConfigError, match="name hidden layers"):
        compute.run([name], rounds=1)
