"""What evenhand wrote, and somebody changed: audits to compare with, and results of `reproduce`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from checks.fuzz.inputs import document, mutated
from checks.fuzz.targets.target import Target
from evenhand.audit.gates import against, evaluate_gates, github_lines, junit, parse_gate
from evenhand.audit.result import Audit, read_audit, to_json
from evenhand.audit.run_audit import audit
from evenhand.experiments.results import COMPARISONS, MEASUREMENTS, RUNS, as_written, documents
from evenhand.paper.claims import claims, load
from evenhand.paper.tables import markdown
from evenhand.utils.errors import InputError
from evenhand.utils.text import json_text

TRAIN = {"ann": "abc", "bob": "abd", "cat": "ae", "dan": "abf", "eve": "bcg", "fay": "ij"}
TEST = {"ann": "de", "bob": "ceh", "cat": "b", "dan": "cg", "eve": "af"}
LISTS = {"ann": "fdeg", "bob": "cefg", "cat": "bcdf", "dan": "edh", "eve": "adeh"}


def pairs(of: dict[str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"user": user, "item": item} for user, items in of.items() for item in items])


def ranked(of: dict[str, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"user": u, "item": i, "rank": rank} for u, items in of.items() for rank, i in enumerate(items, 1)]
    )


@cache
def small_audit() -> Audit:
    return audit({"mine": ranked(LISTS), "other": ranked(TRAIN)}, pairs(TRAIN), pairs(TEST), k=(3, 4), hot=2)


def _baseline(data: bytes, folder: Path) -> None:
    """`--baseline`, and all that then speaks of it."""
    path = folder / "earlier.json"
    path.write_bytes(data)
    found = against(small_audit(), read_audit(path))
    json_text(to_json(found))
    judged = evaluate_gates([parse_gate("ohr@4>0.1")], found)
    junit(judged)
    github_lines(found, judged)


def write_results(data: bytes, folder: Path) -> None:
    """Rows of the three tables of results, as JSON; what makes no table is no input."""
    try:
        for name, rows in zip((RUNS, MEASUREMENTS, COMPARISONS), json.loads(data), strict=True):
            pq.write_table(pa.Table.from_pylist(rows), folder / name)
    except (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError, pa.ArrowException):
        raise InputError("these rows are no tables.") from None


def _record(data: bytes, folder: Path) -> None:
    write_results(data, folder)
    found = documents(folder)
    with as_written(folder):
        claims(found)
        for one in found.values():
            markdown(one)


def _tables(data: bytes, folder: Path) -> None:
    """A table of results that is damaged as a file."""
    (folder / RUNS).write_bytes(data)
    documents(folder)


def _people(data: bytes, folder: Path) -> None:
    """The users behind a row: what cannot be read counts as not there."""
    from evenhand.paper.claims import _file_name

    (folder / _file_name("x")).write_bytes(data)
    load(folder, "x")


def _json(random: Random, seeds: list[bytes]) -> bytes:
    return mutated(random, seeds) if random.random() < 0.3 else document(random, seeds[0])


TARGETS = (
    Target("baseline", _baseline, _json, weight=0.2),
    Target("record", _record, _json, weight=0.2),
    Target("results-parquet", _tables, weight=0.2),
    Target("people", _people, weight=0.2),
)
