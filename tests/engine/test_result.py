"""What `train` returns: its policy, its file, its curve and its text; and progress on the way."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from afedpg import load_policy, train
from afedpg.errors import AfedpgError, ConfigError

POLE = {"agents": 2, "iterations": 4, "steps": 64, "evaluate_every": 1, "evaluate_episodes": 3, "workers": 1}


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    return train("CartPole-v1", **POLE, out=tmp_path_factory.mktemp("result") / "run")


def test_the_policy_acts_as_the_one_that_is_loaded_from_the_folder(pole):
    observations = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    for which in ("best", "last"):
        mine, stored = pole.load(which), load_policy(pole.out, which=which)
        assert mine.file.origin == stored.file.origin
        for deterministic in (True, False):
            given = [policy.predict(observations, deterministic=deterministic)[0] for policy in (mine, stored)]
            np.testing.assert_array_equal(*given)
    assert pole.policy.act(observations[0]) in (0, 1)


def test_it_and_its_policy_can_be_pickled(pole, tmp_path):
    seen = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    again = pickle.loads(pickle.dumps(pole))
    assert (again.sha256, again.out, repr(again)) == (pole.sha256, pole.out, repr(pole))
    saved = [
        each.save(tmp_path / f"{which}{n}", which) for which in ("best", "last") for n, each in enumerate((pole, again))
    ]
    assert [saved[0].read_bytes(), saved[2].read_bytes()] == [saved[1].read_bytes(), saved[3].read_bytes()]
    policy = load_policy(pole.out, seed=3)
    policy.predict(seen, deterministic=False)
    copy = pickle.loads(pickle.dumps(policy))  # its stream goes on
    given = [each.predict(seen, deterministic=False)[0] for each in (policy, copy)]
    np.testing.assert_array_equal(*given)


def test_results_are_compared_as_objects(pole):
    assert pole == pole
    assert pole != train("quadratic", agents=1, iterations=1)


def test_a_saved_policy_is_loaded_by_its_name(pole, tmp_path):
    place = pole.save(tmp_path / "mine.safetensors", which="last")
    np.testing.assert_array_equal(load_policy(place).file.theta, pole.theta.astype(np.float32))
    assert load_policy(pole.save(tmp_path / "best.st")).file.origin.which == "best"
    with pytest.raises(AfedpgError, match=r"cannot write .*: No such file"):
        pole.save(tmp_path / "nowhere" / "policy")
    with pytest.raises(ConfigError, match="which: 'worst' is neither best nor last"):
        pole.save(tmp_path / "x", which="worst")


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_curve_is_drawn_from_the_folder_or_from_memory(pole, tmp_path, ending):
    figures = [pole.plot(tmp_path / f"folder.{ending}")]
    figures.append(train("CartPole-v1", **POLE).plot(tmp_path / f"memory.{ending}"))
    assert (tmp_path / f"folder.{ending}").read_bytes() == (tmp_path / f"memory.{ending}").read_bytes()
    labels = [text.get_text() for text in figures[0].axes[0].get_legend().get_texts()]
    assert labels == ["training (theta~)", "theta, sampled", "theta, deterministic"]
    assert figures[0]._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    with pytest.raises(ConfigError, match="plot: cannot write"):
        pole.plot(tmp_path / "curve.nonsense")


def test_drawing_leaves_the_users_own_figures_where_they_are():
    """A notebook has chosen its backend before."""
    import matplotlib

    before = matplotlib.rcParams._get("backend")
    train("quadratic", iterations=3).plot()
    assert matplotlib.rcParams._get("backend") == before


def test_it_reads_well(pole):
    text = repr(pole)
    assert text.startswith("Result(CartPole-v1, afedpg, 2 agents: 8 gradients, 512 samples, ")
    assert "last theta, after iteration 8: sampled " in text
    assert "best theta of 4 evaluations, after iteration " in text
    assert text.endswith(f"run folder {pole.out})")
    assert len(text) < 600


def test_a_synthetic_problem_has_no_policy_and_says_so(tmp_path):
    result = train("quadratic", iterations=3, out=tmp_path / "run")
    with pytest.raises(ConfigError, match="policy: quadratic is a synthetic problem"):
        _ = result.policy
    assert Path(result.save(tmp_path / "theta")).is_file()
    assert result.plot().axes


def test_progress_is_shown_where_there_is_no_terminal(capsys):
    train("quadratic", agents=2, iterations=10, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("quadratic, afedpg, 2 agents, 10 parameters, 20 gradients")
    assert lines[-1].startswith("20/20  100%  return ")
    train("quadratic", agents=2, iterations=10)
    assert capsys.readouterr().err == ""


def test_two_results_can_be_compared():
    """Arrays have no one answer to ==: a result is itself and no other."""
    first, second = (train("quadratic", agents=2, iterations=3) for _ in range(2))
    assert first == first
    assert first != second
    assert first.sha256 == second.sha256
    assert len({first, second}) == 2
