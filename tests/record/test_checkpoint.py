"""A checkpoint is whole or it is not used; the one before it is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from afedpg.errors import AfedpgError, BrokenPart
from afedpg.record import checkpoint

dtypes = st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_dims=3)))
scalars = st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats() | st.text(max_size=8)
keys = st.text(alphabet="abc.:-_ é", min_size=1, max_size=4)
trees = st.recursive(
    scalars | arrays,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def bits(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [bits(entry) for entry in value]
    return (type(value), repr(value))


def tree(number: int) -> dict[str, Any]:
    theta = np.full(5, number + 0.1)
    return {"server": {"theta": theta, "iteration": number}, "agents": {"stream": np.arange(6, dtype=np.uint64)}}


@given(st.dictionaries(keys, trees, max_size=4))
@settings(max_examples=80, deadline=None)
def test_what_is_loaded_is_what_was_saved(tmp_path_factory: Any, saved: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("run") / "checkpoints"
    assert checkpoint.save(folder, 3, saved, keep=2) == [3]
    name, loaded = checkpoint.load_latest(folder)
    assert name == 3
    assert bits(loaded) == bits(saved)


def test_arrays_in_any_layout_and_scalars_of_numpy(tmp_path: Path) -> None:
    square = np.arange(12, dtype=np.float64).reshape(3, 4)
    saved: dict[str, Any] = {
        "t": square.T,
        "step": square[:, ::2],
        "big": square.astype(">f8"),
        "n": np.int64(7),
        "pair": (1, 2),
    }
    checkpoint.save(tmp_path, 0, saved, keep=1)
    loaded = checkpoint.load(tmp_path, 0)
    for key in ("t", "step", "big"):
        assert np.array_equal(loaded[key], saved[key])
    assert (loaded["n"], loaded["pair"]) == (7, [1, 2])
    loaded["t"][0, 0] = 5.0  # what is loaded can be worked with


@pytest.mark.parametrize("bad", [{1: 2}, {"a": object()}, {"a": np.array(["text"])}, {"a": {"$array": "b"}}])
def test_what_could_not_come_back_is_refused(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(BrokenPart):  # one line: a callback of the user's own may give it
        checkpoint.save(tmp_path, 0, bad, keep=1)
    assert list(tmp_path.iterdir()) == []


def test_the_arrays_are_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 12, tree(12), keep=1)
    with safe_open(tmp_path / "12" / "state.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["agents/stream", "server/theta"]
        assert np.array_equal(file.get_tensor("server/theta"), tree(12)["server"]["theta"])


def test_theta_sha256_is_that_of_its_little_endian_bytes(tmp_path: Path) -> None:
    digest = hashlib.sha256(struct.pack("<3d", 1.0, -2.5, 1e-300)).hexdigest()
    theta = np.array([1.0, -2.5, 1e-300])
    assert checkpoint.theta_sha256(theta) == digest
    assert checkpoint.theta_sha256(np.repeat(theta, 2)[::2]) == digest
    with pytest.raises(TypeError, match="float32"):
        checkpoint.theta_sha256(theta.astype(np.float32))
    checkpoint.save(tmp_path, 0, {"server": {"theta": theta}}, keep=1)
    assert json.loads((tmp_path / "0" / "state.json").read_text())["theta_sha256"] == digest


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for number in (5, 9, 10, 100):
        kept = checkpoint.save(tmp_path, number, tree(number), keep=2)
    assert kept == checkpoint.names(tmp_path) == [10, 100]


def test_a_future_that_was_given_up_goes(tmp_path: Path) -> None:
    for number in (10, 20, 30):
        checkpoint.save(tmp_path, number, tree(number), keep=3)
    assert checkpoint.save(tmp_path, 15, tree(15), keep=3) == [10, 15]
    assert checkpoint.names(tmp_path) == [10, 15]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json"])
@pytest.mark.parametrize("harm", ["cut", "change"])
def test_any_cut_or_changed_byte_falls_back_to_the_one_before(tmp_path: Path, file: str, harm: str) -> None:
    checkpoint.save(tmp_path, 1, tree(1), keep=2)
    checkpoint.save(tmp_path, 2, tree(2), keep=2)
    path = tmp_path / "2" / file
    data = path.read_bytes()
    for position in range(len(data)):
        rest = b"" if harm == "cut" else bytes([data[position] ^ 0x11]) + data[position + 1 :]
        path.write_bytes(data[:position] + rest)
        warnings: list[str] = []
        name, loaded = checkpoint.load_latest(tmp_path, warnings.append)
        if warnings:
            assert str(tmp_path / "2") in warnings[0]
            assert "going back" in warnings[0]
        assert bits(loaded) == bits(tree(name))
        assert len(warnings) == 2 - name
        harmless = file == "state.json" and harm == "change" and data[position : position + 1].isspace()
        assert name == 1 or harmless


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "", "null", "[]", "[1]", "{}", '{"format": 1}', "9" * 9999]
)
def test_whatever_state_json_holds_the_one_before_it_is_used(tmp_path: Path, text: str) -> None:
    checkpoint.save(tmp_path, 1, tree(1), keep=2)
    checkpoint.save(tmp_path, 2, tree(2), keep=2)
    (tmp_path / "2" / "state.json").write_text(text)
    warnings: list[str] = []
    assert bits(checkpoint.load_latest(tmp_path, warnings.append)) == bits((1, tree(1)))
    assert [str(tmp_path / "2") in line and "\n" not in line for line in warnings] == [True]


def test_odd_names_beside_the_checkpoints_are_passed_over(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, tree(1), keep=2)
    (tmp_path / "²").mkdir()  # a digit that is no number
    assert checkpoint.names(tmp_path) == [1]


def test_none_whole_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(AfedpgError, match="holds no checkpoint"):
        checkpoint.load_latest(tmp_path)
    for number in (1, 2):
        checkpoint.save(tmp_path, number, tree(number), keep=2)
        (tmp_path / str(number) / "state.safetensors").unlink()
    with pytest.raises(AfedpgError, match="no whole checkpoint is left"):
        checkpoint.load_latest(tmp_path, lambda _: None)


def test_what_a_crash_left_half_written_is_not_seen_and_goes(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, tree(1), keep=2)
    shutil.copytree(tmp_path / "1", tmp_path / ".writing-2")
    assert checkpoint.names(tmp_path) == [1]
    checkpoint.save(tmp_path, 3, tree(3), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]


@pytest.mark.parametrize("survives", [0, 1])
def test_saving_a_name_again_never_loses_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: int) -> None:
    """A crash at either renaming leaves the old one or the new one."""
    checkpoint.save(tmp_path, 4, tree(4), keep=1)
    rename, left = os.rename, survives

    def crash(source: Any, target: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(tmp_path, 4, tree(5), keep=1)
    assert bits(checkpoint.load_latest(tmp_path)) == bits((4, tree(4)))
    assert checkpoint.save(tmp_path, 4, tree(6), keep=1) == [4]
    assert bits(checkpoint.load(tmp_path, 4)) == bits(tree(6))
    assert [path.name for path in tmp_path.iterdir()] == ["4"]


def test_a_full_disk_leaves_the_checkpoints_as_they_were(small_disk: Any) -> None:
    folder = small_disk(256) / "checkpoints"
    checkpoint.save(folder, 1, tree(1), keep=3)
    with pytest.raises(AfedpgError) as caught:
        checkpoint.save(folder, 2, {"theta": np.zeros(100_000)}, keep=3)
    assert str(caught.value) == (
        f"disk full: cannot write {folder / '2'}, free space and run `afedpg resume {folder.parent}`"
    )
    assert [path.name for path in folder.iterdir()] == ["1"]
    assert bits(checkpoint.load_latest(folder)) == bits((1, tree(1)))
