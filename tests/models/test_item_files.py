"""Files of items: groups out of a column, and conditions in SQL."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.write import write_table
from evenhand.models.item_files import items_where, read_groups
from evenhand.utils.errors import InputError

LOG = Interactions.from_pairs([0, 0, 1, 1], [0, 1, 2, 3], item_ids=pa.array([10, 20, 30, 40]))


def write(folder: Path, content: str, name: str = "items.csv") -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_groups_are_numbered_by_name_and_aligned_with_the_items(tmp_path: Path) -> None:
    file = write(tmp_path, "title,genre,item\nD,war,40\nA,drama,10\nB,war,20\nC,comedy,30\n")
    # comedy 0, drama 1, war 2; items in the order 10, 20, 30, 40.
    assert read_groups(f"{file}:genre", LOG) == (1, 2, 0, 2)


def test_items_and_groups_that_the_log_lacks_are_passed_over(tmp_path: Path) -> None:
    file = write(tmp_path, "item,genre\n40,war\n10,drama\n20,war\n30,drama\n99,animation\n")
    assert read_groups(f"{file}:genre", LOG) == (0, 1, 0, 1)


def test_the_item_column_can_have_another_name(tmp_path: Path) -> None:
    file = write(tmp_path, "movie,year\n10,1999\n20,1950\n30,1999\n40,1950\n")
    assert read_groups(f"{file}:year", LOG, item="movie") == (1, 0, 1, 0)


def test_text_and_integer_ids_meet(tmp_path: Path) -> None:
    file = write(tmp_path, "item,genre\n10,a\n20,b\n30,a\n40,b\nbonus,a\n")
    assert read_groups(f"{file}:genre", LOG) == (0, 1, 0, 1)
    strings = Interactions.from_pairs([0, 1], [0, 1], item_ids=pa.array(["10", "x"]))
    file = write(tmp_path, "item,genre\n10,b\nx,a\n")
    assert read_groups(f"{file}:genre", strings) == (1, 0)


def test_parquet_and_a_colon_in_the_path(tmp_path: Path) -> None:
    path = tmp_path / "shop:items.parquet"
    pq.write_table(pa.table({"item": [40, 30, 20, 10], "brand": ["x", "x", "y", "y"]}), path)
    assert read_groups(f"{path}:brand", LOG) == (1, 1, 0, 0)


def test_a_repeated_item_may_repeat_its_group_but_not_have_two(tmp_path: Path) -> None:
    rows = "item,genre\n10,a\n20,b\n30,a\n40,b\n20,b\n"
    assert read_groups(f"{write(tmp_path, rows)}:genre", LOG) == (0, 1, 0, 1)
    torn = write(tmp_path, rows + "20,a\n40,a\n")
    with pytest.raises(InputError, match=r"several groups to 2 items \(20, 40\)"):
        read_groups(f"{torn}:genre", LOG)


@pytest.mark.parametrize("n_known", [0, 1, 9, 19])
def test_missing_groups_are_counted_and_five_are_named(tmp_path: Path, n_known: int) -> None:
    log = Interactions.from_pairs(np.zeros(20, int), np.arange(20))
    file = write(tmp_path, "item,genre\n" + "".join(f"{i},a\n" for i in range(n_known)) + "77,a\n")
    with pytest.raises(InputError) as message:
        read_groups(f"{file}:genre", log)
    missing = list(range(n_known, 20))
    names = ", ".join(map(str, missing[:5])) + ("…" if len(missing) > 5 else "")
    noun = "item" if len(missing) == 1 else "items"
    assert f"no group to {len(missing)} {noun} ({names}) of 20." in str(message.value)


def test_a_missing_group_name_is_reported_by_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "item,genre\n10,a\n20,\n30,a\n40,b\n")
    with pytest.raises(InputError, match=r"column 'genre' of .*line 3"):
        read_groups(f"{file}:genre", LOG)


@pytest.mark.parametrize("source", ["items.csv", ":genre", "items.csv:", ":", ""])
def test_the_syntax_is_file_colon_column(source: str) -> None:
    with pytest.raises(InputError, match="FILE:COLUMN"):
        read_groups(source, LOG)


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
    monkeypatch.setattr("evenhand.models.item_files.find_spec", lambda name: None if name == "duckdb" else real(name))
    with pytest.raises(InputError, match=r"pip install 'evenhand\[sql\]'"):
        items_where(ITEMS, "sku", "stock > 0")
