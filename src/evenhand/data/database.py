"""Lists into a table of PostgreSQL, in one transaction: readers see yesterday's lists or today's, never some of each.

A password is given by the URI, by PGPASSWORD or in ~/.pgpass; no message, note or file of ours has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from evenhand.utils.errors import InputError
from evenhand.utils.text import one_line

SCHEMES = ("postgresql://", "postgres://")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SECRET = re.compile(r"(password|sslpassword)=[^&\s]*", re.IGNORECASE)


def is_database(target: str) -> bool:
    return target.startswith(SCHEMES)


def check_database(uri: str, name: str, force: bool) -> None:
    """Refuse what could not be written later, before any work is done."""
    _quoted(name)
    if find_spec("adbc_driver_postgresql") is None:
        raise InputError("PostgreSQL needs a driver; install it with: pip install 'evenhand[postgres]'.")
    with _cursor(uri) as cursor:
        if _exists(cursor, name) and not force:
            raise InputError(f"the table {name} exists already; choose another --table or use --force.")


def write_database(table: pa.Table, uri: str, name: str) -> None:
    """The rows of a new table, or in place of all rows of one that exists, whose indices and grants stay."""
    schema, _, own = name.rpartition(".")
    with _cursor(uri) as cursor:
        there = _exists(cursor, name)
        if there:
            # One writer at a time; a second one would otherwise keep the rows of the first.
            cursor.execute(f"LOCK TABLE {_quoted(name)} IN SHARE ROW EXCLUSIVE MODE")
            cursor.execute(f"DELETE FROM {_quoted(name)}")
        cursor.adbc_ingest(own, table, mode="append" if there else "create", db_schema_name=schema or None)


def without_password(uri: str) -> str:
    """
    >>> without_password("postgresql://anna:s3cret@db.example/shop?sslmode=require")
    'postgresql://anna@db.example/shop?sslmode=require'
    """
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InputError("the address of the database is not one, as postgresql://USER@HOST/DATABASE is.") from None
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(one for one in parts.query.split("&") if one and not _SECRET.match(one))
    return parts._replace(netloc=user.partition(":")[0] + at + host, query=query).geturl()


@contextmanager
def _cursor(uri: str) -> Iterator[Any]:
    """One transaction, which counts if the block ends without an error."""
    dbapi: Any = import_module("adbc_driver_postgresql.dbapi")
    shown = without_password(uri)
    try:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            yield cursor
            connection.commit()
    except dbapi.Error as problem:
        raise InputError(f"PostgreSQL at {shown}: {_said(problem, uri)}.") from None


def _exists(cursor: Any, name: str) -> bool:
    cursor.execute("SELECT to_regclass($1)::text", (_quoted(name),))
    (found,) = cursor.fetchone()
    return found is not None


def _quoted(name: str) -> str:
    """A table's name for a statement; a dot stands between schema and table."""
    parts = name.split(".")
    if len(parts) > 2 or not all(map(_NAME.fullmatch, parts)):
        raise InputError(f"'{one_line(name, 80)}' is no name of a table; use letters, digits and _, or schema.table.")
    return ".".join(f'"{part}"' for part in parts)


def _said(problem: Exception, uri: str) -> str:
    """What the server or the driver said, in one line and without a password."""
    text = one_line(str(problem).partition("Query was:")[0], 300)
    password = urlsplit(uri).password or ""
    for secret in {password, unquote(password)} - {""}:
        text = text.replace(secret, "…")
    return _SECRET.sub(r"\1=…", text).rstrip(". ")
