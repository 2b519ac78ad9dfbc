"""The example of docs/native-tasks.md, run as it stands there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from afedpg.errors import AfedpgError
from afedpg.sampling.native.verification import verify_task

GUIDE = Path(__file__).parents[2] / "docs" / "native-tasks.md"


def example() -> str:
    found = re.search(r"```python title=\"balance.py\"\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def test_the_example_is_its_environment(module_path: Path) -> None:
    (module_path / "balance.py").write_text(example())
    assert verify_task("balance:Balance-v0") > 20
    assert verify_task("balance:Balance-v0", {"centre": 0.5, "limit": 0.05, "max_episode_steps": 9}, steps=500) > 20


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("return 1.0 - settings[CENTRE]", "return 1.001 - settings[CENTRE]", "reward"),
        ("clip(world.qvel[i], -10.0, 10.0)", "1.01 * world.qvel[i]", r"observation\[2\]"),
        ("< settings[LIMIT]  #", "< 0.1  #", "terminated"),
    ],
)
def test_a_wrong_task_is_found_out(module_path: Path, right: str, wrong: str, what: str) -> None:
    name = f"wrong_{what[:6]}"
    source = example().replace(right, wrong, 1).replace("Balance-v0", f"{name}-v0")
    assert source != example()
    (module_path / f"{name}.py").write_text(source)
    with pytest.raises(AfedpgError, match=what):
        verify_task(f"{name}:{name}-v0")


def test_a_subclass_has_no_task(module_path: Path) -> None:
    (module_path / "heavier.py").write_text(
        "from balance import *\n\nclass Heavier(BalanceEnv):\n    pass\n\n"
        "gymnasium.register('Heavier-v0', entry_point=Heavier, max_episode_steps=500)\n"
    )
    (module_path / "balance.py").write_text(example())
    with pytest.raises(AfedpgError, match=r"no compiled task is known for heavier\.Heavier"):
        verify_task("heavier:Heavier-v0")
