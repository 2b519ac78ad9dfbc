"""Run folders of version 0.1.0, killed in mid-run, are still read: replayed, resumed, evaluated and shown.

The bits of a run are promised for one type of processor, so what these runs end with is compared by value.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from afedpg import load_policy, replay, resume
from afedpg.dashboard.catalog import Catalog
from afedpg.record import checkpoint
from afedpg.record import folder as folders
from afedpg.runs.evaluate import evaluate_run
from afedpg.runs.live_session import restored_parts
from afedpg.runs.requests import StoredRun

FOLDERS = Path(__file__).parent / "folders_of_0_1_0"
VIRTUAL = ["afedpg-virtual", "a3c-virtual"]


@pytest.fixture
def folder(request, tmp_path):
    with tarfile.open(FOLDERS / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / request.param


def theta_of(folder, which=-1):
    names = checkpoint.names(folder / "checkpoints")
    return checkpoint.load(folder / "checkpoints", names[which])["server"]["theta"]


@pytest.mark.parametrize("folder", VIRTUAL, indirect=True)
def test_a_virtual_run_is_replayed_and_resumed(folder):
    before = replay(folder)
    assert before.events > 10
    result = resume(folder)
    assert result.gradients == {"afedpg-virtual": 450, "a3c-virtual": 360}[folder.name]
    again = replay(folder)
    assert again.gradients == result.gradients
    np.testing.assert_array_equal(theta_of(folder), result.theta)
    assert resume(folder).sha256 == result.sha256  # rows that 0.1.0 never wrote are no loss


@pytest.mark.parametrize("folder", VIRTUAL, indirect=True)
def test_its_policy_is_loaded_and_evaluated(folder):
    assert load_policy(folder).act(np.zeros(4)) in (0, 1)
    assert evaluate_run(folder, episodes=2)[0].episodes == 2


@pytest.mark.parametrize("folder", ["fedpg-grpc"], indirect=True)
def test_a_federation_killed_within_a_round_stands_where_it_stood(folder):
    run = folders.open_run(folder)
    parts = restored_parts(StoredRun(run), run.config())
    parts.federation.close()
    server = parts.federation.server
    assert (server.gradients, server.iteration, server.epoch) == (18, 6, 1)
    assert replay(folder).gradients == 0  # its one checkpoint is the first


@pytest.mark.parametrize("folder", [*VIRTUAL, "fedpg-grpc"], indirect=True)
def test_the_page_lists_it(folder):
    [line] = Catalog([folder.parent]).describe()
    assert line["name"] == folder.name
    assert line["gradients"] > 10
