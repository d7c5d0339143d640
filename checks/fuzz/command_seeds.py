"""Sound inputs for the targets that run whole commands; `make_seeds.py` writes them with the others."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import evenhand
from checks.fuzz.targets.commands import LOG, SEARCH, run
from checks.fuzz.targets.target import SEEDS
from evenhand.baselines import EASE, Blend, ItemKNN, Popular
from evenhand.encoders import MF, LightGCN, describe_encoder
from evenhand.methods import parse
from evenhand.models.base import described
from evenhand.training.settings import Settings

Keep = Callable[[str, bytes], None]
TIMED = "user,item,timestamp\n" + "".join(f"{u},{i},{9 * u + i}\n" for u in range(4) for i in range(5) if u != i)


def command_seeds(keep: Keep) -> None:
    for name, options in {"random": "random 0.2 0.1 0 csv", "time": "time 0.3 0 1 parquet"}.items():
        keep(f"split-command/{name}", f"{options}\n{TIMED}".encode())
    for name, text in {"plain": "films", "odd": "\x1b[31m[/]<script>\u202e", "blanks": " a  b "}.items():
        keep(f"places/{name}", text.encode())
    keep("claims-command/overall.json", (SEEDS / "record" / "overall.json").read_bytes())
    _models(keep)
    _searches(keep)


def _models(keep: Keep) -> None:
    models = SEEDS / "model"
    for name in ("config.json", "model.safetensors", "known.arrow", "items.arrow"):
        keep(f"blend-command/{name}", (models / "blend" / name).read_bytes())
    keep("base-command/config.json", (models / "vectors" / "config.json").read_bytes())
    keep("base-command/plain.npz", (SEEDS / "vectors-npz" / "plain.npz").read_bytes())
    keep("base-command/users.parquet", (SEEDS / "vectors-parquet" / "users.parquet").read_bytes())
    asked = parse("auc-ns")
    trained = {
        "method": asked.label,
        "sampler": described(asked.sampler),
        "objective": described(asked.objective),
        "settings": asdict(Settings(epochs=1)),
    }
    infos = {
        "mf": ("vectors", trained | {"encoder": describe_encoder(MF(dim=4))}),
        "lightgcn": ("vectors", trained | {"encoder": describe_encoder(LightGCN(dim=4))}),
        "ease": ("dense", EASE().description()),
        "itemknn": ("sparse", ItemKNN().description()),
        "popular": ("counts", Popular().description()),
        "blend": ("blend", Blend((EASE(), ItemKNN()), (1.0, 1.0)).description()),
    }
    for name, (kind, info) in infos.items():
        config = json.loads((models / kind / "config.json").read_text())
        keep(f"update-command/{name}.json", json.dumps(config | {"info": info}).encode())


def _searches(keep: Keep) -> None:
    """Two trials of three, so that a command goes on from here; of the version 0, which it is told to be."""
    with tempfile.TemporaryDirectory() as place, patch.object(evenhand, "__version__", "0"):
        folder = Path(place)
        (folder / "log.csv").write_text(LOG)

        def search(out: str, metric: str, *more: str) -> Path:
            run(
                "tune",
                folder / "log.csv",
                *SEARCH,
                "--trials",
                2,
                "--metric",
                metric,
                *more,
                "--out",
                folder / out,
            )
            return folder / out

        for name, metric in {"accuracy-and-ohr": "ndcg@3,ohr@3", "one": "ndcg@3"}.items():
            keep(f"search-journal/{name}.log", (search(name, metric) / "trials.log").read_bytes())
        begun = (folder / "one" / "trials.log").read_bytes().splitlines(keepends=True)[:-1]
        keep("search-journal/begun.log", b"".join(begun))
        database = folder / "trials.db"
        search("three", "ndcg@3", "--storage", f"sqlite:///{database}")
        with contextlib.closing(sqlite3.connect(database)) as opened:
            opened.execute("PRAGMA page_size = 512")
            opened.execute("VACUUM")
        keep("search-database/plain.db", database.read_bytes())
        keep("search-database/cells.json", b'{"studies.study_name": "itemknn"}')
