"""python -m checks.old_folders FOLDER

Makes small models, an unfinished run, a saved audit and a search with the evenhand that is installed, through its
command line alone, so that any version can be asked: `PYTHONPATH=/checkout/of/0.1/src python -m checks.old_folders …`.
tests/fixtures/<version> was made so, and tests/test_old_folders.py reads it with today's code.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
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
    "als": "--method als:dim=4 --seeds 2",
    "gfcf": "--method gfcf:dim=4",
    "blend": "--method blend",
}
RUN = "train log.csv --method rns --seeds 1 --epochs 100000 --patience 100000 --dim 2 --batch 64 --device cpu --out run"
SEARCH = "tune log.csv --method ease --trials 3 --out search"
AUDIT = "audit --train train.csv --test test.csv --recs mine=recs.csv --k 5 --save audit.json"


def main(place: str) -> None:
    folder = Path(place)
    folder.mkdir(parents=True)
    write_log(folder)
    for name, how in MODELS.items():
        if name in evenhand(folder, "methods") or name in ("mf", "lightgcn"):
            evenhand(folder, f"train log.csv {how} --out {name}")
            (folder / name / "lists.json").write_text(evenhand(folder, f"recommend {name} -k 3 --json"))
            (folder / name / "README.md").unlink()  # a card is never read
    evenhand(folder, "data split log.csv --out parts --test 0.2 --validation 0")
    for name in ("train", "test"):
        shutil.move(folder / "parts" / f"{name}.csv", folder / f"{name}.csv")
    shutil.rmtree(folder / "parts")
    evenhand(folder, "recommend mf -k 5 --out recs.csv")
    (folder / "report").mkdir()
    evenhand(folder, AUDIT)
    shutil.rmtree(folder / "report")
    evenhand(folder, SEARCH)
    for path in (folder / "search").iterdir():
        if path.name != "trials.log":
            path.unlink()
    stop_in_the_middle(folder)


def write_log(folder: Path) -> None:
    """14 users and 24 items, the first ones the most popular."""
    draw = random.Random(0)
    pairs = [(u, i) for u in range(14) for i in range(24) if draw.random() < 0.8 - 0.03 * i]
    (folder / "log.csv").write_text("user,item\n" + "".join(f"u{u},{i}\n" for u, i in pairs))


def evenhand(folder: Path, command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "evenhand", *command.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        sys.exit(f"{command}: {ended.stderr}")
    return ended.stdout


def stop_in_the_middle(folder: Path) -> None:
    """Kill a training once it has a checkpoint, and keep the newest one."""
    process = subprocess.Popen([sys.executable, "-m", "evenhand", *RUN.split()], cwd=folder, stderr=subprocess.DEVNULL)
    while not (found := sorted((folder / "run" / ".checkpoints").glob("*.safetensors"))):
        time.sleep(0.002)
    process.kill()
    process.wait()
    for path in found[:-1]:
        path.unlink()


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    main(*sys.argv[1:])
    print(json.dumps({path.name: path.stat().st_size for path in Path(sys.argv[1]).iterdir()}))
