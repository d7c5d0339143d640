"""What people call the items: read from a file, kept with the model, shown in lists."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.models.folder import write_arrow
from evenhand.models.item_files import carried_titles, read_titles
from evenhand.utils.errors import InputError
from small_model import model


def test_titles_are_found_by_id_in_any_encoding_and_order(tmp_path: Path) -> None:
    ids = model("integer").known.item_ids
    text = "sku;name\n20;Café\n;lost\n10;Tisch\n20;zweites\n999;fremd\n"
    (tmp_path / "items.csv").write_bytes(text.encode("latin-1"))
    titles = read_titles(tmp_path / "items.csv", ids, item="sku", title="name")
    assert titles.to_pylist() == [None, "Tisch", "Café", *[None] * 9]
    with pytest.raises(InputError, match="no column 'title'"):
        read_titles(tmp_path / "items.csv", ids, item="sku")
    (tmp_path / "other.csv").write_text("item,title\na,b\n")
    with pytest.raises(InputError, match="no title for any item of the model; check the column 'item'"):
        read_titles(tmp_path / "other.csv", ids)


def test_a_model_keeps_its_titles_in_its_folder(tmp_path: Path) -> None:
    titles = pa.array([f"title {n}" if n % 2 else None for n in range(12)])
    plain = model("string")
    plain.having(titles=titles).save(tmp_path / "model")
    loaded = eh.load(tmp_path / "model")
    assert loaded.titles.to_pylist() == titles.to_pylist()
    table = loaded.titled(loaded.recommend(k=2))
    assert table.column_names == ["user", "item", "title", "score", "rank"]
    assert [row["title"] for row in table.to_pylist()] == [
        titles[int(row["item"].removeprefix("ä"))].as_py() for row in table.to_pylist()
    ]
    plain.save(tmp_path / "plain")
    assert eh.load(tmp_path / "plain").titles is None
    assert loaded.titled(table.drop_columns(["title"]), None).column_names[2] == "title"
    assert eh.load(tmp_path / "plain").titled(plain.recommend(k=2)).equals(plain.recommend(k=2))


def test_titles_are_covered_by_the_checksums_and_checked(tmp_path: Path) -> None:
    model("string").having(titles=pa.array(["x"] * 12)).save(tmp_path / "model")
    ids = model("string").known.item_ids
    write_arrow(tmp_path / "model" / "items.arrow", {"id": ids, "title": pa.array(["y"] * 12)})
    with pytest.raises(InputError, match=r"items\.arrow is not the file that was saved"):
        eh.load(tmp_path / "model")
    write_arrow(tmp_path / "model" / "items.arrow", {"id": ids, "title": pa.array(range(12))})
    with pytest.raises(InputError, match="titles of its items are no texts"):
        eh.load(tmp_path / "model", verify=False)


def test_titles_follow_their_items_into_a_larger_catalogue() -> None:
    titles = carried_titles(pa.array(["a", None]), pa.array([1, 3]), pa.array([0, 1, 2, 3]))
    assert titles is not None
    assert titles.to_pylist() == [None, "a", None, None]
    assert carried_titles(None, pa.array([1]), pa.array([1])) is None


@pytest.mark.parametrize("own", ["README.md", "config.json"])
def test_a_model_is_never_written_over_somebodys_own_file(tmp_path: Path, own: str) -> None:
    (tmp_path / own).write_text(json.dumps({"mine": 1}))
    with pytest.raises(InputError, match=rf"holds a {own} that no model of evenhand wrote"):
        model("string").save(tmp_path, force=True)
    assert json.loads((tmp_path / own).read_text()) == {"mine": 1}
    model("string").save(tmp_path / "model")
    model("string").save(tmp_path / "model", force=True)
