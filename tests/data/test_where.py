"""Conditions in SQL on a file of items."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from evenhand.data.reading.where import items_where
from evenhand.data.write import write_table
from evenhand.utils.errors import InputError

ITEMS = pa.table(
    {
        "sku": ["007", "008", "009", "010"],
        "stock": [3, 0, 5, None],
        "category": ["hat", "hat", "shoe", "hat"],
    }
)


@pytest.mark.parametrize("form", ["items.parquet", "items.csv", "items.tsv", "frame"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("stock > 0", ["007", "009"]),
        ("category = 'hat' and stock > 0", ["007"]),
        ("stock is null or sku = '008'", ["008", "010"]),
        ("false", []),
    ],
)
def test_the_items_for_which_it_is_true(form: str, where: str, found: list[str], tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    source: Any = ITEMS
    if form != "frame":
        source = tmp_path / form
        write_table(ITEMS, source)
    assert items_where(source, "sku", where).to_pylist() == found


def test_old_encodings_blank_ids_and_empty_files_are_no_trouble(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (tmp_path / "items.csv").write_bytes("sku;name;stock\n1;Café;2\n;Thé;2\n3;Bär;0\n".encode("latin-1"))
    assert items_where(tmp_path / "items.csv", "sku", "stock > 0 and name like 'Caf_'").to_pylist() == [1]
    (tmp_path / "none.csv").write_text("sku,stock\n")
    assert items_where(tmp_path / "none.csv", "sku", "stock > 0").to_pylist() == []


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("stok > 0", 'Referenced column "stok" not found'),
        ("stock >", "syntax error"),
        ("true); drop table x; --", "syntax error"),
        ("sku in (select content from read_text('/etc/hostname'))", "disabled"),
    ],
)
def test_a_wrong_condition_is_one_sentence(where: str, message: str) -> None:
    pytest.importorskip("duckdb")
    with pytest.raises(InputError, match="--where") as caught:
        items_where(ITEMS, "sku", where)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_duckdb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = util.find_spec
    monkeypatch.setattr("evenhand.data.reading.where.find_spec", lambda name: None if name == "duckdb" else real(name))
    with pytest.raises(InputError, match=r"pip install 'evenhand\[sql\]'"):
        items_where(ITEMS, "sku", "stock > 0")
