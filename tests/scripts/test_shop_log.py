"""The messy shop log of the benchmark: the same for a seed, and lists out of it that hold nothing they must not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from run_cli import evenhand

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shop_log() -> ModuleType:
    spec = importlib.util.spec_from_file_location("shop_log", ROOT / "benchmarks" / "shop_log.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_pair_of_the_log_is_in_anybodys_list(shop_log: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    log, items = shop_log.make(tmp_path, rows=4000)
    again, _ = shop_log.make(tmp_path / "again", rows=4000)
    assert log.read_bytes() == again.read_bytes()
    commands = shop_log.commands(log, items, tmp_path, ["--method", "als"])
    assert len(commands) <= 6
    for command in commands:
        ended = evenhand(*command)
        assert ended.code == 0, ended.err
        if command[0] != "recommend":
            assert "without an id skipped" in ended.out + ended.err
    lists = tmp_path / "lists.csv"
    found = shop_log.check(log, items, lists)
    assert found["rows"] == 10 * found["customers"] > 10_000
    assert (found["bought already"], found["out of stock"], found["wrong title"]) == (0, 0, 0)
    # What is counted can be there: the same lists, of which one row is now a purchase.
    customer, sku = lists.read_text(encoding="utf-8").splitlines()[1].replace('"', "").split(",")[:2]
    with log.open("a", encoding="utf-8") as file:
        file.write(f"x,{customer},{sku},1,2026-01-01T00:00:00Z\n")
    assert shop_log.check(log, items, lists)["bought already"] == 1
