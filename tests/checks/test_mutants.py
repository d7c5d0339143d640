"""Every promise of docs/reliability.md has mutants that can be made; `python -m checks.mutants` runs their tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.mutants import MUTANTS, PROTECTIONS, Mutant

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")


def test_every_promise_has_a_mutant_and_every_mutant_a_promise() -> None:
    promised = PAGE.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line.strip("| ") for line in promised.splitlines() if line.startswith("|")][2:]
    for row in rows:
        assert sum(row.startswith(start) for start in PROTECTIONS) == 1, row
    for start in PROTECTIONS:
        assert sum(row.startswith(start) for row in rows) == 1, start
    assert f"({len(MUTANTS)} of them)" in PAGE
    for start, each in PROTECTIONS.items():
        assert f"| {start} | {'; '.join(one.without for one in each)} |" in PAGE


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.without)
def test_it_can_be_made_and_its_tests_exist(mutant: Mutant) -> None:
    assert mutant.problem() is None
    assert all((ROOT / word).exists() for word in mutant.tests.split() if word.startswith("tests"))
