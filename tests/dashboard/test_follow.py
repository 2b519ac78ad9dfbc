"""The page is a function of run.db: what a browser puts together from changes is what a fresh one is given."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest
from asking import app_of, ask, runs_of, small_run

from afedpg import train
from afedpg.config import from_settings
from afedpg.dashboard import follow, tail
from afedpg.dashboard.catalog import Catalog
from afedpg.dashboard.follow import Follower
from afedpg.dashboard.members import Members
from afedpg.dashboard.tail import Status, status_of
from afedpg.messages import Evaluation
from afedpg.record.database import Database, read_table

ENDLESS = '{"time": 1.0, "seconds": 1e999, "gradients_per_second": 1.0, "agents": []}'  # no NaN, no Infinity to see


@pytest.fixture(autouse=True)
def read_at_once(monkeypatch):
    monkeypatch.setattr(follow, "READ_SECONDS", 0.0)


def followed(root):
    [entry] = Catalog([root]).entries().values()
    return Follower(entry)


class Reader:
    """What a browser does with the changes."""

    def __init__(self, follower):
        self.follower, self.cursor, self.known, self.received = follower, "", {}, 0

    def ask(self):
        change = json.loads(json.dumps(self.follower.changes(self.cursor)))
        self.cursor = change.pop("cursor")
        if "curve" in change:
            self.received = len(change["curve"]["gradient"])
            if change["from"]:
                old = self.known["curve"]
                change["curve"] = {name: old[name][: change["from"]] + new for name, new in change["curve"].items()}
            self.known = change
        return self.known

    def settle(self):
        while self.ask().get("more"):
            pass
        return self.known


def plain(known):
    return {name: value for name, value in known.items() if name not in ("from", "more")}


def test_changes_add_up_while_a_run_goes_on(tmp_path):
    """Looked at after every arrival, with another reader that comes only at the end."""
    eager, looks = [], []

    def look(arrival, seconds, theta):
        if arrival.gradient == 1:
            return
        if arrival.gradient % 97 == 0:
            eager[0:] = eager or [Reader(followed(tmp_path))]
            looks.append(eager[0].settle().get("gradients"))

    train("quadratic", agents=5, iterations=600, out=tmp_path / "run", on_arrival=look)
    known = eager[0].settle()
    assert plain(known) == plain(Reader(followed(tmp_path)).settle())
    assert known["gradients"] == 3000
    assert known["state"] == "finished"
    assert sorted(looks) == looks
    assert looks[-1] > 0, "rows are committed, and seen, while the run goes on"


def test_an_update_sends_and_reads_what_is_new_alone(tmp_path, monkeypatch):
    small_run(tmp_path / "run", iterations=500)
    reader = Reader(followed(tmp_path))
    reader.settle()
    assert reader.received == 750
    read = []
    monkeypatch.setattr(tail, "columns", lambda rows, real=tail.columns: read.append(len(rows)) or real(rows))
    assert set(reader.follower.changes(reader.cursor)) == {"cursor"}
    base = Database(tmp_path / "run" / "run.db")
    newest = base._connection.execute("SELECT * FROM arrivals ORDER BY gradient DESC LIMIT 1").fetchone()
    base._connection.execute(f"INSERT INTO arrivals VALUES ({', '.join('?' * len(newest))})", (1501, 1500, *newest[2:]))
    base.close()
    assert reader.settle()["gradients"] == 1501
    assert reader.received == 1
    assert sum(read) == 1


def test_a_run_that_goes_back_is_read_afresh(tmp_path):
    small_run(tmp_path / "run")
    reader = Reader(followed(tmp_path))
    assert reader.settle()["gradients"] == 60
    base = Database(tmp_path / "run" / "run.db")
    base.rewind(gradients=40, sequence=10**9)
    base.close()
    assert reader.settle()["gradients"] == 40
    assert plain(reader.known) == plain(Reader(followed(tmp_path)).settle())


def test_another_run_in_its_place_is_read_afresh(tmp_path):
    small_run(tmp_path / "run", seed=1)
    app = app_of(tmp_path)
    run = runs_of(app)["run"]["id"]
    first = ask(app, f"/api/updates?at={run}~").json[run]
    (tmp_path / "run").rename(tmp_path.parent / "old")
    small_run(tmp_path / "run", seed=2)
    again = ask(app, f"/api/updates?at={run}~{first['cursor']}").json[run]
    assert again["from"] == 0
    assert again["curve"]["mean_return"] != first["curve"]["mean_return"]


def test_looking_changes_nothing_and_locks_nobody(tmp_path):
    small_run(tmp_path / "run")
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "run").iterdir()}
    follower = followed(tmp_path)
    follower.changes("")
    follower.timeline(None, 100)
    assert before == {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in (tmp_path / "run").iterdir()}
    with sqlite3.connect(tmp_path / "run" / "run.db", timeout=0) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        Reader(followed(tmp_path)).settle()
        writer.execute("INSERT INTO notes VALUES ('some', 'thing')")


def test_a_run_without_a_row_yet_is_shown_as_such(tmp_path):
    small_run(tmp_path / "run")
    (tmp_path / "run" / "run.db").unlink()
    said = followed(tmp_path).changes("")
    assert (said["gradients"], said["curve"]["gradient"]) == (0, [])
    assert "cannot read" in said["error"]
    assert followed(tmp_path).timeline(None, 50)["agent"] == []


def test_a_run_that_can_be_read_again_has_no_trouble_any_more(tmp_path):
    small_run(tmp_path / "run")
    reader = Reader(followed(tmp_path))
    (tmp_path / "run" / "run.db").rename(tmp_path / "away")
    assert reader.settle()["error"]
    (tmp_path / "away").rename(tmp_path / "run" / "run.db")
    assert (reader.settle()["error"], reader.known["gradients"]) == ("", 60)


def test_rows_that_come_while_the_status_cannot_be_read_are_not_lost(tmp_path):
    small_run(tmp_path / "run")
    reader = Reader(followed(tmp_path))
    reader.settle()
    base = Database(tmp_path / "run" / "run.db")
    base.rewind(gradients=40, sequence=10**9)  # to be read afresh
    base.note("status", "{")
    base.close()
    assert "the status in run.db" in reader.settle()["error"]
    with closing(sqlite3.connect(tmp_path / "run" / "run.db", isolation_level=None)) as writer:
        writer.execute("DELETE FROM notes WHERE key = 'status'")
    assert (reader.settle()["error"], reader.known["gradients"]) == ("", 40)
    assert plain(reader.known) == plain(Reader(followed(tmp_path)).settle())


def test_a_film_made_later_appears(tmp_path):
    small_run(tmp_path / "run")
    reader = Reader(followed(tmp_path))
    assert reader.settle()["videos"] == []
    (tmp_path / "run" / "policy.mp4").write_bytes(b"film")
    (tmp_path / "run" / "no-text-\udcff.mp4").write_bytes(b"film")  # no address can carry that name
    assert reader.settle()["videos"] == ["policy.mp4"]


def test_of_many_evaluations_the_newest_are_among_those_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "MOST_EVALUATIONS", 20)
    small_run(tmp_path / "run", evaluate_every=1, iterations=100)
    shown = followed(tmp_path).changes("")["evaluations"]
    assert 5 < len(shown) <= 20
    assert shown[-1][1] == 300
    assert shown[0][1] < 150, "nor is the beginning gone"


def test_theta_is_the_mean_over_the_agents_environments(tmp_path):
    small_run(tmp_path / "run")
    base = Database(tmp_path / "run" / "run.db")
    for gradients, environment, mean in ((61, "a", 5.0), (62, "a", 1.0), (62, "b", 3.0)):
        measured = Evaluation("sampled", mean, 0.5, mean - 1, mean + 1, 9, environment)
        base.add_evaluation(measured, 20, gradients, 900, 9.0)
    base.close()
    *_, alone, both = followed(tmp_path).changes("")["evaluations"]
    assert alone == (20, 61, 900, 9.0, "sampled", 5.0, 4.0, 6.0)
    assert both == (20, 62, 900, 9.0, "sampled", 2.0, None, None)


def test_the_page_knows_every_segment_of_a3c(tmp_path):
    """Against what the run itself said when each arrived."""
    seen = []
    result = train(
        "CartPole-v1", method="a3c", agents=3, iterations=3, steps=64, segment=32, workers=1, timing="list",
        speeds=(1.0, 1.7, 3.1), out=tmp_path / "run", on_arrival=lambda arrival, *at: seen.append((arrival, at[0])),
    )  # fmt: skip
    follower = followed(tmp_path)
    said = follower.changes("")
    delays = [arrival.delay for arrival, _ in seen]
    assert said["gradients"] == said["total"] == len(seen) == 18
    assert (said["totals"]["steps"], said["seconds"]) == (result.samples, result.seconds)
    assert said["delays"]["mean"] == pytest.approx(sum(delays) / 18)
    assert said["delays"]["delay"][-1] == max(delays)
    assert said["agents"]["gradients"] == [sum(arrival.agent == agent for arrival, _ in seen) for agent in range(3)]
    mine = [seconds for arrival, seconds in seen if arrival.agent == 0]
    assert said["agents"]["seconds_per_gradient"][0] == pytest.approx((mine[-1] - mine[0]) / (len(mine) - 1))
    assert set(said["concurrency"]["concurrency"]) == {3}
    bars = follower.timeline(None, 100)
    assert bars["end"] == [float(f"{seconds:.12g}") for _, seconds in seen]


def test_who_has_sent_nothing_yet_is_at_work(tmp_path):
    common = {"agents": 4, "iterations": 50, "timing": "list", "speeds": (1.0, 1.0, 1.0, 1000.0)}
    train("quadratic", out=tmp_path / "slow" / "run", **common)
    train("quadratic", out=tmp_path / "late" / "run", late={"3": 20.0}, **common)
    slow, late = followed(tmp_path / "slow"), followed(tmp_path / "late")
    assert set(slow.changes("")["concurrency"]["concurrency"]) == {4}
    assert late.changes("")["concurrency"]["concurrency"] == [3] * 57 + [4] * 143  # 57 steps before 20 s
    for follower, since in ((slow, 0.0), (late, 20.0)):
        found = follower.timeline(None, 1000)
        assert found["lanes"] == [0, 1, 2, 3]
        assert [at for agent, at, _ in found["out"] if agent == 3] == [since]


def test_the_timeline_is_the_timing_models(tmp_path):
    """Asynchronously an agent's next work starts when its last was applied; synchronously it waits for the slowest."""
    speeds = (1.0, 1.75, 4.0)
    common = {"agents": 3, "iterations": 4, "timing": "list", "speeds": speeds}
    train("quadratic", out=tmp_path / "async" / "run", **common)
    train("quadratic", method="fedpg", out=tmp_path / "sync" / "run", **common)
    free = followed(tmp_path / "async").timeline(None, 100)
    for agent, speed in enumerate(speeds):
        mine = [i for i, who in enumerate(free["agent"]) if who == agent]
        assert [free["end"][i] for i in mine] == [speed * (n + 1) for n in range(len(mine))]
        assert [free["start"][i] for i in mine] == [speed * n for n in range(len(mine))]
    assert free["finish"] == free["end"]
    assert free["step"] == list(range(1, 13))
    assert [entry[0] for entry in sorted(free["out"])] == [0, 1, 2]
    bound = followed(tmp_path / "sync").timeline(None, 100)
    expected = [(n + 1, agent, 4.0 * n, 4.0 * n + speeds[agent], 4.0 * (n + 1)) for n in range(4) for agent in range(3)]
    names = ("step", "agent", "start", "finish", "end")
    assert list(zip(*(bound[name] for name in names), strict=True)) == expected
    window = followed(tmp_path / "sync").timeline(9, 3)
    assert (window["first"], window["begin"], window["until"]) == (7, 8.0, 12.0)


def test_who_is_late_gone_or_silent_is_known_in_virtual_time():
    settings = {"task": "quadratic", "agents": 5, "late": {"1": 6.5}, "drop": {"2": 10.5}, "silent": (3,)}
    config, members = from_settings(settings), Members()

    def states(seconds, state="running", waits=()):
        return members.table(config, Status(), dict.fromkeys(waits, 0.0), state, seconds)["state"]

    assert states(0.0) == ["working", "not yet", "working", "silent", "working"]
    assert states(11.0, waits=[4]) == ["working", "working", "left", "silent", "waiting"]
    assert states(11.0, "interrupted") == ["stopped", "stopped", "left", "silent", "stopped"]
    members.add({name: np.array([0.0, 1.0, 2.0]) for name in tail.COLUMNS})  # a gradient each of agents 0, 1 and 2
    assert states(11.0, "finished", waits=[4]) == ["done", "done", "left", "silent", "never answered"]


def test_a_live_server_is_believed_while_it_speaks(monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    told = {"name": "clinic-a", "seconds_per_gradient": 0.5, "last_seen": 2.0, "rejected": 4}
    agents = [{"agent": 7, "state": "working", **told}, {"agent": 9, "state": "away", **told}]
    config, members = from_settings({"task": "quadratic", "engine": "grpc"}), Members()

    def table(age):
        said = {"time": now - age, "seconds": 9.0, "gradients_per_second": 1.0, "agents": agents}
        return members.table(config, status_of({"status": json.dumps(said)}), {}, "running", 100.0)

    assert [table(1.0)[name] for name in ("agent", "state", "rejected")] == [[7, 9], ["working", "away"], [4, 4]]
    assert table(1.0)["last_seen"] == [3.0, 3.0]
    assert table(60.0)["state"] == ["unknown", "unknown"]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR REPLACE INTO notes VALUES ('status', '{\"agents\": [{}]}')",
        "INSERT OR REPLACE INTO notes VALUES ('status', '[1, 2')",
        "INSERT OR REPLACE INTO notes VALUES ('status', '{\"time\": NaN, \"agents\": []}')",
        f"INSERT OR REPLACE INTO notes VALUES ('status', '{ENDLESS}')",
        "UPDATE arrivals SET agent = 'x' WHERE gradient = 7",
        "UPDATE arrivals SET seconds = NULL",
        "UPDATE arrivals SET seconds = 'x', mean_return = 'y'",
        "UPDATE arrivals SET bytes_up = 9e999 WHERE gradient = 7",
        "INSERT INTO rejected VALUES (1000, 1.0, 3, 0, NULL)",
        "INSERT INTO rejected VALUES (1000, 9e999, 3, 0, 'reason')",
        "INSERT INTO evaluations VALUES (9, 9, 9, 9.0, 'kind', NULL, 1.0, 1.0, 1.0, 1.0, 1)",
        "INSERT INTO waits VALUES (1000, 9e999, 60, 0)",
        "DROP TABLE arrivals",
    ],
)
def test_a_spoilt_run_says_so_and_leaves_the_others_alone(tmp_path, statement):
    for name in ("good", "spoilt"):
        small_run(tmp_path / name)
    with closing(sqlite3.connect(tmp_path / "spoilt" / "run.db", isolation_level=None)) as base:
        base.execute(statement)
    app = app_of(tmp_path)
    runs = runs_of(app)
    for _ in range(2):  # not only the first time
        answer = ask(app, "/api/updates?" + "&".join(f"at={run['id']}~" for run in runs.values()))
        assert b"Infinity" not in answer.body
        said = answer.json
        assert said[runs["good"]["id"]]["gradients"] == 60
        assert said[runs["spoilt"]["id"]]["error"]


def test_what_json_has_no_word_for_is_left_out(tmp_path):
    small_run(tmp_path / "run")
    base = Database(tmp_path / "run" / "run.db")
    base._connection.execute("UPDATE arrivals SET mean_return = 9e999, gradient_norm = -9e999 WHERE gradient > 30")
    base._connection.execute("UPDATE evaluations SET mean = 9e999")
    base.close()
    app = app_of(tmp_path)
    run = runs_of(app)["run"]
    answer = ask(app, f"/api/updates?at={run['id']}~")
    assert b"Infinity" not in answer.body
    assert run["return"] is None
    assert answer.json[run["id"]]["curve"]["mean_return"][40] is None
    assert answer.json[run["id"]]["evaluations"][0][5] is None


def test_refused_reports_are_counted_by_reason(tmp_path):
    small_run(tmp_path / "run")
    base = Database(tmp_path / "run" / "run.db")
    for number in range(7):
        base.add_event(
            "rejected", 1000 + number, 1.5, 3, number % 2, f"gradient: norm {number}.5e+12 is above the bound 1e+09"
        )
    base.add_event("rejected", 2000, 2.0, 4, 1, "<script>alert(1)</script>")
    base.close()
    rejected = followed(tmp_path).changes("")["rejected"]
    assert rejected["count"] == 8
    assert rejected["reasons"] == [("gradient: norm # is above the bound #", 7), ("<script>alert(#)</script>", 1)]
    assert sorted(followed(tmp_path).changes("")["agents"]["rejected"]) == [0, 4, 4]
    assert rejected["newest"][0] == (2.0, 4, 1, "<script>alert(1)</script>")


def test_unused_contributions_are_counted_as_they_come(tmp_path):
    """Of a run whose aggregator drops what is outdated; and of a run.db that is older than the table."""
    train("quadratic", agents=3, iterations=20, aggregator="rennala:batch=4", out=tmp_path / "run")
    unused = read_table(tmp_path / "run" / "run.db", "unused")["agent"].tolist()
    run = followed(tmp_path)
    found = run.changes("")
    assert found["unused"] == len(unused) > 5
    assert found["agents"]["unused"] == [unused.count(agent) for agent in range(3)]
    base = Database(tmp_path / "run" / "run.db")
    base.add_event("unused", 10**6, 99.0, 20, 1, "delay 1")
    base.close()
    run._read()
    again = run.changes("")
    assert again["unused"] == len(unused) + 1
    assert again["agents"]["unused"][1] == unused.count(1) + 1
    with closing(sqlite3.connect(tmp_path / "run" / "run.db")) as connection, connection:
        connection.execute("DROP TABLE unused")
    assert followed(tmp_path).changes("")["unused"] == 0


def test_suspicions_are_the_newest_of_every_agent(tmp_path):
    """Of a run whose aggregator judges, of one whose does not, and of a run.db that is older than the table."""
    train(
        "quadratic", agents=4, iterations=20, aggregator="slots", attack="scaled-sign-flip", attackers=(1,),
        out=tmp_path / "run",
    )  # fmt: skip
    rows = read_table(tmp_path / "run" / "run.db", "suspicion")
    newest = dict(zip(rows["agent"].tolist(), rows["value"].tolist(), strict=True))  # rows are in order
    found = followed(tmp_path).changes("")["agents"]["suspicion"]
    assert found == [newest[agent] for agent in range(4)]
    assert max(found) == found[1]
    with closing(sqlite3.connect(tmp_path / "run" / "run.db")) as connection, connection:
        connection.execute("DROP TABLE suspicion")
    assert followed(tmp_path).changes("")["agents"]["suspicion"] == [None] * 4
    small_run(tmp_path / "plain" / "run")
    assert set(followed(tmp_path / "plain").changes("")["agents"]["suspicion"]) == {None}


def test_a_live_server_says_who_is_there(tmp_path):
    how = {"engine": "local", "max_share": 0.6}  # so that neither can do all the work alone
    train("quadratic", agents=2, iterations=30, **how, out=tmp_path / "run")
    agents = followed(tmp_path).changes("")["agents"]
    assert agents["name"] == ["agent-0", "agent-1"]
    assert sum(agents["gradients"]) == 60
    assert min(agents["gradients"]) > 0
    assert min(agents["seconds_per_gradient"]) > 0
