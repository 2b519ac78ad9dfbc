"""The pages for newcomers: the picture is the run, every question has an answer that runs, every word an entry."""

from __future__ import annotations

import re
import sys

from blocks import ROOT, blocks_of

from afedpg.config import METHODS, PROBLEMS, SCHEDULES

sys.path.insert(0, str(ROOT / "docs"))
import pictures

QUESTIONS = 28
TERMS = re.compile(r"^\| (?!term \||---)(?P<term>[^|]+?) \| (?P<meaning>[^|]+) \|", re.MULTILINE)


def test_the_picture_of_three_agents_is_what_the_run_reports() -> None:
    found = pictures.arrivals()
    assert [(arrival.agent, arrival.version, arrival.delay, at) for arrival, at in found] == [
        (0, 0, 0, 2.0), (1, 0, 1, 3.5), (0, 1, 1, 4.0), (2, 0, 3, 5.0), (0, 3, 1, 6.0), (1, 2, 3, 7.0),
    ]  # fmt: skip
    assert pictures.PICTURE.read_text(encoding="utf-8") == pictures.draw(found), "`python docs/pictures.py` draws it"


def test_every_question_has_an_answer_that_runs() -> None:
    page = ROOT / "docs" / "faq.md"
    lines = page.read_text().splitlines()
    starts = [number for number, line in enumerate(lines, start=1) if line.startswith("## ") and line.endswith("?")]
    assert len(starts) == QUESTIONS == sum(line.startswith("## ") for line in lines)
    running = [block.line for block in blocks_of(page) if block.runs]
    ends = [*starts[1:], len(lines) + 1]
    unanswered = [
        lines[start - 1]
        for start, end in zip(starts, ends, strict=True)
        if not any(start < line < end for line in running)
    ]
    assert not unanswered


def test_the_glossary_has_the_words_of_these_pages_in_order() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    sections = [TERMS.findall(part) for part in glossary.read_text().split("\n## ")[1:]]
    entries = {name.strip(): meaning for rows in sections for term, meaning in rows for name in term.split(",")}
    for rows in sections:
        words = [term.lower() for term, _ in rows]
        assert words == sorted(words)
    others = [page for page in (ROOT / "docs").rglob("*.md") if page != glossary]
    text = " ".join(" ".join(page.read_text().split()) for page in [ROOT / "README.md", *others]).lower()
    assert not [term for term in entries if term.lower() not in text], "no page uses these words"
    equations = (ROOT / "docs" / "concepts.md").read_text().partition("## The map")[2].partition("\n## ")[0]
    named = set(re.findall(r"\| `(alpha|eta|theta|delay|iteration|version|gradient)`", equations))
    assert named | {"alpha", "eta", "delay", "theta~", "lookahead", "virtual seconds", "engine"} <= entries.keys()
    assert all(method in entries["method"] for method in METHODS)
    assert all(problem in entries["synthetic problem"] for problem in PROBLEMS)
    assert all(schedule in entries["schedule"] for schedule in SCHEDULES)
