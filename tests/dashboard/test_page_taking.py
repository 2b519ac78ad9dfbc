"""What a reader takes away from the page, and how runs are laid beside each other: files, settings, order, agents."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from asking import small_run
from looking import drawn, folder_of
from PIL import Image

from afedpg.config import Config
from afedpg.dashboard.agent_returns import MOST_AGENTS
from afedpg.dashboard.catalog import settings_of
from afedpg.record.database import read_arrivals

FIGURES = (
    "return", "timeline", "delays", "delay-agents", "return-agents", "concurrency", "bytes", "lengths", "norm",
)  # fmt: skip


def taken(page, figure, button):
    """The file that a button below a picture gives."""
    place = page.locator(f"#{figure}").get_by_role("button", name=button)
    place.scroll_into_view_if_needed()
    with page.expect_download() as waiting:
        place.click()
    return waiting.value


def test_every_picture_can_be_taken_as_picture_and_as_csv(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#timeline canvas[aria-label^='Timeline of 3']", state="attached")
    for figure in FIGURES:
        page.locator(f"#{figure} canvas").scroll_into_view_if_needed()
        drawn(page, figure)
        file = taken(page, figure, "Picture")
        assert file.suggested_filename == f"afedpg-one-{figure}.png"
        image = np.asarray(Image.open(file.path()).convert("RGB"))
        box = page.locator(f"#{figure} canvas").bounding_box()
        assert image.shape[1] > box["width"], "with a margin"
        assert image.shape[0] > box["height"], "with a title"
        assert tuple(image[0, 0]) == (255, 255, 255), "the card's colour, not a transparent ground"
        assert len(np.unique(image.reshape(-1, 3), axis=0)) > 10
        file = taken(page, figure, "CSV")
        assert file.suggested_filename == f"afedpg-one-{figure}.csv"
        rows = list(csv.reader(io.StringIO(Path(file.path()).read_text(encoding="utf-8"), newline="")))
        assert len(rows) > 2
        assert len({len(row) for row in rows}) == 1


def test_files_bear_the_name_of_the_run_where_there_is_one(tmp_path, serve, open_page):
    small_run(tmp_path / "more" / "first run")
    small_run(tmp_path / "two")
    page = open_page(serve(tmp_path))
    page.get_by_role("checkbox", name="two quadratic").check()
    page.get_by_role("checkbox", name="more/first run quadratic").check()
    page.get_by_label("In detail").select_option(label="more/first run")
    drawn(page, "return")
    page.wait_for_selector("#delay-agents canvas[aria-label$='of more/first run.']", state="attached")
    assert taken(page, "return", "CSV").suggested_filename == "afedpg-return.csv"
    for figure in ("timeline", "delay-agents", "return-agents"):
        assert taken(page, figure, "CSV").suggested_filename == f"afedpg-more_first_run-{figure}.csv"
    page.get_by_role("checkbox", name="more/first run quadratic").uncheck()
    page.wait_for_selector("#delay-agents canvas[aria-label$='of two.']", state="attached")
    for figure in ("return", "timeline"):
        assert taken(page, figure, "CSV").suggested_filename == f"afedpg-two-{figure}.csv"


def test_the_csv_has_every_point_as_it_was_measured(tmp_path, serve, open_page):
    small_run(tmp_path / "one", iterations=50)
    page = open_page(serve(tmp_path))
    drawn(page, "return")
    text = Path(taken(page, "return", "CSV").path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    raw = [row for row in rows if row["series"] == "one, as measured"]
    arrivals = read_arrivals(tmp_path / "one" / "run.db")
    assert [int(row["iterations"]) for row in raw] == (arrivals["iteration"] + 1).tolist()
    np.testing.assert_allclose([float(row["return"]) for row in raw], arrivals["mean_return"], rtol=1e-5)
    assert [row["kind"] for row in rows if row["series"] == "one, θ exact"] == ["dots"]


def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path, serve, open_page):
    page = open_page(serve(tmp_path))
    script = """async (folder) => (await import(folder + "data.js")).csv(
      [["=HYPERLINK(1)", 'a "b", c'], [-1.5, null], ["@x", undefined], ["-2", "plain"]])"""
    assert page.evaluate(script, folder_of(page)) == (
        '\'=HYPERLINK(1),"a ""b"", c"\r\n-1.5,\r\n\'@x,\r\n\'-2,plain\r\n'
    )


def settings_shown(page):
    return {row.split("\t")[0]: row.split("\t")[1:] for row in page.locator("#settings tbody tr").all_inner_texts()}


def test_settings_of_one_run_and_their_differences_between_runs(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    small_run(tmp_path / "two", eta=0.5, speeds=(1.0, 2.0, 3.0), timing="list")
    page = open_page(serve(tmp_path))
    page.get_by_role("button", name="Show none").click()
    page.get_by_role("checkbox", name="one quadratic").check()
    page.wait_for_selector("#settings-note:has-text('differs from the defaults')")
    assert settings_shown(page) == {
        "task": ["quadratic", ""], "agents": ["3", "8"], "iterations": ["20", "100"],
    }  # fmt: skip
    page.get_by_role("checkbox", name="two quadratic").check()
    page.wait_for_selector("#settings-note:has-text('2 runs differ')")
    assert settings_shown(page) == {
        "eta": ["0.03", "0.5", "0.03"], "timing": ["linear", "list", "linear"],
        "speeds": ["[]", "[1.0, 2.0, 3.0]", "[]"],
    }  # fmt: skip
    page.get_by_label("all of them").check()
    assert settings_shown(page).keys() == settings_of(Config()).keys()
    page.locator("#settings").get_by_role("button", name="Setting").click()
    first, last = page.locator("#settings tbody td:first-child").all_inner_texts()[:: len(settings_of(Config())) - 1]
    assert (first, last) == (max(settings_of(Config())), min(settings_of(Config())))


def test_the_list_is_sorted_as_chosen_and_the_address_keeps_it(tmp_path, serve, open_page):
    script = """async ([folder, orders]) => {
      const { sorted } = await import(folder + "runs.js");
      const run = (name, changed, value, theta, gradients, state) =>
        ({ name, changed, return: value, theta, gradients, total: 10, state });
      const runs = [
        run("a", 1, -5, { exact: 3 }, 10, "finished"), run("b", 3, null, {}, 2, "running"),
        run("c", 2, 7, { exact: 1 }, 10, "finished"),
      ];
      return orders.map((by) => sorted(runs, by).map(({ name }) => name).join(""));
    }"""
    expected = {"name": "abc", "newest": "bca", "return": "cab", "theta": "acb", "progress": "acb", "state": "bac"}
    small_run(tmp_path / "brief", iterations=2)
    small_run(tmp_path / "long", iterations=60)
    page = open_page(serve(tmp_path))
    assert dict(zip(expected, page.evaluate(script, [folder_of(page), list(expected)]), strict=True)) == expected
    page.wait_for_selector("#run-list li:nth-child(2)")
    assert page.locator("#run-list .name").all_inner_texts() == ["brief", "long"]
    page.get_by_label("Sort by").select_option("return")
    assert page.locator("#run-list .name").all_inner_texts() == ["long", "brief"]
    again = open_page(page.url)
    again.wait_for_selector("#run-list li:nth-child(2)")
    assert again.locator("#run-list .name").all_inner_texts() == ["long", "brief"]


def test_tables_of_refused_reports_can_be_sorted(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    assert page.locator("#reasons th button").count() == 2
    assert page.locator("#rejected th button").count() == 4


def test_the_return_of_each_agent_is_drawn(tmp_path, serve, open_page):
    small_run(tmp_path / "few", iterations=60)
    page = open_page(serve(tmp_path))
    page.locator("#return-agents canvas").scroll_into_view_if_needed()
    drawn(page, "return-agents")
    label = page.locator("#return-agents canvas").get_attribute("aria-label")
    assert label == "Return of 3 agents of few, over the run."
    text = Path(taken(page, "return-agents", "CSV").path()).read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["series"] for row in rows} == {"agent 0", "agent 1", "agent 2"}
    small_run(tmp_path / "many", agents=MOST_AGENTS + 1)
    page.get_by_role("checkbox", name="many quadratic").check()
    page.get_by_role("checkbox", name="few quadratic").uncheck()
    page.wait_for_selector(
        f"#return-agents canvas[aria-label='Return of {MOST_AGENTS + 1} agents of many, mean over the run.']"
    )
