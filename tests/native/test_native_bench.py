"""The benchmark's rows; its targets are for a quiet machine, not for a test."""

from __future__ import annotations

import json

import pytest

from afedpg.bench import sampler


def test_rows_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = sampler.run(["Hopper-v4", "InvertedPendulum-v5"], rounds=2)
    assert [(row["task"], row["reference"]) for row in rows] == [
        ("Hopper-v4", "physics only"),
        ("Hopper-v4", "gymnasium + torch"),
        ("InvertedPendulum-v5", "physics only"),
        ("InvertedPendulum-v5", "gymnasium + torch"),
    ]
    assert all(row["benchmark"] == "sampler" and row["subject"] == "native sampler" for row in rows)
    assert all(row["ratio"] > 0 for row in rows)
    json.dumps(rows)
    assert "Hopper-v4" in capsys.readouterr().out
