import csv
import datetime
import gzip
import io
from collections import defaultdict
from pathlib import Path

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns, read_interactions
from evenhand.data.reading.text_files import SingleSeparator
from evenhand.utils.errors import InputError

rereads_one_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def sets(data: Interactions) -> dict[object, set[object]]:
    """user id → item ids, as anyone would keep a log in plain Python."""
    found = defaultdict(set)
    for row in data.to_table().to_pylist():
        found[row["user"]].add(row["item"])
    return dict(found)


def brute_force_ids(texts: list[str]) -> dict[str, object]:
    """How each text should read: all as integers if each is the way its 64-bit integer is written."""

    def is_integer(text: str) -> bool:
        plain = text.isascii() and text.lstrip("-").isdigit() and text.count("-") <= 1
        return plain and str(int(text)) == text and -(2**63) <= int(text) < 2**63

    return {text: int(text) if all(map(is_integer, texts)) else text for text in texts}


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


integer_texts = st.integers(-50, 50).map(str) | st.integers(-(2**63), 2**63 - 1).map(str)
odd_texts = st.sampled_from(["007", "00", "-0", "+1", "1.0", "1e3", str(2**63), str(10**30), "NA", "nan", "null", " 1"])
any_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), min_size=1, max_size=6)
any_texts = any_texts.filter(lambda text: text.strip())  # a blank is no id
id_texts = st.one_of(
    st.lists(integer_texts, min_size=1, max_size=8),
    st.lists(integer_texts | odd_texts, min_size=1, max_size=8),
    st.lists(
        integer_texts | odd_texts | any_texts | st.sampled_from(['a"b', "a,b", "a\nb", '"', "é", "日本"]),
        min_size=1,
    ),
)


@rereads_one_file
@given(
    users=id_texts,
    items=id_texts,
    separator=st.sampled_from(",\t"),
    line_end=st.sampled_from(["\n", "\r\n"]),
    bom=st.booleans(),
    extra=st.booleans(),
)
@example(users=["1"], items=["2"], separator=",", line_end="\r\n", bom=True, extra=False)
def test_text_reads_back_as_written(tmp_path, users, items, separator, line_end, bom, extra) -> None:
    rows = [(users[n % len(users)], items[n % len(items)]) for n in range(max(len(users), len(items)))]
    text = io.StringIO()
    # Left to itself, Python's writer does not quote a \r when lines end in \n alone.
    quoting = csv.QUOTE_ALL if any("\r" in each for each in users + items) else csv.QUOTE_MINIMAL
    writer = csv.writer(text, delimiter=separator, lineterminator=line_end, quoting=quoting)
    writer.writerow(["n", "item", "user"] if extra else ["item", "user"])
    writer.writerows((n, item, user) if extra else (item, user) for n, (user, item) in enumerate(rows))
    path = tmp_path / ("log.csv" if separator == "," else "log.tsv")
    path.write_bytes(b"\xef\xbb\xbf" * bom + text.getvalue().encode())

    data = read_interactions(path, allow_small=True)
    user_of, item_of = brute_force_ids(users), brute_force_ids(items)
    expected = defaultdict(set)
    for user, item in rows:
        expected[user_of[user]].add(item_of[item])
    assert sets(data) == dict(expected)
    assert data.user_ids.to_pylist() == sorted(set(user_of.values()))
    assert data.item_ids.to_pylist() == sorted(set(item_of.values()))
    assert str(data.user_ids.type) in ("int64", "string")


@given(st.text(":ab\n", max_size=60), st.integers(1, 7), st.integers(1, 9))
def test_double_colons_become_one_character_at_any_chunk_border(text, chunk, size) -> None:
    stream = SingleSeparator(io.BytesIO(text.encode()), chunk)
    found = b"".join(iter(lambda: stream.read(size), b""))
    assert found == text.encode().replace(b"::", b"\x1f")


LOG = "user,item,rating,timestamp\n7,30,4,100\n7,4,2.5,50\n10,30,,75\n"
ROWS = [
    {"user": 7, "item": 4, "rating": 2.5, "timestamp": 50.0},
    {"user": 7, "item": 30, "rating": 4.0, "timestamp": 100.0},
    {"user": 10, "item": 30, "rating": None, "timestamp": 75.0},
]
TABLE = pa.table({"user": [7, 7, 10], "item": [30, 4, 30], "rating": [4, 2.5, None], "timestamp": [100, 50, 75]})


def rows_of(data: Interactions) -> list[dict[str, object]]:
    return [
        {name: None if value != value else value for name, value in row.items()} for row in data.to_table().to_pylist()
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", LOG),
        ("log.tsv", LOG.replace(",", "\t")),
        ("log.txt", LOG.replace(",", "\t")),
        ("log.txt", LOG),
        ("log.inter", LOG.replace(",", "\t")),
        ("log.csv", LOG.replace(",", ";")),
        ("log", LOG),
        ("log.csv", "\n\n" + LOG.replace("\n", "\r\n")),
        ("log.csv", LOG.rstrip("\n")),
        ("log.csv", "user, item, rating, timestamp\n7,30, 4, 100\n7,4, 2.5, 50\n10,30,, 75\n"),
        ("log.csv.gz", gzip.compress(LOG.encode(), mtime=0)),
        ("log.data", LOG.split("\n", 1)[1].replace(",", "\t")),
        ("ratings.dat", LOG.split("\n", 1)[1].replace(",", "::")),
        ("ratings.dat.gz", gzip.compress(LOG.split("\n", 1)[1].replace(",", "::").encode(), mtime=0)),
    ],
)
def test_every_text_layout_gives_the_same_log(tmp_path, name, content) -> None:
    assert rows_of(read_interactions(write(tmp_path, name, content))) == ROWS


@pytest.mark.parametrize(
    "make",
    [
        lambda table: table,
        lambda table: table.to_batches()[0],
        lambda table: pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1)),
        lambda table: table.to_pandas(),
        polars.from_arrow,
        lambda table: table.set_column(0, "user", table["user"].cast(pa.uint64())),
        lambda table: table.set_column(0, "user", table["user"].cast(pa.int8())),
        lambda table: table.set_column(0, "user", table["user"].cast(pa.float64())),
        lambda table: table.set_column(1, "item", table["item"].dictionary_encode()),
        lambda table: table.set_column(2, "rating", table["rating"].cast(pa.string())),
        lambda table: table.set_column(3, "timestamp", table["timestamp"].cast(pa.timestamp("s"))),
        lambda table: table.set_column(3, "timestamp", pa.array([100_000, 50_000, 75_000], pa.timestamp("ms", "UTC"))),
    ],
)
def test_every_table_gives_the_same_log(make) -> None:
    assert rows_of(read_interactions(make(TABLE))) == ROWS


@pytest.mark.parametrize("name", ["log.parquet", "log.pq", "log"])
def test_parquet_gives_the_same_log(tmp_path, name) -> None:
    pq.write_table(TABLE, tmp_path / name)
    assert rows_of(read_interactions(str(tmp_path / name))) == ROWS


def test_headerless_text_goes_by_position_and_ignores_the_rest(tmp_path) -> None:
    path = write(tmp_path, "log.csv", "7,30,4,100,x\n7,4,2.5,50,y\n10,30,,75,z\n")
    assert rows_of(read_interactions(path, header=False, user="whatever")) == ROWS
    assert rows_of(read_interactions(write(tmp_path, "log.dat", LOG.replace(",", "::")), header=True)) == ROWS


@pytest.mark.parametrize(
    "texts",
    [["b", "a", "b"], ["2", "10", "2"], ["007", "é", "007"]],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_strings_of_typed_sources_stay_strings(tmp_path, texts, kind) -> None:
    table = pa.table({"user": pa.array(texts).cast(kind), "item": [1, 2, 3]})
    pq.write_table(table, tmp_path / "log.parquet")
    for source in (table, polars.from_arrow(table), table.to_pandas(), tmp_path / "log.parquet"):
        data = read_interactions(source)
        assert data.user_ids.equals(pa.array(sorted(set(texts))))
        assert sets(data) == {texts[0]: {1, 3}, texts[1]: {2}}


def test_unsigned_integers_beyond_64_bits_signed_become_strings() -> None:
    data = read_interactions(pa.table({"user": pa.array([2**63, 1], pa.uint64()), "item": [1, 2]}))
    assert data.user_ids.to_pylist() == ["1", "9223372036854775808"]


def test_unused_categories_are_no_users() -> None:
    users = pandas.Categorical(["b", "b"], categories=["a", "b", "c"])
    data = read_interactions(pandas.DataFrame({"user": users, "item": [1, 2]}))
    assert data.user_ids.to_pylist() == ["b"]


def test_chunks_with_different_dictionaries_are_unified() -> None:
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    data = read_interactions(pa.table({"user": pa.chunked_array(chunks), "item": [1, 2, 3, 4]}))
    assert sets(data) == {"a": {1, 4}, "b": {2}, "c": {3}}


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["1970-01-02", "1970-01-01"], [86400.0, 0.0]),
        (["1970-01-01T00:00:01", "1970-01-01 00:01:00.5"], [1.0, 60.5]),
        (["1970-01-01T00:00:01Z", "1970-01-01T01:00:00+01:00"], [1.0, 0.0]),
        (["1e3", "-2.5"], [1000.0, -2.5]),
        (["978300760", "978302109"], [978300760.0, 978302109.0]),
    ],
)
def test_times_are_numbers_or_iso_dates(tmp_path, texts, seconds) -> None:
    rows = "".join(f"1,{n},{text}\n" for n, text in enumerate(texts))
    path = write(tmp_path, "log.csv", "user,item,timestamp\n" + rows)
    assert read_interactions(path).timestamps.tolist() == seconds
    table = pa.table({"user": [1, 1], "item": [0, 1], "timestamp": texts})
    assert read_interactions(table).timestamps.tolist() == seconds


def test_dates_of_frames_are_seconds() -> None:
    days = [datetime.date(1970, 1, 2), datetime.date(1970, 1, 3)]
    data = read_interactions(polars.DataFrame({"user": [1, 1], "item": [1, 2], "day": days}), timestamp="day")
    assert data.timestamps.tolist() == [86400.0, 172800.0]


def test_min_rating_acts_as_if_the_rows_were_not_there(tmp_path) -> None:
    path = write(tmp_path, "log.csv", "user,item,stars\n1,a,5\n1,b,3\n2,c,NA\n3,d,4\n3,b,2\n")
    data = read_interactions(path, rating="stars", min_rating=4)
    assert sets(data) == {1: {"a"}, 3: {"d"}}
    assert data.item_ids.to_pylist() == ["a", "d"]
    assert data.ratings.tolist() == [5.0, 4.0]
    assert data.notes == ("2 rows with a rating below 4 skipped; 1 row without a rating skipped.",)


def test_repeats_are_merged_and_counted(tmp_path) -> None:
    path = write(tmp_path, "log.csv", "user,item,rating\n1,a,5\n1,a,3\n1,b,4\n")
    data = read_interactions(path)
    assert data.ratings.tolist() == [3.0, 4.0]
    assert data.notes == ("1 repeat merged.",)


@given(st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=8))
def test_of_repeated_pairs_the_latest_stays_and_no_time_is_the_earliest(times) -> None:
    same = [0] * len(times)
    seconds = [float("nan") if time is None else time for time in times]
    data = Interactions.from_pairs(same, same, ratings=range(len(times)), timestamps=seconds)
    latest = max(range(len(times)), key=lambda n: (-99 if times[n] is None else times[n], n))
    assert data.ratings.tolist() == [latest]
    assert rows_of(data)[0]["timestamp"] == times[latest]


def test_optional_columns_are_taken_by_role_or_by_name(tmp_path) -> None:
    path = write(tmp_path, "recs.csv", "user,item,score,rank,seed\nu,1,.5,2,0\nu,2,.75,1,0\n")
    wanted = [Column("user", "id", "user"), Column("item", "id", "item"), Column("rank", "number")]
    table = read_columns(path, [*wanted, Column("score", "number", "score"), Column("absent", "number")])
    assert table.column_names == ["user", "item", "rank", "score"]
    assert table["rank"].to_pylist() == [2.0, 1.0]
    assert table["score"].to_pylist() == [0.5, 0.75]
    assert table["user"].type == pa.dictionary(pa.int32(), pa.string())
    assert table["item"].type == pa.dictionary(pa.int32(), pa.int64())


MANY = "".join(f"{n},{n}\n" for n in range(300_000))

MISTAKES = [
    ("log.csv", "", {}, "'log.csv' is empty."),
    ("log.csv", "\n\r\n", {}, "'log.csv' is empty."),
    ("log.csv", "user,item", {}, "no rows"),
    ("log.csv", "user,item\n\n", {}, "no rows"),
    ("log.csv", "1,2\n3,4\n", {}, "has no column 'user' (it has 1, 2); if the file starts without"),
    ("log.csv", "userId,movie\n1,2\n", {}, "did you mean 'userId'? Name it with user= or --user"),
    ("log.csv", "user,movie\n1,2\n", {}, "(it has user, movie); name the right one with item= or --item"),
    ("log.csv", "user,item\n1,2\n", {"rating": "stars"}, "no column 'stars'"),
    ("log.csv", "user,user,item\n1,2,3\n", {}, "2 columns called 'user'"),
    ("log.csv", "user,item\n1,2\n3\n", {}, "line 3 of 'log.csv' has 1 field where the first line has 2"),
    ("log.csv", 'user,item\n1,"2\n2"\n\n3,4,5\n', {}, "line 5 of 'log.csv' has 3 fields"),
    ("log.csv", "user,item\n" + MANY + "1\n", {}, "line 300002 of 'log.csv' has 1 field"),
    ("log.csv", "user,item\n1,2\n1,\n", {"strict": True}, "column 'item' of 'log.csv' has no id in line 3"),
    ("log.csv", 'user,item\n"a\n\nb",2\n\n"",3\n', {"strict": True}, "column 'user' of 'log.csv' has no id in line 6"),
    ("log.csv", "user,item\n" + MANY + ",1\n", {"strict": True}, "column 'user' of 'log.csv' has no id in line 300002"),
    ("r.dat", "1::2::3\n1::::3\n", {"strict": True}, "column 'item' of 'r.dat' has no id in line 2"),
    (
        "r.dat",
        "user::item::rating\n1::2::3\n",
        {},
        "line 1, which is not a number; if the first line holds column names, say",
    ),
    ("r.dat", "1\n2\n", {}, "1 column in its first line; without a header it must hold user, item,"),
    ("r.dat", "1::2\n", {"rating": "stars"}, "has 2 columns in its first line"),
    (
        "log.csv",
        "user,item,rating\n1,2,3\n1,3,good\n1,4,bad\n",
        {},
        "has 'good' in line 3, which is not a number.",
    ),
    (
        "log.csv",
        "user,item,timestamp\n1,2,noon\n",
        {},
        "has 'noon' in line 2, which is not a number or an ISO date",
    ),
    (
        "log.csv",
        "user,item,timestamp\n1,2,2020-01-01\n1,3,5\n",
        {},
        "has '5' in line 3, which is not a date like those above",
    ),
    ("log.csv", "user,item\n1,2\n1,3\n", {"min_rating": 3}, "no rating column for min_rating"),
    (
        "log.csv",
        "user,item,rating\n1,2,3\n1,3,2\n",
        {"min_rating": 4},
        "no row of 'log.csv' has a rating of at least 4",
    ),
    ("log.csv", "user,item\n1,2\n2,2\n", {}, "needs at least two items"),
    ("log.csv", b"user,item\n1,caf\xe9\n", {}, "not UTF-8"),
    ("log.csv", b"\xff\xfeu\0s\0e\0r\0", {}, "not UTF-8"),
    ("log.csv", bytes(range(256)), {}, "not UTF-8"),
    ("log.csv", 'user,item\n1,"2\n' + MANY, {}, "is a quote left open"),
    ("log.csv.gz", b"user,item\n1,2\n", {}, "cannot be read: Not a gzipped file"),
    ("log.csv.gz", gzip.compress(LOG.encode(), mtime=0)[:-9], {}, "cannot be read"),
    ("log.parquet", LOG, {}, "cannot be read as a parquet file"),
    ("log.parquet", "", {}, "cannot be read as a parquet file"),
    ("log.xyz", "some words\nmore words\n", {}, "cannot tell what kind of file 'log.xyz' is"),
]


@pytest.mark.parametrize(("name", "content", "options", "message"), MISTAKES)
def test_mistakes_in_files_are_reported_in_one_sentence(tmp_path, monkeypatch, name, content, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        read_interactions(name, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (pa.table({"user": [1, None], "item": [1, 2]}), "column 'user' of the Table has no id in row 2"),
        (pa.table({"user": ["a", ""], "item": [1, 2]}), "column 'user' of the Table has no id in row 2"),
        (pa.table({"user": pa.nulls(2), "item": [1, 2]}), "column 'user' of the Table has no id in row 1"),
        (pandas.DataFrame({"user": [1, None], "item": [1, 2]}), "column 'user' of the DataFrame has no id in row 2"),
        (pa.table({"user": [1.5, 2.0], "item": [1, 2]}), "convert it to integers or strings"),
        (pa.table({"user": [True, False], "item": [1, 2]}), "has type bool; ids must be integers or strings"),
        (pa.table({"user": [[1], [2]], "item": [1, 2]}), "ids must be integers or strings"),
        (
            pa.table({"user": [1], "item": [1], "rating": [datetime.date(2020, 1, 1)]}),
            "which is not a number",
        ),
        (pa.table({"user": [1], "item": [1], "rating": ["x"]}), "has 'x' in row 1, which is not a number"),
        (pa.table({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}), "no rows"),
        (pa.table({"usr": [1], "item": [1]}), "did you mean 'usr'?"),
        (pandas.DataFrame({"user": ["a", 3], "item": [1, 2]}), "Conversion failed for column user"),
        ([(1, 2)], "cannot read the list; give a path or a table"),
        ("nowhere.csv", "there is no file 'nowhere.csv'"),
    ],
)
def test_mistakes_in_tables_are_reported_in_one_sentence(source, message) -> None:
    with pytest.raises(InputError) as caught:
        read_interactions(source, strict=True)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_movielens_as_shipped(shared_data) -> None:
    data = read_interactions(shared_data / "ml-100k" / "u.data")
    assert (len(data), data.n_users, data.n_items) == (100_000, 943, 1_682)
    assert data.ratings.mean() == pytest.approx(3.52986)
    assert (data.timestamps.min(), data.timestamps.max()) == (874724710, 893286638)
    row = data.contains(195, 241)  # the file's first line: 196 rated 242
    assert row
