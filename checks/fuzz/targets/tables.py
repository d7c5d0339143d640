"""Tables of interactions, lists and attributes, in every form they are read from."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checks.fuzz.arrays import odd_table
from checks.fuzz.inputs import VALUES, mutated, table
from checks.fuzz.targets.target import Target
from evenhand.audit.run_audit import read_systems
from evenhand.audit.slices import read_attributes
from evenhand.audit.sweep import Reference, read_reference
from evenhand.data.describe import describe
from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns, read_interactions
from evenhand.metrics.lists import ListColumns
from evenhand.models.item_files import read_groups
from evenhand.models.rerank import rerank_lists
from evenhand.utils.errors import InputError

LOG = ("user", "item", "rating", "timestamp")
LISTS = ("user", "item", "rank", "score", "name", "seed")


def _log(ending: str) -> Callable[[bytes, Path], object]:
    """Read interactions from a file with this ending, and look at all that was read."""

    def read(data: bytes, folder: Path) -> None:
        path = folder / f"log.{ending}"
        path.write_bytes(data)
        log = read_interactions(path)
        describe(log)
        log.to_table().to_pylist()
        if log.timestamps is not None:
            with suppress(InputError):  # a small log cannot always be split
                log.split(test=0.5, validation=0.0, how="time")

    return read


def _text(separator: bytes, header: bool = True, names: tuple[str, ...] = LOG) -> Callable[..., bytes]:
    def make(random: Random, seeds: list[bytes]) -> bytes:
        made = table(random, names, separator, header)
        if random.random() < 0.6:
            return made
        return mutated(random, [*seeds, made])

    return make


def _lists(random: Random, seeds: list[bytes]) -> bytes:
    return _text(b",", names=LISTS if random.random() < 0.3 else LISTS[:4])(random, seeds)


def _lines(random: Random, seeds: list[bytes]) -> bytes:
    """JSON lines whose values are of few types, some of them odd; one key may come twice."""
    if random.random() < 0.3:
        return mutated(random, seeds)
    kinds = {name: random.choice(([1, 2, 3], ["a", "b", "c"], [1, 2.5, None])) for name in LOG}
    odd = random.choice((0.0, 0.02, 0.2))
    made = []
    for _ in range(random.choice((2, 4, 9))):
        row = {
            name: random.choice(VALUES if random.random() < odd else kinds[name])
            for name in LOG
            if random.random() > odd / 4
        }
        made.append(json.dumps(row, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass"))
    whole = b"\n".join(made)
    return mutated(random, [whole]) if random.random() < 0.2 else whole


def _gzipped(random: Random, seeds: list[bytes]) -> bytes:
    if random.random() < 0.5:
        return mutated(random, seeds)
    return gzip.compress(_text(b",")(random, [gzip.decompress(seeds[0])]), mtime=0)


def _parquet(random: Random, seeds: list[bytes]) -> bytes:
    if random.random() < 0.5:
        return mutated(random, seeds)
    sink = io.BytesIO()
    made = odd_table(random, LOG)
    try:
        pq.write_table(made, sink, compression=random.choice(("none", "snappy", "zstd")))
    except pa.ArrowException:
        return mutated(random, seeds)
    return mutated(random, [sink.getvalue()]) if random.random() < 0.3 else sink.getvalue()


def _frame(data: bytes, folder: Path) -> None:
    """A table that another program holds in memory; here it comes as an Arrow stream."""
    try:
        given = pa.ipc.open_stream(data).read_all()
        given.validate(full=True)
        given.to_pylist()
    except (pa.ArrowException, OSError, LookupError, ValueError, OverflowError):
        return  # no program can hold such a table
    log = read_interactions(given)
    describe(log)
    log.to_table().to_pylist()


def _stream(random: Random, seeds: list[bytes]) -> bytes:
    sink = io.BytesIO()
    made = odd_table(random, LOG)
    with pa.ipc.new_stream(sink, made.schema) as writer:
        writer.write_table(made)
    return sink.getvalue()


@cache
def _train() -> Interactions:
    return Interactions.from_pairs(
        [0, 0, 1, 1, 2, 3],
        [0, 1, 1, 2, 3, 0],
        user_ids=pa.array(list("1234")),
        item_ids=pa.array(list("1234")),
    )


@cache
def _reference() -> Reference:
    return read_reference(_train(), None, None, "honest", {})


def _audited(data: bytes, folder: Path) -> None:
    path = folder / "lists.csv"
    path.write_bytes(data)
    for lists in read_systems({"mine": path}, _reference(), ListColumns(), 3)[0].values():
        lists.top(np.arange(4), 3)


def _reranked(data: bytes, folder: Path) -> None:
    path = folder / "lists.csv"
    path.write_bytes(data)
    rerank_lists(path, _train(), "calibrated", 0.5, 2).table.to_pylist()


def _attributes(data: bytes, folder: Path) -> None:
    path = folder / "users.csv"
    path.write_bytes(data)
    read_attributes(_reference(), path, None, None, ("rating",), {})


def _groups(data: bytes, folder: Path) -> None:
    path = folder / "items.csv"
    path.write_bytes(data)
    read_groups(f"{path}:rating", _train())


def _ids(data: bytes, folder: Path) -> None:
    """What `recommend --users` does: one column, of whatever there is."""
    path = folder / "users.jsonl"
    path.write_bytes(data)
    found: Any = read_columns(path, [Column("user", "id", "user"), Column("title", "text")])
    found.to_pylist()


TARGETS = (
    Target("csv", _log("csv"), _text(b","), weight=0.4),
    Target("tsv", _log("tsv"), _text(b"\t"), weight=0.4),
    Target("dat", _log("dat"), _text(b"::", header=False), weight=0.4),
    Target("csv-gz", _log("csv.gz"), _gzipped, weight=0.4),
    Target("jsonl", _log("jsonl"), _lines),
    Target("parquet", _log("parquet"), _parquet),
    Target("frame", _frame, _stream),
    Target("lists", _audited, _lists, weight=0.4),
    Target("candidates", _reranked, _lists, weight=0.4),
    Target("attributes", _attributes, _text(b","), weight=0.4),
    Target("groups", _groups, _text(b","), weight=0.4),
    Target("ids", _ids, _lines),
)
