"""python -m checks.old_folders FOLDER

Makes small models, an unfinished run, a saved audit and a search with the evenhand that is installed, through its
command line alone, so that any version can be asked: `PYTHONPATH=/checkout/of/0.1/src python -m checks.old_folders …`.
tests/fixtures/<version> was made so, and tests/test_old_folders.py reads it with today's code.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import sys
import time
from pathlib import Path

TINY = "--seeds 2 --epochs 2 --dim 4 --batch 64 --device cpu"
MODELS = {
    "mf": f"--method auc-ns {TINY}",
    "lightgcn": f"--method dns --encoder lightgcn {TINY}",
    "macr": f"--method macr {TINY}",
    "popular": "--method popular",
    "itemknn": "--method itemknn",
    "ease": "--method ease",
    "als": "--method als:factors=4 --seeds 2",
    "gfcf": "--method gfcf:factors=4",
    "blend": "--method blend",
}
RUN = "train log.csv --method rns --seeds 1 --epochs 400 --patience 400 --dim 2 --batch 64 --device cpu --out run"
SEARCH = "tune log.csv --method ease --trials 3 --out search"
AUDIT = "audit --train train.csv --test test.csv --recs mine=recs.csv --k 5 --save audit.json"


def main(place: str) -> None:
    folder = Path(place)
    folder.mkdir(parents=True)
    write_log(folder)
    listed = evenhand(folder, "methods")
    for name, how in MODELS.items():
        if name in listed or name in ("mf", "lightgcn"):
            evenhand(folder, f"train log.csv {how} --out {name}")
            keep_lists(folder, name)
    with contextlib.suppress(RuntimeError):  # versions before this kind of model
        evenhand(folder, "update ease --new-items items.csv --out mixed")
        keep_lists(folder, "mixed")
    evenhand(folder, "recommend mf -k 5 --out recs.csv")
    evenhand(folder, AUDIT)
    evenhand(folder, SEARCH)
    for path in (folder / "search").iterdir():
        if path.name != "trials.log":
            path.unlink()
    stop_in_the_middle(folder)


def keep_lists(folder: Path, name: str) -> None:
    """What the model recommends; its card, which is never read, goes."""
    (folder / name / "lists.json").write_text(evenhand(folder, f"recommend {name} -k 3 --json"))
    (folder / name / "README.md").unlink()


def write_log(folder: Path) -> None:
    """14 users and 24 items, the first ones the most popular; every fifth pair is for an audit's test."""
    draw = random.Random(0)
    pairs = [(u, i) for u in range(14) for i in range(24) if draw.random() < 0.8 - 0.03 * i]
    (folder / "items.csv").write_text("item,kind\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(26)))
    train = [pair for place, pair in enumerate(pairs) if place % 5]
    for name, part in (("log", pairs), ("train", train), ("test", pairs[::5])):
        (folder / f"{name}.csv").write_text("user,item\n" + "".join(f"u{u},{i}\n" for u, i in part))


def evenhand(folder: Path, command: str) -> str:
    """What the command prints; it runs in this process."""
    from evenhand.cli import main

    out, sys.argv = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), ["evenhand", *command.split()]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out):
            main()
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"{command} ended with {ended.code}") from None
    out.flush()
    return out.buffer.getvalue().decode()


def stop_in_the_middle(folder: Path) -> None:
    """Kill a training once it has a checkpoint, and keep the newest one."""
    child = os.fork()
    if not child:
        evenhand(folder, RUN)
        os._exit(0)
    while not (found := sorted((folder / "run" / ".checkpoints").glob("*.safetensors"))):
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for path in found[:-1]:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    main(*sys.argv[1:])
