"""report.html: every figure, table, setting and verdict of a reproduction in one file that needs no network."""

from __future__ import annotations

import base64
import html
import json
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from afedpg.experiments import spent
from afedpg.experiments.choices import EXPERIMENTS
from afedpg.experiments.tables import Table, Value, read
from afedpg.record.disk import write_text
from afedpg.record.folder import current_versions

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1 { font-size: 1.6rem; } h2 { margin-top: 3rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid #e6e6e6; vertical-align: top; }
th { background: #f6f6f6; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; } figcaption { color: #555; font-size: 13px; }
.verdict { display: inline-block; min-width: 8.5rem; font-weight: 600; white-space: nowrap; }
.holds { color: #00664a; } .holds::before { content: "\\2713  "; }
.fails { color: #a33c00; } .fails::before { content: "\\2717  "; }
.open { color: #555; } .open::before { content: "?  "; }
nav a { margin-right: 1rem; } code { background: #f4f4f4; padding: 0 .2rem; }
"""
MARKS = {"holds": "holds", "does not hold": "fails", "not enough data": "open"}


def write_report(out: Path) -> None:
    """Of everything that lies under OUT, whichever call made it."""
    ids = [id for id in EXPERIMENTS if (out / id / "verdict.json").is_file()]
    documents = {id: json.loads((out / id / "verdict.json").read_text()) for id in ids}
    took = spent.seconds(out)
    parts = [
        "<h1>Asynchronous federated policy gradients: the paper's figures, reproduced</h1>",
        f"<nav>{''.join(f'<a href=#{id}>{id}</a>' for id in ids)}<a href=#how>how it was made</a></nav>",
        _summary(documents),
        *(_section(out, id, document, took) for id, document in documents.items()),
        _how(out, ids, took),
    ]
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><title>AFedPG, reproduced</title><style>{STYLE}</style>'
    write_text(
        out / "report.html", f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'
    )


def _summary(documents: dict[str, dict[str, Any]]) -> str:
    rows = [
        (f"<a href=#{id}>{id}</a>", _mark(v["verdict"]), html.escape(v["claim"]), html.escape(v["statistic"]))
        for id, document in documents.items()
        for v in document["verdicts"]
    ]
    return "<h2>What holds</h2>" + _grid(("experiment", "verdict", "claim", "measured"), rows)


def _section(out: Path, id: str, document: dict[str, Any], took: dict[str, float]) -> str:
    seconds = sum(took.get(name, 0.0) for name in _job_names(out, id))
    command = document.get("command", f"afedpg reproduce {id} --scale {document['scale']}")  # made before it was kept
    parts = [
        f"<h2 id={id}>{html.escape(document['title'])}</h2>",
        f"<p>{html.escape(document['text'])}</p>",
        f"<p><code>{html.escape(command)}</code>, {seconds / 3600:.2f} hours computed</p>",
    ]
    for v in document["verdicts"]:
        needed = f" Needed: {html.escape(v['needed'])}." if v["needed"] else ""
        claim, measured = html.escape(v["claim"]), html.escape(v["statistic"])
        parts.append(f"<p>{_mark(v['verdict'])} {claim}.<br>Measured: {measured}.{needed}</p>")
    for picture in document["pictures"]:
        data = base64.b64encode((out / id / f"{picture['name']}.png").read_bytes()).decode()
        caption = html.escape(picture["caption"])
        image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
        parts.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    parts += [_table(name, read(out / id / f"{name}.csv")) for name in document["shown"]]
    settings = [(html.escape(name), html.escape(_text(value))) for name, value in document["settings"].items()]
    parts.append("<details><summary>Settings</summary>" + _grid(("setting", "value"), settings) + "</details>")
    return "\n".join(parts)


def _job_names(out: Path, id: str) -> list[str]:
    path = out / id / "jobs.csv"
    return [str(name) for name in read(path).column("job")] if path.is_file() else []


def _mark(verdict: str) -> str:
    return f'<span class="verdict {MARKS[verdict]}">{verdict}</span>'


def _table(name: str, data: Table) -> str:
    rows = [tuple(_cell(value) for value in row) for row in data.rows]
    return f"<h3>{html.escape(name)}</h3>" + _grid(data.columns, rows)


def _cell(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))


def _text(value: Any) -> str:
    return ", ".join(str(part) for part in value) if isinstance(value, list) else str(value)


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _how(out: Path, ids: Sequence[str], took: dict[str, float]) -> str:
    names = {name for id in ids for name in _job_names(out, id)}
    hours = sum(took.get(name, 0.0) for name in names) / 3600
    facts = {
        "runs and measurements": str(len(names)),
        "hours of computing, all processes together": f"{hours:.2f}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **{f"version: {name}": value for name, value in current_versions().items()},
        "code the runs were made with": "; ".join(spent.made_with(out, names)),
    }
    rows = [(html.escape(name), html.escape(value)) for name, value in facts.items()]
    return "<h2 id=how>How it was made</h2>" + _grid(("", ""), rows)
