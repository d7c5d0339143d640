"""Arrow tables of every type there is, sound and unsound, under the names a reader looks for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Maker = Callable[[Random, int], pa.Array]


def _of(values: list[Any], kind: pa.DataType) -> Maker:
    return lambda random, n: pa.array([random.choice(values) for _ in range(n)], kind)


_TEXTS = [
    "1",
    "2",
    "x",
    "",
    " ",
    None,
    "\x00",
    "\x1b[31m",
    "9" * 30,
    "nan",
    "1e400",
    "2020-01-01",
    "a" * 5000,
]
_WHEN = [datetime(1970, 1, 1), datetime(2020, 2, 29, 1), datetime(1, 1, 1), datetime(9999, 12, 31), None]
_NUMBERS = [0.0, 1.0, 2.5, -1.0, 1e300, 1e30, float("nan"), float("inf"), -float("inf"), None]
MAKERS: tuple[Maker, ...] = (
    _of([1, 2, 3], pa.int64()),
    _of([1, 2, None], pa.int64()),
    _of([0, 1, 255], pa.uint8()),
    _of([0, 2**64 - 1, None], pa.uint64()),
    _of([-(2**63), 2**63 - 1], pa.int64()),
    _of(["a", "b", "c"], pa.string()),
    _of(_TEXTS, pa.string()),
    _of(_TEXTS, pa.large_string()),
    _of(_TEXTS, pa.string_view()),
    _of([b"a", b"\xff\xfe", None], pa.binary()),
    _of([1.0, 2.0], pa.float64()),
    _of(_NUMBERS, pa.float64()),
    _of([0.0, 1.0, 65504.0, None], pa.float16()),
    _of([True, False, None], pa.bool_()),
    _of([None], pa.null()),
    _of([Decimal("1.5"), Decimal(10) ** 30, None], pa.decimal128(38, 2)),
    _of([Decimal(10) ** 70, None], pa.decimal256(76, 2)),
    _of([date(1970, 1, 1), date(9999, 1, 1), date(1, 1, 1), None], pa.date32()),
    _of([date(2020, 1, 1), None], pa.date64()),
    _of([0, -(2**63), 2**63 - 1, None], pa.timestamp("s")),
    _of([0, -(2**63), 2**63 - 1, None], pa.timestamp("ns", tz="UTC")),
    _of([0, 1], pa.timestamp("us", tz="Nowhere/Else")),
    _of(_WHEN, pa.timestamp("us")),
    _of([time(1, 2), None], pa.time64("us")),
    _of([timedelta(1), None], pa.duration("ms")),
    _of([[1], [], None], pa.list_(pa.int64())),
    _of([{"a": 1}, None], pa.struct([("a", pa.int64())])),
    _of([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    lambda random, n: pa.DictionaryArray.from_arrays(
        pa.array([random.choice([0, 1, 2, None]) for _ in range(n)], pa.int8()), pa.array(["a", "a", None])
    ),
    lambda random, n: pa.DictionaryArray.from_arrays(
        pa.array([random.choice([0, 1]) for _ in range(n)], pa.uint16()), pa.array([1.5, float("nan")])
    ),
    lambda random, n: pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([[1]])),
    lambda random, n: pa.RunEndEncodedArray.from_arrays([n], ["a"]) if n else pa.array([], pa.string()),
    # Bytes that call themselves text.
    lambda random, n: _of([b"a", b"\xff", b"\xed\xa0\x80"], pa.binary())(random, n).view(pa.string()),
)


PLAIN = (*MAKERS[:2], *MAKERS[10:11], MAKERS[19])


def odd_table(random: Random, names: tuple[str, ...]) -> pa.Table:
    """Columns of these names, or near them, each of some type; two plain ones most of the time."""
    n = random.choice((0, 2, 5, 9))
    columns, called = [], []
    for place, name in enumerate(names):
        if random.random() < (0.03 if place < 2 else 0.3):
            continue
        plain = place < 2 and random.random() < 0.75
        makers = MAKERS[:1] + MAKERS[5:6] if plain else PLAIN if random.random() < 0.4 else MAKERS
        columns.append(random.choice(makers)(random, n))
        called.append(name if random.random() < 0.95 else random.choice(("", "user", "user.x", "item.x", "\x00")))
    if not columns:
        return pa.table({"user": pa.array([1, 2])})
    return pa.Table.from_arrays(columns, names=called)
