"""Lists measured by several processes: the numbers and notes of one, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.utils.world import World
from ranks import on_ranks
from run_cli import evenhand


def measured(world: World, place: str) -> tuple[int, Any]:
    files = ("--train", f"{place}/train.csv", "--test", f"{place}/test.csv")
    done = evenhand("evaluate", f"{place}/recs.csv", *files, "--json")
    return done.code, json.loads(done.out) if done.out else done.err


def test_evaluate_over_ranks_is_that_of_one_process(tmp_path: Path) -> None:
    split = simulate_log(90, 60, 2000, seed=1).split(validation=0)
    for name in ("train", "test"):
        write_table(split.parts()[name].to_table(), tmp_path / f"{name}.csv")
    draw = np.random.default_rng(2)
    lists = [(seed, user) for seed in range(2) for user in np.flatnonzero(draw.random(90) < 0.9)]
    seeds, users = np.repeat(np.array(lists), 15, axis=0).T
    items = np.concatenate([draw.permutation(60)[:15] for _ in lists])
    ranks = np.tile(np.arange(15), len(lists))
    write_table(pa.table({"user": users, "item": items, "rank": ranks, "seed": seeds}), tmp_path / "recs.csv")
    alone = measured(World.alone(), str(tmp_path))
    together, *others = on_ranks(3, measured, str(tmp_path))
    assert alone[0] == 0
    assert any("shorter than 20" in note for note in alone[1]["notes"])
    assert together == alone
    assert others == [(0, "")] * 2
