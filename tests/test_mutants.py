"""The mutations of `make mutants` still find the code they break; whether a test notices, only that command tells."""

from __future__ import annotations

import pytest
from mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutation_finds_its_place(mutant: Mutant) -> None:
    assert (ROOT / "src" / "afedpg" / mutant.file).read_text().count(mutant.old) == 1
