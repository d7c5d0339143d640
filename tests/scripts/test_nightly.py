"""The night of examples/nightly.py: killed at every step it loses nothing; a gate that fails leaves the older model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import evenhand as eh
import killed_nights
from postgres_server import server
from prepared import Program

ROOT = Path(__file__).parent.parent.parent
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "ARROW_NUM_THREADS"), "1")


def write_days(folder: Path) -> None:
    """Three days of a shop with 40 customers and 60 articles, five of which nobody has bought yet."""
    g = np.random.default_rng(0)
    taste, kind = g.integers(0, 4, 40), g.integers(0, 4, 60)
    chance = np.where(taste[:, None] == kind, 0.35, 0.06) * (np.arange(60) < 55)
    users, items = np.nonzero(g.random((40, 60)) < chance)
    order = g.random(len(users))
    for day, some in (("day1", order < 0.7), ("day2", (order >= 0.7) & (order < 0.9)), ("day3", order >= 0.9)):
        pq.write_table(pa.table({"user": users[some], "item": items[some]}), folder / f"{day}.parquet")
    pq.write_table(pa.table({"item": np.arange(60), "kind": [f"kind {one}" for one in kind]}), folder / "items.parquet")


def started(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    package = Path(eh.__file__).parent.parent
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests", package)))
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | THREADS | {"PYTHONPATH": paths} | environment,
    )


def test_killed_at_every_step_it_ends_where_an_undisturbed_night_does(tmp_path: Path) -> None:
    write_days(tmp_path)
    with ExitStack() as stack:
        try:
            database: tuple[str, ...] = (stack.enter_context(server()),)
        except pytest.skip.Exception:
            database = ()  # tests/postgres_server.py says why
        with Program(killed_nights.main, tmp_path, *database, environment=THREADS) as process:
            out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        rows = _rows(database[0]) if database else None
    document = json.loads(out)
    commands = {name.split(" ", 2)[2] for name in document["deaths"]}
    for expected in ("data split", "train", "update", "recommend", "audit", "live"):
        assert any(expected in command for command in commands), document
    assert document["lives"] == len(document["deaths"]) + 2
    assert document["refused"] == 1
    assert "gate failed: today.coverage@5<2 holds" in err
    assert (tmp_path / "whole" / "audits" / "2024-05-03.html").exists()
    assert "s3cret" not in out + err
    for day in ("2024-05-01", "2024-05-02"):
        killed, whole = (pq.read_table(tmp_path / shop / "lists" / f"{day}.parquet") for shop in ("killed", "whole"))
        assert killed.equals(whole)
    for shop, left in (("killed", []), ("whole", ["work"])):  # the latter by the night that was refused
        assert os.readlink(tmp_path / shop / "live") == "models/2024-05-02"
        assert sorted(path.name for path in (tmp_path / shop).iterdir()) == [
            "audits", "history", "lists", "live", "lock", "models", *left,
        ]  # fmt: skip
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    model = eh.load(tmp_path / "killed" / "live")
    assert model.known.n_items == 60
    # All of the first day is known by now, and of the second all but the held-out tenth.
    pairs = {part: pq.read_table(tmp_path / "killed" / "history" / part).num_rows for part in (
        "2024-05-01/train.parquet", "2024-05-01/test.parquet", "2024-05-02/train.parquet")}  # fmt: skip
    assert len(model.known) == sum(pairs.values())
    if rows is not None:
        assert rows["lists_killed"] == rows["lists_whole"]
        assert len(rows["lists_killed"]) == 40 * 5


def _rows(uri: str) -> dict[str, list[tuple[object, ...]]]:
    from adbc_driver_postgresql import dbapi

    found = {}
    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        for table in ("lists_killed", "lists_whole"):
            cursor.execute(f'SELECT "user", item, rank FROM {table} ORDER BY 1, 3')
            found[table] = cursor.fetchall()
    return found


def test_the_command_as_a_person_runs_it(tmp_path: Path) -> None:
    """Real processes of the command line, four of them: about ten seconds of work."""
    write_days(tmp_path)
    program = tmp_path / "bin" / "evenhand"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m evenhand "$@"\n')
    program.chmod(0o755)
    arguments = (tmp_path / "shop", tmp_path / "day1.parquet", "--date", "2024-05-01", "--method", "ease", "--k", "5")
    ended = started(
        ROOT / "examples" / "nightly.py", *arguments, PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["live"] == "2024-05-01"
