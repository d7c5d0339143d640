"""Whole commands on texts and tables of others: where every reader, writer and printer meets."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa

from checks.fuzz.inputs import document, mutated, table
from checks.fuzz.targets.documents import LISTS, TEST, TRAIN, write_results
from checks.fuzz.targets.target import Target
from checks.fuzz.targets.texts import words
from evenhand.cli import main
from evenhand.data.reading.read import read_interactions
from evenhand.data.write import write_table
from evenhand.models.folder import FILES
from evenhand.utils.errors import InputError
from evenhand.utils.text import visible

LOG = "user,item\n" + "".join(f"{u},{i}\n" for u in range(9) for i in range(12) if (u * i + u + i) % 3)
SEARCH = ("--method", "itemknn", "--range", "neighbours=1..5", "--range", "shrink=1..9", "--device", "cpu")
"""What a search is asked for, so that its trials depend on no default."""


def run(*arguments: object, code: int = 0, fails: tuple[int, ...] = (2,)) -> str:
    """`evenhand ARGUMENTS…`: what it printed, or the sentence that it ended with as an `InputError`."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    ended: object = None
    try:
        with (
            patch.object(sys, "argv", ["evenhand", *map(str, arguments)]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            main()
    except SystemExit as leaving:
        ended = leaving.code
    out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    plain = printed.replace("\n", "")
    assert visible(plain) == plain, f"steers the terminal: {printed!r}"
    assert "Traceback" not in printed, printed
    assert ended in (code, *fails), f"exit code {ended}: {printed}"
    if ended in fails:
        *_, told = printed.strip().split("\n")
        assert told.startswith("evenhand: "), printed
        raise InputError(told.removeprefix("evenhand: "))
    return printed


def as_text(data: bytes) -> str:
    """What a person could type, or a file could hold, of an input."""
    text = data.decode("utf-8", "surrogateescape").replace("\x00", "\\0")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = visible(text)
    return text


def _audit(data: bytes, folder: Path) -> None:
    """`audit` with one text as everything that has a name."""
    text = as_text(data)
    odd = {name: f"{name}{text}" for name in (*TRAIN, *"abcdefghij")}
    files = {"train.csv": TRAIN, "test.csv": TEST, "lists.csv": LISTS}
    for name, of in files.items():
        rows = [
            {"user": odd[user], "item": odd[item], "rank": n, "kind": text}
            for user, items in of.items()
            for n, item in enumerate(items)
        ]
        write_table(pa.Table.from_pylist(rows), folder / name)
    items = [{"item": odd[item], "name": f"{item}{text}", "kind": f"{text}{item}"} for item in "abcdefghij"]
    write_table(pa.Table.from_pylist(items), folder / "items.parquet")
    printed = run(
        *("audit", "--train", folder / "train.csv", "--test", folder / "test.csv", "--k", "3,4"),
        *("--hot", "2", "--items-file", folder / "items.parquet", "--title", "name", "--slice-by", "kind"),
        *("--recs", f"a{text.replace('=', '')}={folder / 'lists.csv'}", "--fail-if", "ohr@4>0", "--github"),
        *("--out", folder / "r.html", "--save", folder / "a.json", "--junit", folder / "j.xml"),
        code=1,
    )
    commands = [line for line in printed.split("\n") if line.lstrip().startswith("::")]
    ours = ("::error title=evenhand", "::notice title=evenhand")
    assert all(line.startswith(ours) for line in commands), commands
    ET.parse(folder / "j.xml")
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert page.lower().count("<script") == 1
    assert {path.name for path in folder.iterdir()} == {*files, "items.parquet", "r.html", "a.json", "j.xml"}


def _split(data: bytes, folder: Path) -> None:
    """`data split`, its options in the first line of the input: the parts are the log, each pair once."""
    first, _, rest = data.partition(b"\n")
    given = [*as_text(first).split(" "), "", "", "", ""][:5]
    options = zip(("--split", "--test-share", "--validation-share", "--split-seed", "--to"), given, strict=True)
    path = folder / "log.csv"
    path.write_bytes(rest)
    try:
        run("data", "split", path, "--out", folder / "parts", *(word for pair in options for word in pair))
    except InputError:
        assert [left.name for left in folder.iterdir()] == ["log.csv"], "a part was written"
        raise
    pairs = [_pairs(part) for part in sorted((folder / "parts").iterdir())]
    found = sorted(pair for part in pairs for pair in part)
    assert found == _pairs(path), f"{found} of {_pairs(path)}"


def _pairs(path: Path) -> list[str]:
    rows = read_interactions(path, allow_small=True).to_table().to_pylist()
    return sorted(f"{row['user']}\t{row['item']}" for row in rows)


def _splits(random: Random, seeds: list[bytes]) -> bytes:
    words = (
        ("random", "per-user", "time", "leave-last-out", "x"),
        ("0.2", "0.5", "1", "nan", "-0.1", "1e-9"),
        ("0", "0.1", "0.5", "inf", "0.999"),
        ("0", "1", "-1", "9" * 30, "1.5"),
        ("csv", "tsv", "parquet", "../x", "\x1b[31m", ""),
    )
    options = [random.choice(some if random.random() < 0.07 else some[:2]) for some in words]
    made = table(random, ("user", "item", "rating", "timestamp"), b",")
    whole = " ".join(options).encode() + b"\n" + made
    return mutated(random, [*seeds, whole]) if random.random() < 0.4 else whole


def _claims(data: bytes, folder: Path) -> None:
    """`reproduce claims` and `show` on results that somebody changed."""
    write_results(data, folder)
    run("reproduce", "claims", "--out", folder)
    run("reproduce", "show", "--out", folder)
    json.loads(run("reproduce", "claims", "--out", folder, "--json"))


def _records(random: Random, seeds: list[bytes]) -> bytes:
    return mutated(random, seeds) if random.random() < 0.3 else document(random, random.choice(seeds))


def _places(data: bytes, folder: Path) -> None:
    """A text as the name of every folder and file that commands write to: there it is, and nowhere else."""
    name = as_text(data).replace("/", "_")
    inner = folder / "within"
    inner.mkdir()
    (folder / "log.csv").write_text(LOG)
    search, model, parts = (inner / f"{letter}{name}" for letter in "smp")
    run(
        *("tune", folder / "log.csv", *SEARCH, "--trials", 1, "--metric", "ndcg@3"),
        *("--out", search, "--model", model, "--refit"),
    )
    assert {path.name for path in model.iterdir()} == set(FILES)
    run("data", "split", folder / "log.csv", "--out", parts)
    lists = inner / f"l{name}.csv"
    run("recommend", model, "--k", 1, "--out", lists)
    (folder / "newer.csv").write_text("user,item\n0,0\n")
    run("update", model, folder / "newer.csv", "--out", inner / f"u{name}")
    written = {path.name for path in inner.iterdir()}
    assert written == {search.name, model.name, parts.name, lists.name, f"u{name}"}, written


def _short_words(random: Random, seeds: list[bytes]) -> bytes:
    return words(random, seeds)[:200]


TARGETS = (
    Target("audit-command", _audit, _short_words, weight=0.03),
    Target("split-command", _split, _splits, weight=0.3),
    Target("claims-command", _claims, _records, weight=0.2),
    Target("places", _places, _short_words, weight=0.05),
)
