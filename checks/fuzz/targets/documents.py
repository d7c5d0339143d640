"""JSON that evenhand wrote, and somebody changed: audits to compare with, and results of `reproduce`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa

from checks.fuzz.inputs import document, mutated
from checks.fuzz.targets.target import Target
from evenhand.audit.audit_files import github_lines, junit
from evenhand.audit.changes import against
from evenhand.audit.document import read_audit, to_json
from evenhand.audit.gates import judge, parse_gate
from evenhand.audit.result import Audit
from evenhand.audit.run_audit import audit
from evenhand.paper.reproduce.claims import claims
from evenhand.paper.reproduce.people import recall
from evenhand.paper.reproduce.record import as_written, documents
from evenhand.paper.reproduce.table import markdown
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
    judged = judge([parse_gate("ohr@4>0.1")], found)
    junit(judged)
    github_lines(found, judged)


def _record(data: bytes, folder: Path) -> None:
    (folder / "overall-x.json").write_bytes(data)
    found = documents(folder)
    with as_written(folder):
        claims(found)
        for one in found.values():
            markdown(one)


def _people(data: bytes, folder: Path) -> None:
    """The users behind a row: what cannot be read counts as not there."""
    from evenhand.paper.reproduce.people import _file_name

    (folder / _file_name("x")).write_bytes(data)
    recall(folder, "x")


def _json(random: Random, seeds: list[bytes]) -> bytes:
    return mutated(random, seeds) if random.random() < 0.3 else document(random, seeds[0])


TARGETS = (
    Target("baseline", _baseline, _json, weight=0.2),
    Target("record", _record, _json, weight=0.2),
    Target("people", _people, weight=0.2),
)
