"""The exercises of examples/parts: what each is run with, how long it may be, and which number of it is changed."""

from __future__ import annotations

import ast
import io
import shutil
import tokenize
from dataclasses import dataclass
from pathlib import Path

PARTS = Path(__file__).parents[2] / "examples" / "parts"
SYNTHETIC = ("--agents=3", "--iterations=100")
SAMPLED = (
    "--agents=3", "--iterations=50", "--steps=16", "--hidden=4", "--baseline=linear", "--evaluate-episodes=1",
    "--workers=1",
)  # fmt: skip
RECORD = ("--checkpoint-seconds=0.05", "--keep-reports", "--seed=3", "--json")


@dataclass(frozen=True)
class Exercise:
    file: str
    lines: int  # of code, at most
    words: tuple[str, ...]  # of `afedpg train`; FILE stands for the file, MODULE for its name
    setting: str  # that is refused when its parameter was changed
    written: tuple[str, str]  # the parameter in run.toml, and another value

    @property
    def gradients(self) -> int:
        """Of the whole run."""
        given = dict(word.split("=", 1) for word in self.words if "=" in word)
        return int(given["--agents"]) * int(given["--iterations"])

    def copied(self, folder: Path) -> tuple[str, ...]:
        """Its words, with a copy of the file in that folder, which may be changed."""
        copy = folder / self.file
        shutil.copy(PARTS / self.file, copy)
        return tuple(word.replace("FILE", str(copy)).replace("MODULE", copy.stem) for word in self.words)


EXERCISES = {
    "a rule with a parameter": Exercise(
        "damped.py", 25, ("lq-bandit", "--method=FILE:Damped:power=0.7", *SYNTHETIC), "method",
        ("power=0.7", "power=0.6"),
    ),
    "local steps": Exercise(
        "local_steps.py", 40, ("CartPole-v1", "--estimator=FILE:LocalSteps:rate=0.02", *SAMPLED), "estimator",
        ("rate=0.02", "rate=0.03"),
    ),
    "a codec": Exercise(
        "eight_bits.py", 40, ("quadratic", "--codec=FILE:EightBits:block=4", *SYNTHETIC), "codec",
        ("block=4", "block=5"),
    ),
    "an aggregator": Exercise(
        "median.py", 35, ("quadratic", "--aggregator=FILE:Median:least=2", *SYNTHETIC), "aggregator",
        ("least=2", "least=3"),
    ),
    "a timing model": Exercise(
        "day_and_night.py", 20, ("quadratic", "--timing=FILE:DayAndNight:bandwidth=100,day=60", *SYNTHETIC), "timing",
        ("day=60", "day=61"),
    ),
    "a native task": Exercise(
        "balance.py", 80, ("MODULE:Balance-v0", "--env-kwargs=centre=0.2", "--sampler=native", *SAMPLED), "env_kwargs",
        ("centre = 0.2", "centre = 0.3"),
    ),
    "a group and a scalar": Exercise(
        "shared_value.py", 60,
        ("CartPole-v1", "--estimator=FILE:SharedValue:ridge=2.0", "--method=FILE:Mixed:weight=0.5", *SAMPLED), "method",
        ("weight=0.5", "weight=0.25"),
    ),
}  # fmt: skip


def code_lines(text: str) -> int:
    """Lines without blanks, comments and docstrings."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in nothing]
    held = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            held -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(held)
