"""What a refused report costs, and what it leaves behind: a line in the journal that folds to the same again."""

from __future__ import annotations

import numpy as np
import pytest
from support import answer

from afedpg.config import from_settings
from afedpg.engine.federation import Federation
from afedpg.engine.process import Interruption
from afedpg.messages import Join, Moments, Stats
from afedpg.record import checkpoint, folder, journal
from afedpg.record.recorder import Recorder
from afedpg.runs.parts import Own, prepare
from afedpg.runs.session import Session
from afedpg.server.admission import Limits
from afedpg.server.fold import step
from afedpg.server.state import from_tree

SIZE = 2000


class Standing:
    """An engine at which nothing happens by itself."""

    seconds, consistent = 0.0, True

    def to_tree(self):
        return {}


@pytest.fixture
def session(tmp_path, request):
    """Two agents have their Tasks, and the run is recorded in small segments."""
    config = from_settings({"task": "quadratic", "dimension": SIZE, "agents": 2, "journal_mib": 0.02, **request.param})
    workload, rule, server = prepare(config, Own())
    recorder = Recorder(folder.create(tmp_path / "run", config), config)
    recorder.journal._segment_bytes = 1 << 14
    federation = Federation(rule, server, recorder, limits=Limits.of(config))
    session = Session(config, workload, federation, Standing(), Interruption(), 10**6)
    session._checkpoint()
    session.tasks = [federation.apply(Join(agent), 0.0).tasks[0] for agent in range(2)]
    yield session
    recorder.close(finished=False)


LIES = {
    "a gradient that is not finite": {"payload": np.full(SIZE, np.nan, np.float32)},
    "too long": {"payload": np.full(SIZE, 1e30, np.float32)},
    "a gradient of another length": {"payload": np.ones(10 * SIZE, np.float32)},
    "episodes without end": {"stats": Stats(1, (1.0,) * 65_536, (1,) * 65_536)},
    "observations without end": {"moments": {"observations": Moments(1e6, np.ones(4096), np.ones(4096))}},
    "names without end": {"moments": {"\x1b" * 9999: Moments(1.0, np.ones(1), np.zeros(1))}},
    "scalars without end": {"scalars": {"\x1b" * 9999: 1.0}},
    "a Task that is not outstanding": {"version": 77},
}


@pytest.mark.parametrize("session", [{}, {"method": "fedpg"}], ids=["afedpg", "fedpg"], indirect=True)
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_refused_report_costs_the_journal_less_than_a_kilobyte(session, lie):
    federation, recorder = session.federation, session.federation.recorder
    server, before = federation.server, recorder.journal.bytes_written
    outcome = federation.apply(answer(session.tasks[1], np.ones(SIZE))._replace(**lie), 1.0)
    assert outcome.rejected is not None
    assert outcome.rejected.reason.isprintable()
    assert recorder.journal.bytes_written - before < 1000
    assert len(outcome.tasks) == ("version" not in lie)  # who answered no outstanding Task has other work
    again = prepare(session.config, Own())[2]
    for _, _, event in journal.read(recorder.folder.journal):
        again, folded = step(federation.rule, again, event, federation.limits)
    assert (again.outstanding, again.counter) == (server.outstanding, server.counter)
    assert folded.rejected == outcome.rejected


@pytest.mark.parametrize("session", [{"method": "fedpg"}], indirect=True)
def test_an_open_round_frees_the_journal_and_can_be_gone_on_with(session):
    federation, recorder = session.federation, session.federation.recorder
    federation.apply(answer(session.tasks[0], np.ones(SIZE)), 0.0)
    task = session.tasks[1]
    for _ in range(2000):
        [task] = federation.apply(answer(task, np.full(SIZE, np.nan)), 0.0).tasks
        session._finished()
    assert [given.agent for given in federation.server.memory.kept] == [0]
    assert recorder.journal.next_sequence > 2000
    assert sum(path.stat().st_size for path in recorder.folder.journal.iterdir()) < 10 * (1 << 14)
    start, tree = checkpoint.load_latest(recorder.folder.checkpoints)
    again = from_tree(tree["server"], federation.rule)
    federation.apply(answer(task, np.ones(SIZE)), 0.0)
    for _, _, event in journal.read(recorder.folder.journal, start):
        again, _ = step(federation.rule, again, event, federation.limits)
    assert (again.iteration, again.theta.tobytes()) == (1, federation.server.theta.tobytes())
