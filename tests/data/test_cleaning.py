"""Raw logs: what is skipped, merged and netted out is counted and reported, and nothing else is lost."""

import io
import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns, read_interactions
from evenhand.utils.errors import InputError

SHOP = """customer,sku,qty,when
c-1,007,2,2026-08-30T23:30:00+02:00
c-1,007,1,2026-09-01T09:00:00Z
,007,1,2026-09-01T09:00:00Z
c-2,,1,2026-09-01T09:00:00Z
c-2,010,1,2026-09-01T00:30:00+02:00
c-2,010,-1,2026-09-02T09:00:00Z
c-2,011,3,2026-09-01T08:00:00Z
c-2,011,-1,2026-09-05T08:00:00Z
c-3,7,0.1,2026-09-01T08:00:00Z
c-3,7,0.2,2026-09-01T08:00:00Z
c-3,7,-0.3,2026-09-01T08:00:00Z
c-3,012,,2026-09-01T08:00:00Z
 ,012,1,2026-09-01T08:00:00Z
c-3,013,1,
"""
NAMED = {"user": "customer", "item": "sku", "timestamp": "when"}


def rows(data: Interactions) -> set[tuple[object, ...]]:
    table = data.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.csv"
    path.write_text(SHOP)
    return path


def test_rows_without_an_id_are_skipped_and_repeats_merged(shop) -> None:
    data = read_interactions(shop, **NAMED)
    assert data.notes == ("3 rows without an id skipped; 5 repeats merged.",)
    assert data.item_ids.to_pylist() == ["007", "010", "011", "012", "013", "7"]
    with pytest.raises(InputError, match=r"column 'customer' of .*shop.csv' has no id in line 4"):
        read_interactions(shop, **NAMED, strict=True)


def test_refunds_are_netted_out(shop) -> None:
    data = read_interactions(shop, **NAMED, weight="qty")
    assert data.notes == (
        "3 rows without an id skipped; 1 row without an amount skipped; 2 pairs netted to zero; 1 repeat merged.",
    )
    assert rows(data) == {("c-1", "007"), ("c-2", "011"), ("c-3", "013")}
    # The time of a pair is that of its last purchase, not of a refund.
    bought = dict(zip(data.to_table()["item"].to_pylist(), data.timestamps.tolist(), strict=True))
    assert bought["011"] == pandas.Timestamp("2026-09-01T08:00:00Z").timestamp()
    assert bought["007"] == pandas.Timestamp("2026-09-01T09:00:00Z").timestamp()
    assert math.isnan(bought["013"])


amounts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-3, 3)), min_size=1, max_size=30)


@given(rows_of=amounts)
def test_a_pair_stays_where_its_amounts_are_positive_in_sum(rows_of) -> None:
    net: dict[tuple[int, int], int] = {}
    for user, item, amount in rows_of:
        net[user, item] = net.get((user, item), 0) + amount
    users, items, quantities = (list(column) for column in zip(*rows_of, strict=True))
    table = pa.table({"user": users, "item": items, "qty": quantities})
    wanted = {pair for pair, amount in net.items() if amount > 0}
    if not wanted:
        with pytest.raises(InputError, match=r"no row of the Table is left: \d+ pairs? netted to zero"):
            read_interactions(table, weight="qty", allow_small=True)
        return
    data = read_interactions(table, weight="qty", allow_small=True)
    assert rows(data) == wanted
    gone = len(net) - len(wanted)
    assert any(f"{gone} pair{'s' * (gone != 1)} netted to zero" in note for note in data.notes) == bool(gone)


def test_since_and_until_keep_a_span_in_any_time_zone(shop) -> None:
    data = read_interactions(shop, **NAMED, since="2026-08-31", until="2026-09-01T10:00:00+02:00", allow_small=True)
    # 23:30 at +02:00 on the 30th lies before the 31st; 00:30 at +02:00 on September 1 is still August in UTC.
    assert rows(data) == {("c-2", "010")}
    assert (
        "3 rows without an id skipped; 1 row without a timestamp skipped; 1 row before 2026-08-31 skipped"
        in (data.notes[0])
    )


@pytest.mark.parametrize("ticks", [1, 1000])
def test_since_understands_seconds_and_milliseconds(ticks) -> None:
    times = [
        int(pandas.Timestamp(day, tz="UTC").timestamp()) * ticks for day in ("2026-08-31", "2026-09-01", "2026-09-02")
    ]
    table = pa.table({"user": [1, 2, 3], "item": [1, 2, 3], "timestamp": times})
    assert rows(read_interactions(table, since="2026-09-01")) == {(2, 2), (3, 3)}
    assert rows(read_interactions(table, until=times[2])) == {(1, 1), (2, 2)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "2026-01-01"}, "has no timestamp column for since or until; name it with timestamp="),
        ({**NAMED, "since": "soon"}, "since is 'soon', which is neither a number nor a date"),
        ({**NAMED, "since": "2030-01-01"}, r"no row of .* is left: 3 rows without an id skipped; "),
        ({**NAMED, "weight": "amount"}, "has no column 'amount'"),
        ({**NAMED, "weight": "customer"}, "which is not a number"),
    ],
)
def test_mistakes_in_cleaning_end_in_one_sentence(shop, options, message) -> None:
    with pytest.raises(InputError, match=message):
        read_interactions(shop, **{"user": "customer", "item": "sku", **options})


def test_integers_that_a_frame_made_floats_stay_integers() -> None:
    frame = pandas.DataFrame({"user": [1, None, 3, 3], "item": [7, 8, 9, None]})
    data = read_interactions(frame)
    assert data.user_ids.type == data.item_ids.type == pa.int64()
    assert rows(data) == {(1, 7), (3, 9)}
    assert data.notes == ("2 rows without an id skipped.",)


def test_uuids_stay_texts_and_blanks_among_integers_do_not_make_them_texts(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item\n3f2a-1,5\n3f2a-1,\n9b,7\n")
    data = read_interactions(path)
    assert data.user_ids.to_pylist() == ["3f2a-1", "9b"]
    assert data.item_ids.to_pylist() == [5, 7]


def test_no_row_with_both_ids_is_an_error(tmp_path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,item\n,5\n,\n9,\n")
    with pytest.raises(InputError, match=r"no row of '.*log.csv' is left: 3 rows without an id skipped\.$"):
        read_interactions(path)


def test_titles_in_latin_1_are_read(tmp_path) -> None:
    path = tmp_path / "items.csv"
    path.write_bytes("item,título\n1,Café\n2,Naïve\n".encode("latin-1"))
    table = read_columns(path, [Column("item", "id", "item"), Column("title", "text", "título")])
    assert table["title"].to_pylist() == ["Café", "Naïve"]
    path.write_bytes(b"item,title\n" + b"".join(b"%d,plain\n" % n for n in range(300_000)) + b"-1,Caf\xe9\n")
    table = read_columns(path, [Column("item", "id", "item"), Column("title", "text", "title")])
    assert table["title"][300_000].as_py() == "Café"


def test_standard_input_is_read(monkeypatch) -> None:
    def piped(content: bytes) -> Interactions:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False))
        return read_interactions("-")

    assert rows(piped(b"user,item\n1,2\n3,4\n")) == {(1, 2), (3, 4)}
    sink = pa.BufferOutputStream()
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"user": [1, 3], "item": [2, 4]}), sink)
    assert rows(piped(sink.getvalue().to_pybytes())) == {(1, 2), (3, 4)}
    with pytest.raises(InputError, match="standard input is empty"):
        piped(b"")
    with pytest.raises(InputError, match="line 3 of standard input has 1 field"):
        piped(b"user,item\n1,2\n3\n")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(InputError, match="nothing is piped into it"):
        read_interactions("-")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_pipe_is_refused_and_does_not_block(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match=r"pipe.csv' is a pipe or a device, not a file; pipe it in and name it '-'"):
        read_interactions(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="is a pipe or a device"):
        read_interactions("/dev/zero")


def test_a_clean_log_has_no_notes() -> None:
    table = pa.table({"user": np.arange(1000) % 50, "item": np.arange(1000) // 50})
    assert read_interactions(table).notes == ()
