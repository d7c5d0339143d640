"""Inputs to try: sound files with a few faults, tables full of odd cells, documents with a wrong value.

Everything depends on a `random.Random` alone, so an input is known by target, seed and number.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

WORDS: tuple[bytes, ...] = (
    b"\x00", b"\r", b"\n", b"\r\n", b'"', b'""', b"'", b"\\", b",", b";", b"|", b"\t", b"::", b":", b"\x1f",
    b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    "\u202e\u2066".encode(), "\u2028".encode(), "\x9b31m".encode(), "é²٣𝟙".encode(), "\ufeff".encode(),
    b"\x1b[31m", b"\x1b]0;x\x07", b"\x08\x08", b"[red]", b"[/]", b"[link=file:///]", b"<script>",
    b"</script>", b"-->", b"]]>", b"&#0;", b"::error::x", b"%0A", b"../", b"../../x", b"/etc/x", b"C:\\x",
    b"a" * 300,
    b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"1e400", b"-1e400", b"1e-400", b"1e30", b"0x10", b"1_0",
    b"-0", b"00", b"-1", b"0", b"1", b"2147483648", b"4294967296", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"9" * 40, b"9" * 5000, b"0.1",
    b"2020-02-30", b"2020-01-01", b"2020-01-01T00:00:00Z", b"2020-01-01T00:00:00+25:00", b"0000-00-00",
    b"99999-01-01", b"1677-09-21T00:12:43Z", b"true", b"null", b"None", b"NA", b"", b" ", b"\xc2\xa0",
    b"[" * 50, b"{" * 50, b"{}", b"[]", b'{"a":', b'"user"', b"user", b"item", b"rank", b"score", b"name",
    b"seed", b"rating", b"timestamp", b"x" * 1000, b"__proto__", b"$ref", b"%s%n", b"{0}", b"${x}", b"`id`",
    b"$(id)",
)  # fmt: skip
"""What readers trip over: separators, quotes, half characters, numbers at the edge, commands to others."""

LARGE = (
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"x" * 10_000_000,
    b'"' * 300_000,
    b"," * 600_000,
    b"\n" * 500_000,
)
"""Seldom, for they take a while."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "x", "\x00", "\x1b[31m", "\ud800", "<script>", "../../x", "1", "nan", [], {}, [None],
    [[]], [1, 2], ["x"], {"a": 1}, {"": {}}, [{}], "y" * 3000, [[[[[[]]]]]],
)  # fmt: skip


def mutated(random: Random, seeds: list[bytes], words: tuple[bytes, ...] = WORDS) -> bytes:
    """One of the seeds with a few faults."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 12))):
        _fault(random, data, seeds, words)
    if random.random() < 0.001:
        place = random.randrange(len(data) + 1)
        data[place:place] = random.choice(LARGE)
    return bytes(data)


def _fault(random: Random, data: bytearray, seeds: list[bytes], words: tuple[bytes, ...]) -> None:
    place = random.randrange(len(data) + 1)
    end = min(len(data), place + 1 + int(random.expovariate(0.1)))
    what = random.randrange(9)
    if what == 0:
        del data[place:end]
    elif what == 1:
        data[place:place] = data[place:end] * random.choice((1, 2, 50))
    elif what in (2, 3):
        data[place:place] = random.choice(words)
    elif what == 4:
        data[place:end] = random.choice(words)
    elif what == 5 and data:
        data[place % len(data)] = random.randrange(256)
    elif what == 6 and data:
        data[place % len(data)] ^= 1 << random.randrange(8)
    elif what == 7 and len(data) >= 8:
        size = random.choice((1, 2, 4, 8))
        number = random.choice((0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1))
        place = random.randrange(len(data) - size + 1)
        data[place : place + size] = (number % 256**size).to_bytes(size, random.choice(("little", "big")))
    elif what == 8:
        other = random.choice(seeds)
        cut = random.randrange(len(other) + 1)
        data[place:] = other[cut:]


def cells(random: Random, n: int, odd: float) -> list[bytes]:
    """The fields of a row, of which so many are odd."""
    return [cell(random) if random.random() < odd else b"%d" % random.randrange(9) for _ in range(n)]


def cell(random: Random) -> bytes:
    word = b"".join(random.choice(WORDS) for _ in range(random.choice((1, 1, 2))))
    return b'"' + word.replace(b'"', b'""') + b'"' if random.random() < 0.3 else word


def table(random: Random, names: tuple[str, ...], separator: bytes, header: bool = True) -> bytes:
    """A table of text with odd cells, and now and then an odd header."""
    columns = list(names[: random.randrange(1, len(names) + 1)]) if random.random() < 0.1 else list(names)
    if header:
        random.shuffle(columns)
    first = [name.encode() for name in columns]
    if random.random() < 0.05:
        first[random.randrange(len(first))] = cell(random)
    rows = [first] if header else []
    odd = random.choice((0.01, 0.05, 0.2))
    for _ in range(random.choice((1, 3, 8))):
        surplus = random.choice((-1, 1)) if random.random() < 0.03 else 0
        rows.append(cells(random, len(columns) + surplus, odd))
    end = random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
    return (b"\xef\xbb\xbf" if random.random() < 0.05 else b"") + end.join(separator.join(row) for row in rows)


def document(random: Random, seed: bytes) -> bytes:
    """A JSON document in which one to three values are others."""
    whole = json.loads(seed)
    for _ in range(random.choice((1, 1, 2, 3))):
        whole = _changed(random, whole)
    text = json.dumps(whole)
    if random.random() < 0.01:
        text = text.replace("1", random.choice(("[" * 100_000, "9" * 5000, "1e999")), 1)
    return text.encode("utf-8", "surrogatepass")


def _changed(random: Random, value: Any) -> Any:
    """The value, or one somewhere inside it, exchanged, left out or put in twice."""
    if not isinstance(value, (dict, list)) or not value or random.random() < 0.12:
        return random.choice(VALUES)
    if isinstance(value, dict):
        key = random.choice(list(value))
        rest = {name: inner for name, inner in value.items() if name != key}
        if random.random() < 0.1:
            return rest
        if random.random() < 0.05:
            return rest | {random.choice(("", "x", "\x00", "a" * 300)): value[key]}
        return value | {key: _changed(random, value[key])}
    place = random.randrange(len(value))
    if random.random() < 0.1:
        return value[:place] + value[place + 1 :]
    if random.random() < 0.1:
        return [*value, value[place]]
    return [*value[:place], _changed(random, value[place]), *value[place + 1 :]]
