"""Forty things people do: what the page says works as it is typed there, and brings about what its heading promises."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import PATIENCE, ROOT, Block, Folder, blocks_of

from afedpg.export.policy_file import read_policy
from afedpg.record.database import read_arrivals, read_evaluations

PAGE = ROOT / "docs" / "forty.md"
TEXT = PAGE.read_text()
ROW = re.compile(r"^\| (\d+) \| \[(.+?)\]\(#(\S+?)\) \| \[.+\]\((https://github\.com/\S+)\) \| (.+) \|$", re.MULTILINE)
ROWS = ROW.findall(TEXT)
HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
NEIGHBOURS = ("Stable-Baselines3", "CleanRL", "Flower")
MAY_FAIL = 2


def _sections() -> dict[int, list[Block]]:
    """The blocks under every number; under 0 those before the first."""
    starts = [(0, 0), *((TEXT.count("\n", 0, match.start()) + 1, int(match[1])) for match in HEADING.finditer(TEXT))]
    found: dict[int, list[Block]] = {number: [] for _, number in starts}
    for block in blocks_of(PAGE):
        found[max(start for start in starts if start[0] < block.line)[1]].append(block)
    return found


SECTIONS = _sections()
WORKING = [number for number, blocks in SECTIONS.items() if number and any(block.runs for block in blocks)]


class Clone:
    """A folder in which the sections are typed: shell commands one by one, Python into one session."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.path = path
        self.said = ""
        self._session = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("python_session.py"))], cwd=path, text=True,
            env=self.folder.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def type(self, blocks: list[Block]) -> None:
        self.said = "".join(self._python(b) if b.language == "python" else self.folder.run(b) for b in blocks if b.runs)

    def _python(self, block: Block) -> str:
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        watch = threading.Timer(PATIENCE, self._session.kill)
        watch.start()
        print(json.dumps({"where": block.where, "text": block.text}), file=self._session.stdin, flush=True)
        answer = json.loads(self._session.stdout.readline() or '{"failure": "it ended the session"}')
        watch.cancel()
        assert not answer["failure"], f"{block.where}: {answer['failure']}\n{answer.get('said')}"
        said: str = answer["said"]
        return said

    def close(self) -> None:
        self._session.kill()
        self._session.communicate()

    def arrivals(self, run: str) -> dict[str, Any]:
        return read_arrivals(self.path / "runs" / run / "run.db")

    def mean(self, run: str, kind: str = "deterministic") -> float:
        """Of the last evaluation of that kind."""
        evaluations = read_evaluations(self.path / "runs" / run / "run.db")
        return float(evaluations["mean"][evaluations["kind"] == kind][-1])

    def rows(self, run: str, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.path / "runs" / run / "run.db") as database:
            return database.execute(query).fetchall()

    def numbers(self) -> list[float]:
        return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", self.said)]


def own_environment(clone: Clone) -> None:
    assert clone.mean("walk") > -5  # always forward: -3; at random about -20


def network_size(clone: Clone) -> None:
    shapes = dict(read_policy(clone.path / "runs" / "wide").layout.shapes)
    assert [shapes[f"layer{layer}.weight"] for layer in (1, 2)] == [(256, 256), (256, 128)]


def masked_actions(clone: Clone) -> None:
    assert clone.numbers()[-1] > 0.7  # one of two open doors at random: 0.5; a locked one would have ended it


def dials(clone: Clone) -> None:
    assert clone.said.startswith("[2 1]")
    assert clone.numbers()[-1] > 15  # of 20; at random 6.7


def images(clone: Clone) -> None:
    assert clone.numbers()[-1] > -6  # always left: -3; at random about -20


def own_cnn(clone: Clone) -> None:
    assert clone.numbers()[-1] > -6  # always left: -3; at random about -20


def short_episodes(clone: Clone) -> None:
    assert clone.rows("short-episodes", "SELECT max(length) FROM episodes") == [(8,)]


def schedule(clone: Clone) -> None:
    arrivals = clone.arrivals("schedule")
    assert np.allclose(arrivals["eta"], 0.2 / (1 + arrivals["iteration"]) ** 0.5)


def tuned(clone: Clone) -> None:
    chosen = tomllib.loads((clone.path / "tuned" / "walk" / "best.toml").read_text())
    assert {"eta", "alpha", "gamma", "gae_lambda"} <= chosen.keys()
    assert chosen["iterations"] == 10


def gpu(clone: Clone) -> None:
    (run,) = (clone.path / "runs").glob("on-*")
    assert f'device = "{run.name[3:]}"' in (run / "run.toml").read_text()


def tensorboard(clone: Clone) -> None:
    curves = dict(re.findall(r"^(\S+) (\d+)$", clone.said, re.MULTILINE))
    assert "40" in curves.values()  # a point per gradient
    assert any("return" in tag for tag in curves)


def wandb(clone: Clone) -> None:
    run = clone.said.split()[-1]
    (file,) = clone.path.glob(f"wandb/offline-run-*-{run}/run-{run}.wandb")
    deadline = time.monotonic() + PATIENCE
    while b"return/evaluation/deterministic" not in file.read_bytes():  # wandb's own process writes it
        assert time.monotonic() < deadline
        time.sleep(0.1)


def mlflow(clone: Clone) -> None:
    points = re.findall(r"^(\d+) (\d+\.\d+)$", clone.said, re.MULTILINE)
    assert int(points[-1][0]) == 2 * 4 * 128


def numbers(clone: Clone) -> None:
    table = np.loadtxt(clone.path / "returns.csv", delimiter=",")
    assert table.shape == (40, 2)
    assert table[-1, 0] == 40 * 256


def plotted(clone: Clone) -> None:
    assert (clone.path / "curve.pdf").read_bytes()[:4] == b"%PDF"


def compared(clone: Clone) -> None:
    for method in ("afedpg", "fedpg"):
        assert f"runs/quadratic-{method}-seed{{0,1,2}}" in clone.said
    assert re.search(r"^theta.*\[.*\].*\[.*\]", clone.said, re.MULTILINE)


def best(clone: Clone) -> None:
    means = {(at, kind): mean for at, kind, mean in clone.rows("best", "SELECT iteration, kind, mean FROM evaluations")}
    iteration, mean = clone.numbers()[:2]
    assert mean == pytest.approx(max(means.values()))
    assert mean in (means[iteration, "sampled"], means[iteration, "deterministic"])
    assert (clone.path / "best.safetensors").is_file()


def early(clone: Clone) -> None:
    assert clone.said.startswith("EarlyStopping ")
    assert clone.numbers()[-1] < 200


def continued(clone: Clone) -> None:
    assert clone.numbers()[-1] == 16


def resumed(clone: Clone) -> None:
    assert len(clone.arrivals("killed")["iteration"]) == 8 * 6000


def loaded(clone: Clone) -> None:
    own, evaluated = clone.numbers()[-2:]
    assert abs(own - evaluated) < 0.3 * evaluated  # 30 episodes each, of other seeds


def both_kinds(clone: Clone) -> None:
    assert re.findall(r"^(\w+): \d", clone.said, re.MULTILINE) == ["sampled", "deterministic"]


def elsewhere(clone: Clone) -> None:
    returns = [float(mean) for mean in re.findall(r": (\S+)$", clone.said, re.MULTILINE)]
    assert len(set(returns)) == len(returns) == 4


def video(clone: Clone) -> None:
    assert (clone.path / "pole.gif").read_bytes()[:4] == b"GIF8"


def exported(clone: Clone) -> None:
    assert (clone.path / "pole.onnx").stat().st_size > 1000


def asynchronous(clone: Clone) -> None:
    seconds = [float(number) for number in re.findall(r"in (\S+) virtual", clone.said)]
    assert seconds[0] < seconds[1] / 5


def machines(clone: Clone) -> None:
    assert set(clone.arrivals("machines")["agent"]) == {0, 1}
    assert "one" in clone.said
    assert "two" in clone.said


def encrypted(clone: Clone) -> None:
    assert "refused with exit code 3" in clone.said
    assert len(clone.arrivals("encrypted")["agent"]) == 30


def client_fails(clone: Clone) -> None:
    agents = Counter(clone.arrivals("one-fails")["agent"].tolist())
    assert sum(agents.values()) == 300
    assert max(agents.values()) > 150  # the other one's, after the first had joined and was killed


def server_restarts(clone: Clone) -> None:
    assert len(clone.arrivals("restarted")["agent"]) == 100


def every_client(clone: Clone) -> None:
    gradients = [int(count) for count in re.findall(r"^agent \d: (\d+) gradients", clone.said, re.MULTILINE)]
    assert len(gradients) == 4
    assert sum(gradients) == 40


def own_settings(clone: Clone) -> None:
    returns = re.findall(r"^(.+) deterministic (\S+)$", clone.said, re.MULTILINE)
    assert len(dict(returns)) == 2


def speeds(clone: Clone) -> None:
    counts = clone.numbers()[1::2]
    assert [round(counts[0] / count) for count in counts] == [1, 2, 4, 8]


def thousand(clone: Clone) -> None:
    assert clone.numbers() == [1000]


def processors(clone: Clone) -> None:
    assert clone.said.endswith("1 process and 0 others, 1 thread\n")


def good_enough(clone: Clone) -> None:
    assert len(clone.arrivals("good-enough")["agent"]) < 4000
    assert clone.rows("good-enough", "SELECT mean FROM evaluations ORDER BY rowid DESC LIMIT 1")[0][0] > -0.5


def liars(clone: Clone) -> None:
    undefended, defended = clone.numbers()
    assert undefended < -2 < -0.5 < defended


def own_strategy(clone: Clone) -> None:
    assert clone.arrivals("fresh")["delay"].max() <= 10
    assert clone.rows("fresh", "SELECT DISTINCT reason FROM unused") == [("too old",)]


OUTCOMES: dict[int, Callable[[Clone], None]] = {
    1: own_environment,
    2: dials,
    3: images,
    4: own_cnn,
    5: network_size,
    6: masked_actions,
    8: short_episodes,
    9: schedule,
    10: tuned,
    11: gpu,
    12: lambda clone: None,  # the block itself asserts it
    13: tensorboard,
    14: wandb,
    15: mlflow,
    16: numbers,
    17: plotted,
    18: compared,
    19: best,
    20: early,
    21: continued,
    22: resumed,
    23: loaded,
    24: both_kinds,
    25: elsewhere,
    26: video,
    27: exported,
    28: asynchronous,
    29: machines,
    30: encrypted,
    31: client_fails,
    32: server_restarts,
    33: every_client,
    34: own_settings,
    35: speeds,
    36: thousand,
    37: processors,
    38: good_enough,
    39: liars,
    40: own_strategy,
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    clone = Clone(tmp_path_factory.mktemp("forty") / "clone")
    try:
        for block in (block for blocks in SECTIONS.values() for block in blocks if block.title):
            clone.folder.run(block)
        clone.type(SECTIONS[0])
        yield clone
    finally:
        clone.close()


@pytest.mark.parametrize("number", WORKING, ids=lambda number: f"{number}-{dict(HEADING.findall(TEXT))[str(number)]}")
def test_a_thing_works_as_typed(number: int, clone: Clone) -> None:
    clone.type(SECTIONS[number])
    OUTCOMES[number](clone)


def test_forty_things_each_with_its_public_question() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, 41)) == [number for number in SECTIONS if number]
    assert [what for _, what, *_ in ROWS] == [what for _, what in HEADING.findall(TEXT)]
    assert len({url for *_, url, _ in ROWS}) == 40
    assert sum(of in NEIGHBOURS for *_, of in ROWS) >= 25


def test_all_but_two_work_and_the_page_says_which_do_not() -> None:
    failing = {int(number) for number, *_ in ROWS} - set(WORKING)
    assert len(failing) <= MAY_FAIL
    parts = dict(zip(HEADING.findall(TEXT), HEADING.split(TEXT)[3::3], strict=True))
    assert failing == {int(number) for (number, _), text in parts.items() if "**This does not work.**" in text}
