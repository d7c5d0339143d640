"""Runs examples/nightly.py in forks of one process and kills it once at each of its steps.

    main FOLDER [DATABASE]

FOLDER has three days and items.parquet. Two nights are killed until they are through, in FOLDER/killed; two are not, in
FOLDER/whole, and a third there meets a gate that fails. After every death whatever is there must load. What a kill in
the middle of a command leaves is a matter of `make torture`. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from checks.faults.life import import_everything, nightly


def forked(work: Callable[[], None]) -> int:
    """The exit code of the work in a copy of this process; negative: the signal that killed it."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            work()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def night(
    shop: Path, day: int, inputs: Path, database: str | None, deaths: Path | None, gate: str = "today.coverage@5<0.1"
) -> int:
    """One start of the script; with `deaths`, it dies at the first step that is not named there, and adds its name."""
    arguments = [shop, inputs / f"day{day}.parquet", "--date", f"2024-05-0{day}", "--method", "ease", "--k", "5",
                 "--items", inputs / "items.parquet", "--gate", gate]  # fmt: skip
    if database is not None:
        arguments += ["--database", database, "--table", f"lists_{shop.name}"]

    def step(name: str) -> None:
        if deaths is not None and name not in (deaths.read_text().splitlines() if deaths.exists() else ()):
            with deaths.open("a") as file:
                file.write(f"{name}\n")
            os.kill(os.getpid(), signal.SIGKILL)

    def then(command: list[str]) -> None:
        step(f"after {day} {' '.join(Path(word).name for word in command[:4])}")

    replace = os.replace

    def moved(source: Any, target: Any, **options: Any) -> None:
        own = Path(target) == shop / "live" or Path(target).name.startswith("removed")
        replace(source, target, **options)
        if own:
            step(f"after {day} {Path(target).name}")

    def whole() -> None:
        with patch.object(os, "replace", moved):
            nightly(tuple(map(str, arguments)), then)

    return forked(whole)


def sound(shop: Path) -> None:
    """Raises where a model or a list of the folder cannot be read, or `live` names none."""
    import pyarrow.parquet as pq

    import evenhand as eh

    if (shop / "live").is_symlink():
        eh.load(shop / "live")
    for config in shop.glob("models/*/config.json"):
        eh.load(config.parent)
    for lists in shop.glob("lists/*.parquet"):
        assert len(pq.read_table(lists))


def main() -> None:
    folder, database = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    import_everything()
    from evenhand.report import audit_page

    audit_page.audit_page = lambda *_: "<!doctype html></html>"  # a page takes longer to draw than all else here
    deaths = folder / "deaths"
    lives = []
    for day in (1, 2):
        while not lives or lives[-1] != (day, 0):
            lives.append((day, night(folder / "killed", day, folder, database, deaths)))
            assert lives[-1][1] in (0, -signal.SIGKILL), lives
            assert forked(lambda: sound(folder / "killed")) == 0, lives
        assert night(folder / "whole", day, folder, database, None) == 0
    refused = night(folder / "whole", 3, folder, database, None, gate="today.coverage@5<2")
    print(json.dumps({"lives": len(lives), "deaths": deaths.read_text().splitlines(), "refused": refused}))
