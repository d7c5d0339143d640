"""A log in many files, here or in an object store, reads as the one file it was cut from."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.reading.read import read_interactions
from evenhand.data.reading.spread import read_spread
from evenhand.utils.errors import InputError
from evenhand.utils.world import World

ROWS = 4000
LOG = pa.table(
    {
        "user": [f"u{n * 7919 % 311}" for n in range(ROWS)],
        "item": [n * 104_729 % 97 for n in range(ROWS)],
        "rating": [float(n % 5) for n in range(ROWS)],
        "timestamp": list(range(ROWS)),
    }
)


def same(a: Interactions, b: Interactions) -> bool:
    arrays = zip(
        (a.indptr, a.items, a.ratings, a.timestamps), (b.indptr, b.items, b.ratings, b.timestamps), strict=True
    )
    ids = a.user_ids.equals(b.user_ids) and a.item_ids.equals(b.item_ids)
    return ids and all(np.array_equal(one, other) for one, other in arrays)


def cut(table: pa.Table, parts: int) -> list[pa.Table]:
    step = -(-table.num_rows // parts)
    return [table.slice(begin, step) for begin in range(0, table.num_rows, step)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Seven parquet files in subfolders, one of them without rows, and what other systems leave beside them."""
    place = tmp_path / "log"
    for number, part in enumerate(cut(LOG, 6)):
        below = place / f"day={number}"
        below.mkdir(parents=True)
        pq.write_table(part, below / f"part-{number}.parquet")
    pq.write_table(LOG.slice(0, 0), place / "part-7.parquet")
    (place / "_SUCCESS").write_text("")
    (place / ".part-0.parquet.crc").write_text("x")
    (place / "_temporary").mkdir()
    (place / "_temporary" / "part-9.parquet").write_text("x")
    return place


def test_a_folder_of_parquet_is_one_log(folder) -> None:
    data = read_interactions(folder)
    assert same(data, read_interactions(LOG))
    assert data.notes[0] == f"'{folder.name}' holds 6 files, read as one log."
    assert same(read_interactions(folder.as_uri()), data)
    one = (folder / "day=0" / "part-0.parquet").as_uri()
    assert same(read_interactions(one), read_interactions(cut(LOG, 6)[0]))


def test_a_folder_of_text_files_is_one_log(tmp_path) -> None:
    for number, part in enumerate(cut(LOG, 3)):
        pa.csv.write_csv(part, tmp_path / f"{number}.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("user,item,rating,timestamp\n")
    data = read_interactions(tmp_path)
    assert same(data, read_interactions(LOG))
    assert f"'{tmp_path.name}' holds 3 files, read as one log." in data.notes
    (tmp_path / "3.csv").write_text("user,item,rating,timestamp\nu1,5,4,1\nu2,,4,1\n")
    assert "1 row without an id skipped" in read_interactions(tmp_path).notes[-1]
    with pytest.raises(InputError, match=r"column 'item' of '.*' has no id in line 3 of '.*3\.csv'"):
        read_interactions(tmp_path, strict=True)


def test_columns_that_some_files_lack_are_missing_there(tmp_path) -> None:
    pq.write_table(pa.table({"user": pa.array([1, 2], pa.int32()), "item": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": [3], "item": [3], "rating": [4.0]}), tmp_path / "b.parquet")
    data = read_interactions(tmp_path)
    assert data.user_ids.to_pylist() == [1, 2, 3]
    assert np.isnan(data.ratings[:2]).all()
    assert data.ratings[2] == 4


def test_files_that_do_not_match_are_named(tmp_path) -> None:
    pq.write_table(pa.table({"user": [1], "item": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"user": ["x"], "item": [1]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"user' of '.*b.parquet' has ids of type .*string, those before it int64"):
        read_interactions(tmp_path)
    pq.write_table(pa.table({"usr": [1], "item": [1]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b.parquet' has no column 'user'"):
        read_interactions(tmp_path)


def test_a_folder_without_a_table_and_an_unknown_store_are_refused(tmp_path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="is a folder without a csv, tsv, dat, json or parquet file"):
        read_interactions(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty2.csv").write_text("")
    with pytest.raises(InputError, match="holds no rows"):
        read_interactions(tmp_path)
    with pytest.raises(InputError, match="there is no file 'file:///nowhere/log'"):
        read_interactions("file:///nowhere/log")
    with pytest.raises(InputError, match="'ftp://host/log' cannot be reached"):
        read_interactions("ftp://host/log")


def test_an_object_store_is_read_as_a_folder_is(folder, object_store) -> None:
    object_store.put(folder, "log")
    assert same(read_interactions(object_store.uri("log")), read_interactions(LOG))
    assert same(read_spread(object_store.uri("log"), World.alone()).gathered(), read_interactions(LOG))
    one = object_store.uri("log/day=0/part-0.parquet")
    assert same(read_interactions(one), read_interactions(cut(LOG, 6)[0]))
    with pytest.raises(InputError, match="there is no file"):
        read_interactions(object_store.uri("nothing"))


def test_lines_of_a_user_and_their_items_are_read(tmp_path, shared_data) -> None:
    path = tmp_path / "train.txt"
    path.write_text("0 5 7\n1 5\n2\n\n3 9 11 7\n")
    data = read_interactions(path)
    table = data.to_table()
    pairs = set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))
    assert pairs == {(0, 5), (0, 7), (1, 5), (3, 9), (3, 11), (3, 7)}
    assert data.notes == (f"'{path.name}' was read as lines of a user and their items.",)
    path.write_text("0 5 7\n1 x\n")
    with pytest.raises(InputError, match="line 2: expected a user and its items, all whole numbers"):
        read_interactions(path)
    gowalla = read_interactions(shared_data / "gowalla" / "train.txt")
    assert (len(gowalla), gowalla.n_users) == (810_128, 29_858)
