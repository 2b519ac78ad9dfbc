"""A run folder is made once, written by one process, and says what was run."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afedpg import train
from afedpg.cli import main
from afedpg.config import Config, TimingConfig
from afedpg.errors import AfedpgError, ConfigError
from afedpg.messages import Arrival, Stats, TaskId
from afedpg.record import checkpoint, folder
from afedpg.record.database import Database
from afedpg.record.folder import find_runs
from afedpg.validation import check_applicable

CONFIG = Config(
    task="quadratic",
    agents=3,
    iterations=10,
    timing=TimingConfig(timing="list", speeds=(1.0, 2.0, 4.5), late={"1": 2.0}),
)


def test_the_configuration_comes_back(tmp_path: Path) -> None:
    made = folder.create(tmp_path / "a" / "run", CONFIG)
    assert folder.open_run(made.path) == made
    assert made.config() == CONFIG
    assert sorted(path.name for path in made.path.iterdir()) == ["lock", "run.toml"]


def test_a_stored_run_opens_with_settings_that_a_new_one_would_be_refused(tmp_path: Path) -> None:
    config = replace(CONFIG, engine="local")
    with pytest.raises(ConfigError, match=r"^timing: only used with --engine virtual$"):
        check_applicable(config)
    assert folder.create(tmp_path / "run", config).config() == config


def test_runs_of_two_methods_differ_in_one_line(tmp_path: Path) -> None:
    first = folder.create(tmp_path / "first", CONFIG)
    second = folder.create(tmp_path / "elsewhere", replace(CONFIG, method="fedpg"))
    lines = first.toml.read_text().splitlines(), second.toml.read_text().splitlines()
    assert [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]] == [
        ('method = "afedpg"', 'method = "fedpg"')
    ]


def test_versions_are_recorded_without_importing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from afedpg.config import Config; from afedpg.record import folder;"
        f"folder.create(Path({str(tmp_path / 'run')!r}), Config(task='quadratic'));"
        "assert not {'torch', 'gymnasium', 'mujoco', 'numba', 'tensorboard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    versions = tomllib.loads((tmp_path / "run" / "run.toml").read_text())["versions"]
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(folder.PACKAGES) <= set(versions)


def test_changed_versions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder.create(tmp_path / "run", CONFIG)
    assert made.changed_versions() == []
    now = folder.current_versions()
    monkeypatch.setattr(folder, "current_versions", lambda: now | {"numpy": "9.9"})
    assert made.changed_versions() == [f"numpy {now['numpy']} -> 9.9"]


def test_a_folder_with_a_run_toml_has_its_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So whoever is killed meanwhile leaves a whole run, or none: what is left is in nobody's way."""
    run, files = tmp_path / "run", {"one.json": "1", "two.json": "2"}
    write, seen = folder.write_text, []

    def watched(file: Path, text: str) -> None:
        seen.append(sorted(path.name for path in run.iterdir()))
        write(file, text)

    monkeypatch.setattr(folder, "write_text", watched)
    folder.create(run, CONFIG, files)
    assert seen == [["lock"], ["lock", "one.json"], ["lock", "one.json", "two.json"]]
    assert sorted(path.name for path in run.iterdir()) == ["lock", "one.json", "run.toml", "two.json"]
    (run / "run.toml").rename(run / ".run.toml.tmp")  # cut off in the middle
    assert folder.create(run, CONFIG, files).config() == CONFIG
    (run / "run.toml").unlink()
    with pytest.raises(ConfigError, match="exists; choose another --out or move it away"):
        folder.create(run, CONFIG)  # whose would these files be?


def test_a_folder_that_cannot_be_finished_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(config: Config) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(folder, "remember", denied)
    with pytest.raises(ConfigError, match=r"out: cannot create .*: denied; choose another --out"):
        folder.create(tmp_path / "run", CONFIG, {"one.json": "1"})
    assert not (tmp_path / "run").exists()


def test_what_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    folder.create(run, CONFIG)
    before = (run / "run.toml").read_bytes()
    with pytest.raises(ConfigError) as caught:
        folder.create(run, replace(CONFIG, seed=5))
    assert str(caught.value) == f"out: {run} exists; choose another --out or `afedpg resume {run}`"
    assert (run / "run.toml").read_bytes() == before
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"out: .*file exists"):
        folder.create(tmp_path / "file", CONFIG)
    with pytest.raises(ConfigError, match=r"out: cannot create .*Not a directory"):
        folder.create(tmp_path / "file" / "run", CONFIG)
    (tmp_path / "empty").mkdir()
    folder.create(tmp_path / "empty", CONFIG)


def test_what_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run folder: there is no run\.toml in it"):
        folder.open_run(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        folder.open_run(tmp_path / "absent")
    (tmp_path / "policy.safetensors").touch()
    told = r"from_run: .*policy\.safetensors is a file; name a run folder \(load_policy in Python reads a policy file\)"
    with pytest.raises(ConfigError, match=told):
        folder.open_run(tmp_path / "policy.safetensors", "from_run")


@pytest.mark.parametrize(
    ("text", "message"), [("task = ", "is not TOML"), ("colour = 1", "colour: no such setting"), ("seed = 'x'", "seed")]
)
def test_a_bad_run_toml_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        folder.open_run(tmp_path).config()
    assert str(tmp_path / "run.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_full_disk_leaves_nothing_behind(small_disk: Any) -> None:
    disk = small_disk(64)
    with pytest.raises(OSError, match="No space left"):
        (disk / "ballast").write_bytes(bytes(1 << 20))
    with pytest.raises(AfedpgError, match=r"disk full: cannot create .*, free space or choose another --out"):
        folder.create(disk / "run", CONFIG)
    assert [path.name for path in disk.iterdir()] == ["ballast"]


def _hold(path: Path, ready: Any, release: Any) -> None:
    with folder.RunFolder(path).lock():
        ready.set()
        release.wait(60)


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    made = folder.create(tmp_path / "run", CONFIG)
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(made.path, ready, release))
    other.start()
    assert ready.wait(60)
    with pytest.raises(AfedpgError, match=rf"is being written by another process \({other.pid}\)"):
        made.lock()
    assert [folder.summarize(run).state for run in find_runs(tmp_path)] == ["running"]
    other.kill()  # not released: the end of the process frees it
    other.join()
    with made.lock():
        assert (made.path / "lock").read_text() == str(os.getpid())
    assert [folder.summarize(run).state for run in find_runs(tmp_path)] == ["interrupted"]


def _claim(place: Path, numbered: bool, numbers: list[int], meet: Any, said: Any) -> None:
    """A process that makes a folder as soon as all the others do, once for each of `numbers`."""
    for number in numbers:
        meet.wait(60)
        mine = replace(CONFIG, seed=os.getpid())
        try:
            with folder.claim(place / str(number), mine, {"one.json": "1"}, numbered) as lock:
                said.put((number, lock.run, mine.seed))
                meet.wait(60)  # nobody goes on while others are at it: a run holds its lock until its end
        except ConfigError as error:
            said.put((number, str(error), None))
            meet.wait(60)


@pytest.mark.parametrize("numbered", [False, True], ids=["explicit", "default"])
def test_of_any_number_of_processes_one_has_a_folder(tmp_path: Path, numbered: bool) -> None:
    context = multiprocessing.get_context("spawn")
    meet, said, count, rounds = context.Barrier(4), context.Queue(), 4, list(range(12))
    crew = [context.Process(target=_claim, args=(tmp_path, numbered, rounds, meet, said)) for _ in range(count)]
    for process in crew:
        process.start()
    heard = [said.get(timeout=120) for _ in range(count * len(rounds))]
    for process in crew:
        process.join(60)
        assert process.exitcode == 0
    for number in rounds:
        have = {path: seed for at, path, seed in heard if at == number and seed is not None}
        refused = [text for at, text, seed in heard if at == number and seed is None]
        assert len(have) == (count if numbered else 1)
        assert len(have) + len(refused) == count
        assert all(text.startswith(f"out: {tmp_path / str(number)} exists; choose another --out") for text in refused)
        beside = {tmp_path / (str(number) if nth == 1 else f"{number}-{nth}") for nth in range(1, count + 1)}
        assert set(have) == (beside if numbered else {tmp_path / str(number)})
        for path, seed in have.items():
            assert folder.open_run(path).config().seed == seed
            assert sorted(entry.name for entry in path.iterdir()) == ["lock", "one.json", "run.toml"]


def test_who_waits_for_a_folder_that_is_given_up_makes_it_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock it waited for is a file that is gone: it would keep nobody out."""
    run, take, made = tmp_path / "run", folder.RunLock, []

    def late(path: Path) -> folder.RunLock:
        lock = take(path)
        if not made:  # between its opening and its locking, the one before it failed and took the folder away
            made.append(path)
            (path / "lock").unlink()
            path.rmdir()
        return lock

    monkeypatch.setattr(folder, "RunLock", late)
    with folder.claim(run, CONFIG), pytest.raises(ConfigError, match="exists; choose another --out"):
        folder.claim(run, CONFIG)
    assert made


def test_a_run_that_is_over_before_another_process_has_the_lock_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, take, made = tmp_path / "run", folder.RunLock, []

    def late(path: Path) -> folder.RunLock:
        if not made:
            made.append(path)
            folder.create(path, replace(CONFIG, seed=5))
        return take(path)

    monkeypatch.setattr(folder, "RunLock", late)
    with pytest.raises(ConfigError, match="exists; choose another --out or `afedpg resume"):
        folder.claim(run, CONFIG)
    assert folder.open_run(run).config().seed == 5


def test_processes_that_start_the_same_run_lose_none(tmp_path: Path) -> None:
    """The default folders of a sweep: whatever an exit code of 0 tells of lies where it says."""
    words = ["train", "quadratic", "--agents", "2", "--iterations", "20", "--json", "--eta"]
    etas = ["0.01", "0.03", "0.1", "0.3"]
    crew = [
        subprocess.Popen([sys.executable, "-m", "afedpg", *words, eta], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        for eta in etas
    ]
    told = [json.loads(process.communicate(timeout=120)[0]) for process in crew]
    assert [process.returncode for process in crew] == [0] * len(etas)
    first = "runs/quadratic-afedpg-seed0"
    assert {one["out"] for one in told} == {first, *(f"{first}-{number}" for number in range(2, len(etas) + 1))}
    for eta, one in zip(etas, told, strict=True):
        run = folder.open_run(tmp_path / one["out"])
        assert run.config().schedule.eta == float(eta)
        _, tree = checkpoint.load_latest(run.checkpoints)
        assert checkpoint.theta_sha256(tree["server"]["theta"]) == one["theta_sha256"]
        assert folder.summarize(run).state == "finished"


def test_default_paths_are_free_and_safe(tmp_path: Path) -> None:
    path = folder.default_path(tmp_path, CONFIG)
    names = [folder.claim(path, CONFIG, numbered=True).run.name for _ in range(3)]
    assert names == ["quadratic-afedpg-seed0", "quadratic-afedpg-seed0-2", "quadratic-afedpg-seed0-3"]
    assert folder.default_path(tmp_path, replace(CONFIG, task="ALE/Pong-v5")).name == "ALE_Pong-v5-afedpg-seed0"


def test_runs_are_listed(tmp_path: Path) -> None:
    assert find_runs(tmp_path / "absent") == []
    done = folder.create(tmp_path / "b", CONFIG)
    base = Database(done.database)
    row = Arrival(7, 6, 0, TaskId(0, 7), 5, 1, 0.1, 0.1, 1.0, 0.1, 0.1, Stats(1, (4.0,), (1,)), 40, 40, 7)
    base.add_arrivals([row], 12.5)
    base.note("state", "finished")
    base.close()
    folder.create(tmp_path / "a", replace(CONFIG, seed=4))
    (tmp_path / "else").mkdir()
    folder.create(tmp_path / "b" / "checkpoints" / "inner", CONFIG)  # within a run: no run of its own
    (tmp_path / "again").symlink_to(tmp_path / "b")  # the same once more, by another name
    (tmp_path / "else" / "loop").symlink_to(tmp_path)
    folder.create(tmp_path / "sweep" / "small" / "seed9", replace(CONFIG, seed=9))
    assert [folder.summarize(run) for run in find_runs(tmp_path)] == [
        folder.RunSummary(tmp_path / "a", "quadratic", "afedpg", 3, 4, 0, 30, None, 0.0, "interrupted"),
        folder.RunSummary(tmp_path / "b", "quadratic", "afedpg", 3, 0, 7, 30, 4.0, 12.5, "finished"),
        folder.RunSummary(
            tmp_path / "sweep" / "small" / "seed9", "quadratic", "afedpg", 3, 9, 0, 30, None, 0.0, "interrupted"
        ),
    ]


@pytest.mark.parametrize("content", [b"\7" * 3000, None], ids=["no database", "gone"])
def test_a_run_that_has_lost_its_rows_is_no_run_at_its_start(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("quadratic", agents=2, iterations=3, out=tmp_path / "run").out
    assert run is not None
    (run / "run.db").unlink() if content is None else (run / "run.db").write_bytes(content)
    for words in (["runs", str(tmp_path)], ["runs", "--compare", str(tmp_path)]):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert "damaged" in shown
        assert "interrupted" not in shown


def test_a_folder_that_may_not_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root every folder may be: what the system would say is said for it."""
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.toml").touch()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "theirs" not in str(path) and real(path, mode))
    monkeypatch.setattr(Path, "is_file", _refusing(Path.is_file, "theirs"))
    assert [run.path.name for run in find_runs(tmp_path)] == ["mine"]


def _refusing(look: Callable[[Path], bool], name: str) -> Callable[[Path], bool]:
    def refused(path: Path) -> bool:
        if name in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    return refused


def test_a_commit_is_dirty_where_its_code_has_changed_and_not_where_results_have(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert folder.commit_of(tmp_path) is None
    for name in ("src", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("one")
    git("init")
    assert folder.commit_of(tmp_path) is None  # nothing is committed yet
    git("add", ".")
    git("commit", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert folder.commit_of(tmp_path) == head
    (tmp_path / "results" / "file").write_text("two")
    assert folder.commit_of(tmp_path) == head
    (tmp_path / "src" / "file").write_text("two")
    assert folder.commit_of(tmp_path) == f"{head}-dirty"
