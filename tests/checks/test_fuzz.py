"""The short form of `make fuzz`: all kept inputs again, and a few new ones for every reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.fuzz.judge import attempt
from checks.fuzz.targets import TARGETS
from checks.fuzz.targets.target import SEEDS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SLOW = {"audit-command": 1, "places": 2, "search-database": 3}
EXAMPLES = 12


@pytest.mark.parametrize("name", TARGETS)
def test_sound_inputs_are_taken_and_what_once_failed_is_handled(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    outcomes = {file: attempt(target.read, data, tmp_path) for file, data in target.seeds.items()}
    assert [(file, one.told) for file, one in outcomes.items() if one.failed] == []
    sound = {file: one.kind for file, one in outcomes.items() if not file.startswith("found-")}
    expected = "accepted" if name != "options" else "refused"  # every text is wrong for some option
    assert sound == dict.fromkeys(sound, expected)


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_ends_in_a_traceback(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]

    @settings(
        max_examples=SLOW.get(name, EXAMPLES),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(min_value=0, max_value=2**32))
    def tried(seed: int) -> None:
        outcome = attempt(target.read, target.input(seed, 10**9), tmp_path)
        assert not outcome.failed, f"input of seed {seed}: {outcome.told}"

    tried()


def test_every_folder_of_seeds_belongs_to_a_reader() -> None:
    optional = set() if "requests" in TARGETS else {"requests"}  # needs evenhand[serve]
    assert {path.name for path in SEEDS.iterdir()} == {*TARGETS, "model"} | optional
