"""An audit by several processes is that of one, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenhand.audit import sweep
from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.utils.world import World
from ranks import on_ranks
from run_cli import evenhand


def audits(world: World, place: str) -> list[tuple[int, Any]]:
    """In blocks of 20 users; and without a test part of all users at once, which leaves a rank without a block."""
    found = []
    for slots, options in ((200, ["--test", f"{place}/test.csv"]), (10**6, [])):
        sweep.CHUNK_SLOTS = slots
        saved = f"{place}/{len(found)}-{world.size}.json"
        recs = [part for name in ("one", "two") for part in ("--recs", f"{name}={place}/{name}.csv")]
        done = evenhand("audit", "--train", f"{place}/train.csv", *recs, *options, "--json", "--save", saved)
        found.append((done.code, json.loads(done.out) if done.out else done.err))
    return found


def test_an_audit_over_ranks_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "CHUNK_SLOTS", 200)
    split = simulate_log(150, 60, 3000, seed=1).split(validation=0)
    draw = np.random.default_rng(2)
    for name in ("train", "test"):
        write_table(split.parts()[name].to_table(), tmp_path / f"{name}.csv")
    for name in ("one", "two"):
        users = np.repeat(np.flatnonzero(draw.random(150) < 0.9), 10)
        items = np.concatenate([draw.permutation(60)[:10] for _ in range(len(users) // 10)])
        ranks = np.tile(np.arange(10), len(users) // 10)
        write_table(pa.table({"user": users, "item": items, "rank": ranks}), tmp_path / f"{name}.csv")
    alone = audits(World.alone(), str(tmp_path))
    together, other = on_ranks(2, audits, str(tmp_path))
    assert all(code == 0 and document["rows"] for code, document in alone)
    assert together == alone
    assert other == [(0, "")] * 2
    for number in range(2):
        assert (tmp_path / f"{number}-1.json").read_text() == (tmp_path / f"{number}-2.json").read_text()
