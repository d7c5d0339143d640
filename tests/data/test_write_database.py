"""Lists in PostgreSQL: a real server, replaced in one transaction, and no password anywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.write import check_database, without_password, write_database
from evenhand.utils.errors import InputError
from postgres_server import PASSWORD, QUOTED, server
from run_cli import evenhand, small_log, write_log


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with server() as address:
        yield address


def asked(uri: str, statement: str) -> list[tuple[Any, ...]]:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def lists(*items: int) -> pa.Table:
    return pa.table({"user": ["a"] * len(items), "item": items, "rank": pa.array(range(1, len(items) + 1), pa.int32())})


def test_rows_are_replaced_and_grants_and_indices_stay(uri: str) -> None:
    check_database(uri, "first", force=False)
    write_database(lists(3, 1), uri, "first")
    asked(uri, 'CREATE INDEX by_user ON first ("user")')
    asked(uri, "GRANT SELECT ON first TO PUBLIC")
    with pytest.raises(InputError, match="the table first exists already; choose another --table or use --force"):
        check_database(uri, "first", force=False)
    check_database(uri, "first", force=True)
    write_database(lists(7, 8, 9), uri, "first")
    assert asked(uri, 'SELECT "user", item, rank FROM first ORDER BY rank') == [("a", 7, 1), ("a", 8, 2), ("a", 9, 3)]
    assert asked(uri, "SELECT count(*) FROM pg_indexes WHERE indexname = 'by_user'") == [(1,)]
    assert asked(uri, "SELECT relacl::text FROM pg_class WHERE relname = 'first'")[0][0].count("=r/tester") == 1
    asked(uri, "CREATE SCHEMA shop")
    write_database(lists(1), uri, "shop.lists")
    assert asked(uri, "SELECT item FROM shop.lists") == [(1,)]


def test_a_writer_that_dies_before_the_end_has_changed_nothing(uri: str) -> None:
    from adbc_driver_manager import dbapi

    write_database(lists(1, 2), uri, "kept")

    def die(_: Any) -> None:
        assert asked(uri, "SELECT item FROM kept ORDER BY rank") == [(1,), (2,)]  # what others see meanwhile
        raise KeyboardInterrupt

    with patch.object(dbapi.Connection, "commit", die), pytest.raises(KeyboardInterrupt):
        write_database(lists(5), uri, "kept")
    with pytest.raises(InputError, match=r'Column "more" does not exist'):
        write_database(lists(6).append_column("more", pa.array([1])), uri, "kept")
    assert asked(uri, "SELECT item FROM kept ORDER BY rank") == [(1,), (2,)]


def test_recommend_writes_there_and_names_no_password(uri: str, tmp_path: Path) -> None:
    write_log(small_log(), tmp_path / "log.csv")
    evenhand("train", tmp_path / "log.csv", "--method", "popular", "--out", tmp_path / "model")
    ended = evenhand("recommend", tmp_path / "model", "-k", "3", "--out", uri, "--table", "shown")
    assert ended.code == 0, ended.err
    assert "180 recommendations written to postgresql://tester@/postgres?host=" in ended.out
    assert ", table shown." in ended.out
    expected = eh.load(tmp_path / "model").recommend(k=3)
    found = asked(uri, 'SELECT "user", item, rank FROM shown ORDER BY "user", rank')
    assert found == list(zip(*(expected[name].to_pylist() for name in ("user", "item", "rank")), strict=True))
    again = evenhand("recommend", tmp_path / "model", "-k", "3", "--out", uri, "--table", "shown", "--json")
    assert again.code == 2
    assert "exists already" in again.err
    document = evenhand(
        "recommend", tmp_path / "model", "-k", "2", "--out", uri, "--table", "shown", "--force", "--json"
    )
    assert document.document["rows"] == 120
    wrong = evenhand("recommend", tmp_path / "model", "--out", uri.replace(QUOTED, "Wr0ng!pass"), "--table", "shown")
    assert wrong.code == 2
    assert "password authentication failed" in wrong.err
    for one in (ended, again, document, wrong):
        assert not [word for word in (PASSWORD, QUOTED, "Wr0ng!pass") if word in one.out + one.err]


@pytest.mark.parametrize("name", ["a;drop", "", "a.b.c", 'a"b', "1a", "x" * 64])
def test_what_is_no_name_of_a_table_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no name of a table"):
        check_database("postgresql://localhost:1/none", name, force=False)


def test_passwords_are_taken_out_of_addresses_and_messages() -> None:
    pytest.importorskip("adbc_driver_postgresql")
    assert without_password("postgresql://a:b@h:5/d?password=b&sslmode=off") == "postgresql://a@h:5/d?sslmode=off"
    for address in (
        "postgresql://x:topsecret@localhost:1/db",
        "postgresql://localhost:1/db?password=topsecret&nonsense=1",
    ):
        with pytest.raises(InputError) as caught:
            check_database(address, "lists", force=False)
        assert "topsecret" not in str(caught.value)
    with pytest.raises(InputError, match="is not one, as postgresql://"):
        check_database("postgresql://x:topsecret@[bad/db", "lists", force=False)


def test_without_the_driver_or_a_database_one_sentence_says_so(tmp_path: Path) -> None:
    write_log(small_log(), tmp_path / "log.csv")
    evenhand("train", tmp_path / "log.csv", "--method", "popular", "--out", tmp_path / "model")
    with (
        patch.dict(sys.modules, {"adbc_driver_postgresql": None}),
        patch("evenhand.data.write.find_spec", lambda _: None),
    ):
        ended = evenhand("recommend", tmp_path / "model", "--out", "postgresql://localhost:1/shop")
    assert ended.code == 2
    assert "pip install 'evenhand[postgres]'" in ended.err
    ended = evenhand("recommend", tmp_path / "model", "--out", tmp_path / "lists.csv", "--table", "lists")
    assert ended.code == 2
    assert "--table is one of a database" in ended.err
