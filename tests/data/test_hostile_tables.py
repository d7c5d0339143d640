"""Tables made to do harm: each is refused in one sentence, or read as what it is."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.data.datasets.known import adjacency, coat, movielens_1m_titles, movielens_100k_titles
from evenhand.data.reading import sources, text_files
from evenhand.data.reading.read import read_interactions
from evenhand.utils.errors import InputError

ROWS = b"user,item,rating\n1,a,3\n2,b,4\n"


def refusal(path: Path, content: bytes | None = None) -> str:
    """What a reader says of a file; one sentence, and a short one."""
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_interactions(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000 + len(str(path))
    return message


def test_a_gzip_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(ROWS + b"1,a,3\n" * 100_000)
    assert len(bomb) < 4000
    (tmp_path / "log.csv.gz").write_bytes(bomb)
    assert len(read_interactions(tmp_path / "log.csv.gz")) == 2
    monkeypatch.setattr(sources, "MOST_UNPACKED", 100_000)
    monkeypatch.setattr(sources, "MOST_TIMES", 20)
    assert "unpacks to more than 100,000 bytes" in refusal(tmp_path / "log.csv.gz")
    lines = gzip.compress(b'{"user": 1, "item": 2}\n' * 10_000)
    assert "unpacks to more than" in refusal(tmp_path / "log.jsonl.gz", lines)


def test_a_damaged_gzip_is_reported(tmp_path: Path) -> None:
    whole = gzip.compress(ROWS * 1000, mtime=0)
    refusal(tmp_path / "a.csv.gz", whole[:-10])
    refusal(tmp_path / "b.csv.gz", whole[:30] + b"\xff" * 40 + whole[70:])
    refusal(tmp_path / "c.csv.gz", ROWS)


def test_a_first_line_without_an_end_is_no_table(tmp_path: Path) -> None:
    message = refusal(tmp_path / "log.csv", b"user,item," + b"x" * 2_000_000 + b"\n1,2,3\n")
    assert "longer than 1,048,576 bytes" in message


def test_many_or_long_column_names_leave_the_message_readable(tmp_path: Path) -> None:
    message = refusal(tmp_path / "log.csv", b",".join(b"c%d" % n for n in range(100_000)) + b"\n")
    assert "has no column 'user' (it has c0, c1" in message
    assert "and 99,980 more" in message
    assert "\\x1b" in refusal(tmp_path / "log.csv", b"use\x1b[31m," + b"x" * 100_000 + b"\n1,2\n")


def test_a_long_value_leaves_the_message_readable(tmp_path: Path) -> None:
    message = refusal(tmp_path / "log.csv", ROWS + b"3,c," + b"\x1b[31m" * 20_000 + b"\n")
    assert "has '\\x1b[31m\\x1b[31m" in message
    assert "in line 4, which is not a number" in message


def test_a_field_of_ten_megabytes_is_refused(tmp_path: Path) -> None:
    refusal(tmp_path / "log.csv", ROWS + b"3," + b"x" * 10_000_000 + b",5\n")
    message = refusal(tmp_path / "log.jsonl", b'{"user": 1, "item": "' + b"x" * 10_000_000 + b'"}\n')
    assert "line 1" in message
    assert "longer than 1,048,576 bytes" in message


@pytest.mark.parametrize(("open_", "close"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_deep_json_is_refused_before_arrow_follows_it(tmp_path: Path, open_: bytes, close: bytes) -> None:
    for depth in (101, 100_000):
        value = open_ * depth + b"1" + close * depth
        line = b'{"user": 1, "item": 2, "note": "]]]]]", "more": ' + value + b"}\n"
        message = refusal(tmp_path / "log.jsonl", b'{"user": 2, "item": 3}\n' + line)
        assert "line 2" in message
    brackets = b'{"user": 1, "item": "' + b"[" * 5000 + b'"}\n{"user": 2, "item": "b"}\n'
    (tmp_path / "log.jsonl").write_bytes(brackets)
    assert len(read_interactions(tmp_path / "log.jsonl")) == 2


@pytest.mark.parametrize("start", [b"null", b" null{}", b"\n\nnull\n", b"\xef\xbb\xbfnull", b"[1]", b'"x"'])
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, start: bytes) -> None:
    """Arrow ends the process where a file begins with null."""
    assert "is not a JSON object" in refusal(tmp_path / "log.jsonl", start + b'\n{"user": 1, "item": 2}\n')
    message = refusal(tmp_path / "log.jsonl", b'{"user": 1, "item": 2}\n\r\n' + start)
    assert "is not a JSON object" in message


@pytest.mark.parametrize("key", [b"k%d", b"\\u006b%d", b'%d\\"'])
def test_a_key_of_its_own_on_every_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    lines = b"".join(b'{"user": %d, "item": %d, "%s": 1}\n' % (n, n, key % n) for n in range(500))
    (tmp_path / "log.jsonl").write_bytes(lines)
    assert len(read_interactions(tmp_path / "log.jsonl")) == 500
    monkeypatch.setattr(text_files, "MOST_CELLS", 1000)
    assert "has 502 different keys in 500 lines" in refusal(tmp_path / "log.jsonl")


def test_a_byte_order_mark_and_empty_lines_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'\xef\xbb\xbf{"user": 1, "item": 2}\n\r\n  {"user": 2, "item": 3}')
    assert len(read_interactions(tmp_path / "log.jsonl")) == 2


@pytest.mark.parametrize(
    "line",
    [
        b'{"user": 1, "item": 2, "\xff": 3}',
        b'{"user": 1, "item": "\xff"}',
        b'{"user": "\xed\xa0\x80", "item": 1}',
    ],
)
def test_json_that_is_not_utf_8_is_refused(tmp_path: Path, line: bytes) -> None:
    refusal(tmp_path / "log.jsonl", line + b'\n{"user": 2, "item": 3}\n')


def test_bytes_that_call_themselves_text_are_refused(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff"]).view(pa.string())
    whole = pa.array([1, 2])
    for name in ("user", "rating"):
        table = pa.table({"user": whole, "item": whole} | {name: texts})
        pq.write_table(table, tmp_path / "log.parquet")
        assert "UTF8" in refusal(tmp_path / "log.parquet")
        with pytest.raises(InputError, match="UTF8"):
            read_interactions(table)


def test_a_dot_in_a_name_does_not_bring_another_column(tmp_path: Path) -> None:
    table = pa.table({"user.x": [7, 7], "item.x": [8, 9], "user": [1, 2], "item": [3, 4]})
    pq.write_table(table, tmp_path / "log.parquet")
    assert read_interactions(tmp_path / "log.parquet").user_ids.to_pylist() == [1, 2]


def test_parquet_whose_footer_lies_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": [1, 2], "item": [3, 4]}), tmp_path / "log.parquet")
    whole = (tmp_path / "log.parquet").read_bytes()
    for size in (0, 1, 2**31 - 1, 2**32 - 1):
        refusal(tmp_path / "log.parquet", whole[:-8] + size.to_bytes(4, "little") + b"PAR1")


def test_a_rating_beyond_all_bounds_is_infinite_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(ROWS + b"3,c,1e300\n4,c,1e400\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = read_interactions(tmp_path / "log.csv")
    assert log.ratings is not None
    assert log.ratings.tolist() == [3, 4, float("inf"), float("inf")]


@pytest.mark.parametrize("number", ["9" * 19, "9" * 5000, "²"])
def test_ids_of_datasets_that_are_no_64_bit_numbers_are_refused(tmp_path: Path, number: str) -> None:
    row = f"{number}|a||||" + "|".join("0" * 19) + "\n"
    (tmp_path / "u.item").write_text(row, encoding="latin-1")
    (tmp_path / "movies.dat").write_text(f"{number}::a::b\n", encoding="latin-1")
    (tmp_path / "train.txt").write_text(f"1 {number} 3\n", encoding="latin-1")
    for reader in (movielens_100k_titles, movielens_1m_titles, adjacency):
        with pytest.raises(InputError, match="line 1: expected"):
            reader(tmp_path)


def test_empty_lines_between_users_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cost as much as a user, so that half a megabyte of them took ten seconds."""
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_bytes(b"0 1 2\n" + b"\n" * 1000 + b"3 4\n")
    lines = []
    monkeypatch.setattr("evenhand.data.datasets.known.np.repeat", lambda ids, n: lines.append(n) or ids.repeat(n))
    assert adjacency(tmp_path).log["item"].to_pylist() == [1, 2, 4]
    assert len(lines) == 4


def test_an_empty_matrix_is_reported_without_a_warning(tmp_path: Path) -> None:
    (tmp_path / "train.ascii").write_bytes(b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"rows × .* columns"):
            coat(tmp_path)
