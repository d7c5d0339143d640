"""The trials of a search in a file or a database that somebody else wrote to."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from random import Random
from unittest.mock import patch

import evenhand
from checks.fuzz.inputs import VALUES, document, mutated
from checks.fuzz.targets.commands import LOG, SEARCH, run
from checks.fuzz.targets.target import SEEDS, Target

TRIALS = 3


def _journal(data: bytes, folder: Path) -> None:
    """`tune` in a folder whose trials somebody wrote: it goes on with them, or refuses them as they are."""
    (folder / "log.csv").write_text(LOG)
    out = folder / "search"
    out.mkdir()
    (out / "trials.log").write_bytes(data)
    _searched(out, "ndcg@3,ohr@3" if b"ohr@3" in data else "ndcg@3")


def _database(data: bytes, folder: Path) -> None:
    """The same in a database: a file that is none, or one with other values in its cells."""
    (folder / "log.csv").write_text(LOG)
    place = folder / "trials.db"
    if data[:1] == b"{":
        place.write_bytes((SEEDS / "search-database" / "plain.db").read_bytes())
        _fill(place, data)
    else:
        place.write_bytes(data)
    _searched(folder / "search", "ndcg@3", "--storage", f"sqlite:///{place}", "--study", "itemknn")


def _searched(out: Path, metric: str, *more: str) -> None:
    asked = ("tune", out.parent / "log.csv", *SEARCH, "--trials", TRIALS, "--metric", metric, "--out", out)
    # What is wrong with a database may show when a trial is written to it, when work has been done.
    with patch.object(evenhand, "__version__", "0"):
        run(*asked, *more, fails=(1, 2) if more else (2,))
    best = json.loads((out / "best.json").read_text(encoding="utf-8"))
    assert best["parameters"]["neighbours"] in range(1, 6), best
    assert 1 <= best["parameters"]["shrink"] <= 9, best


def _fill(place: Path, data: bytes) -> None:
    """Cells as the input has them: {"table.column": value}."""
    try:
        cells = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.closing(sqlite3.connect(place)) as database:
        for name, value in cells.items() if isinstance(cells, dict) else ():
            at, _, column = str(name).partition(".")
            if not at.isidentifier() or not column.isidentifier():
                continue
            cell = json.dumps(value) if isinstance(value, (dict, list)) else value
            with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeEncodeError):
                database.execute(f"UPDATE {at} SET {column} = ?", (cell,))
        database.commit()


CELLS = (
    "trial_values.value", "trial_values.value_type", "trial_values.objective", "trials.state",
    "trials.number", "trials.datetime_start", "trial_params.param_name", "trial_params.param_value",
    "trial_params.distribution_json", "trial_user_attributes.key", "trial_user_attributes.value_json",
    "trial_system_attributes.value_json", "study_user_attributes.value_json", "study_user_attributes.key",
    "study_directions.direction", "studies.study_name", "version_info.schema_version",
    "alembic_version.version_num",
)  # fmt: skip


def _databases(random: Random, seeds: list[bytes]) -> bytes:
    if random.random() < 0.4:
        return mutated(random, [seed for seed in seeds if seed[:1] != b"{"])
    odd = (*VALUES, "COMPLETE", "RUNNING", "WAITING", "FINITE", "INF_POS", '{"name": "x"}', "9" * 5000)
    names = random.sample(CELLS, random.choice((1, 1, 2, 3)))
    return json.dumps({name: random.choice(odd) for name in names}).encode("utf-8", "surrogatepass")


def _journals(random: Random, seeds: list[bytes]) -> bytes:
    """Lines with wrong values, left out, doubled, or in another order."""
    if random.random() < 0.3:
        return mutated(random, seeds)
    lines = random.choice(seeds).splitlines()
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(lines))
        what = random.random()
        if what < 0.6:
            with contextlib.suppress(ValueError):
                lines[place] = document(random, lines[place])
        elif what < 0.75 and len(lines) > 1:
            del lines[place]
        elif what < 0.9:
            lines.insert(random.randrange(len(lines) + 1), lines[place])
        else:
            lines[place] = mutated(random, [lines[place]])
    return b"\n".join(lines) + b"\n" * random.choice((0, 1, 1, 1))


TARGETS = (
    Target("search-journal", _journal, _journals, weight=0.2),
    Target("search-database", _database, _databases, weight=0.05),
)
