"""What a reader takes from the page is so: its numbers, its filter, its readouts, and what comes out of the printer."""

from __future__ import annotations

from asking import small_run
from federations import wait_until
from looking import BLANK, drawn, folder_of, number, tile

from afedpg import train
from afedpg.dashboard.catalog import Catalog
from afedpg.record.database import read_table

FIGURES = ("return", "timeline", "delays", "delay-agents", "return-agents", "concurrency", "bytes", "lengths", "norm")


def show(page, *names):
    page.get_by_role("button", name="Show none").click()
    for name in names:
        page.get_by_role("checkbox", name=f"{name} quadratic").check()
    page.wait_for_selector(f"#run-count:has-text('{len(names)} of')")


def test_the_tile_and_the_list_say_the_same_return(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    [run] = Catalog([tmp_path]).describe()
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    said = page.locator("#run-list .value").inner_text()
    value, theta = (float(part.split()[-1]) for part in said.split(", "))
    assert said.startswith("return ")
    assert (value, theta) == (float(f"{run['return']:.4g}"), float(f"{run['theta']['exact']:.4g}"))
    assert float(tile(page, "Return")) == float(f"{run['return']:.3g}")
    assert page.locator("#tiles .small").first.inner_text().startswith("training, last 5%; θ exact ")


def test_a_seed_counts_once_in_the_mean_of_seeds(tmp_path, serve, open_page):
    for name, seed in (("seed0", 0), ("seed0-2", 0), ("seed1", 1)):
        small_run(tmp_path / name, seed=seed)
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    show(page, "seed0", "seed0-2")
    box = page.get_by_label("mean of seeds")
    page.wait_for_selector("#legend li:nth-child(2)")
    assert box.is_disabled(), "one seed has no mean"
    show(page, "seed0-2", "seed1", "seed0")
    page.wait_for_selector("#legend li:nth-child(3)")
    box.check()
    page.wait_for_selector("#legend li:only-child")
    assert page.locator("#legend li").inner_text() == (
        "quadratic, afedpg, 3 agents: 2 seeds; left out, a seed that is there already: seed0-2"
    )
    drawn(page, "return")
    page.locator("#return canvas").focus()
    page.keyboard.press("End")
    assert "2 seeds" in page.locator("#return [role=status]").inner_text()


def test_a_run_that_has_ended_is_not_read_out_later(tmp_path, serve, open_page):
    small_run(tmp_path / "brief")
    small_run(tmp_path / "long", iterations=80, timing="straggler")
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    show(page, "brief", "long")
    page.wait_for_selector("#legend li:nth-child(2)")
    for figure in ("return", "bytes", "delays"):
        canvas = page.locator(f"#{figure} canvas")
        canvas.scroll_into_view_if_needed()
        drawn(page, figure)
        box, said = canvas.bounding_box(), []
        for share in (0.15, 0.8):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 60)
            page.wait_for_selector(f"#{figure} .readout:not([hidden])")
            said.append(page.locator(f"#{figure} .readout").inner_text())
        assert ["brief" in text for text in said] == [True, False], (figure, said)
        assert ["long" in text for text in said] == [True, True]


def test_a_printed_page_has_every_picture_in_dark_ink(tmp_path, serve, open_page):
    small_run(tmp_path / "one")
    page = open_page(serve(tmp_path), {"width": 1200, "height": 500}, "dark")
    page.wait_for_selector("#timeline canvas[aria-label^='Timeline of 3']", state="attached")
    drawn(page, "return")
    assert page.evaluate(BLANK, "norm"), "out of sight, nothing is drawn"
    page.evaluate(f"""(figures) => addEventListener("beforeprint", () => {{
      window.blank = figures.filter({BLANK});
      window.ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
    }})""", list(FIGURES))  # fmt: skip
    page.pdf(path=tmp_path / "page.pdf")
    assert page.evaluate("[window.blank, window.ink]") == [[], "#17222d"]
    wait_until(lambda: page.evaluate("!document.documentElement.dataset.theme"), what="the screen's theme again")


def test_a_filter_takes_whole_words_where_there_are_any(tmp_path, serve, open_page):
    script = """async ([folder, texts]) => {
      const { matching } = await import(folder + "runs.js");
      const run = (name, method, seed, more) =>
        ({ name, method, seed, task: "hopper", engine: "virtual", state: "finished", agents: 8, ...more });
      const runs = [
        run("hopper-afedpg-seed1", "afedpg", 1), run("hopper-afedpg-seed10", "afedpg", 10),
        run("hopper-fedpg-seed1", "fedpg", 1, { state: "running" }),
        run("hopper-afedpg-vanilla-seed1", "afedpg-vanilla", 1, { agents: 18 }),
        run("old/fedpg/a", "pg", 3, { task: "CartPole-v1" }),
      ];
      return texts.map((text) => matching(runs, text).map(({ name }) => runs.findIndex((run) => run.name === name)));
    }"""
    expected = {
        "": [0, 1, 2, 3, 4], "fedpg": [2, 4], "FedPG running": [2], "afedpg": [0, 1], "seed1": [0, 2, 3],
        "afedpg seed1": [0], "seed 10": [1], "8 agents": [0, 1, 2, 4], "vanilla": [3], "fed": [0, 1, 2, 3, 4],
        "seed": [0, 1, 2, 3, 4], "cartpole-v1": [4], "cart": [4], "hopper fedpg": [2], "nothing": [],
    }  # fmt: skip
    page = open_page(serve(tmp_path))
    found = page.evaluate(script, [folder_of(page), list(expected)])
    assert dict(zip(expected, found, strict=True)) == expected


def test_who_never_answered_is_not_done(tmp_path, serve, open_page):
    train("quadratic", agents=3, iterations=20, silent=(1,), out=tmp_path / "one")
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    assert page.locator("#agents tbody td:nth-child(2)").all_inner_texts() == ["done", "silent", "done"]


def test_returns_per_site_are_in_a_table_with_their_mean_and_the_worst(tmp_path, serve, open_page):
    small_run(tmp_path / "alike")
    run = small_run(tmp_path / "sites", optima=(0.0, 1.0, 5.0))
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    show(page, "alike")
    page.wait_for_selector("#sites-card", state="hidden")
    show(page, "sites")
    page.wait_for_selector("#sites tbody tr:nth-child(3)")
    rows = [row.split("\t") for row in page.locator("#sites tbody tr").all_inner_texts()]
    assert [row[:2] for row in rows] == [[f"agent {number}", "exact"] for number in range(3)]
    means = [evaluation.mean for evaluation in run.evaluations]
    assert [float(row[2].replace("\u2212", "-")) for row in rows] == [float(f"{mean:.4g}") for mean in means]
    note = page.locator("#sites-note").inner_text().replace("\u2212", "-")
    assert f"worst {float(f'{min(means):.3g}'):g} on agent {means.index(min(means))}." in note


def test_unused_contributions_are_counted_in_a_tile_and_per_agent(tmp_path, serve, open_page):
    train("quadratic", agents=3, iterations=40, aggregator="rennala:batch=2", out=tmp_path / "one")
    unused = read_table(tmp_path / "one" / "run.db", "unused")["agent"].tolist()
    page = open_page(serve(tmp_path))
    page.wait_for_selector("#content:not([hidden])")
    assert number(tile(page, "Unused")) == len(unused) > 5
    column = page.locator("#agents thead th").all_inner_texts().index("Unused") + 1
    told = page.locator(f"#agents tbody td:nth-child({column})").all_inner_texts()
    assert [number(text) for text in told] == [unused.count(agent) for agent in range(3)]
