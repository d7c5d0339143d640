#!/usr/bin/env python3
"""One night: yesterday's log to a new model, checked against the one that serves, swapped in, and its lists written.

    python nightly.py SHOP purchases-2024-05-01.parquet --date 2024-05-01 --items items.parquet \\
        --database postgresql://shop@db.example/shop

SHOP is a folder that only this script writes to:

    history/DATE/   train.parquet and test.parquet: the day's pairs, a tenth of them held out to check the new model
    models/DATE/    the model that knows the day's train part, and all pairs of the days before
    lists/DATE.parquet      its lists
    audits/DATE.html, .json what they are like, beside lists of the model that served until now
    live            a link to the model that serves: `evenhand serve SHOP/live` follows it

Whatever is killed, start it again with the same arguments: finished steps are passed over, and `live` names a whole
model at every moment. Exit code 1: the new model did worse than a gate allows, and the older one stays; the model, its
lists and the audit are there to look at. It needs nothing but Python and the command `evenhand`; copy it and change it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

GATES = (
    "today.ndcg@{k}<0.9*before.ndcg@{k}",
    "today.coverage@{k}<0.8*before.coverage@{k}",
    "today.top_tenth_share@{k}>1.2*before.top_tenth_share@{k}",
)
"""Compared with the model that serves: a tenth less accurate, a fifth fewer items shown, a fifth more for the hits."""


def evenhand(*arguments: object) -> None:
    """`evenhand ARGUMENTS…`; what goes wrong there ends the night with the same exit code."""
    ended = subprocess.run(["evenhand", *map(str, arguments), "--quiet"], check=False)
    if ended.returncode:
        sys.exit(ended.returncode)


def linked(files: dict[str, Path], folder: Path) -> Path:
    """A folder that holds these files under other names, made from nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, file in files.items():
        os.link(file, folder / name)
    return folder


def swap(link: Path, target: Path) -> None:
    """The link names the target from one moment to the next."""
    aside = link.with_name(f".{link.name}.new")
    aside.unlink(missing_ok=True)
    aside.symlink_to(os.path.relpath(target, link.parent))
    os.replace(aside, link)


class Night:
    """The steps, each of which leaves one thing, whole or not at all."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, shop, date = asked, Path(asked.shop), asked.date
        self.work, self.live = shop / "work", shop / "live"
        self.history, self.day = shop / "history", shop / "history" / date
        self.model, self.lists = shop / "models" / date, shop / "lists" / f"{date}.parquet"
        self.audit = shop / "audits" / date
        for folder in (self.history, self.model.parent, self.lists.parent, self.audit.parent, self.work):
            folder.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        if self.serving() != self.model.name:
            self.read_day()
            self.make_model()
            self.make_lists()
            self.check()
            swap(self.live, self.model)
        self.publish()
        self.tidy()

    def serving(self) -> str | None:
        return Path(os.readlink(self.live)).name if self.live.is_symlink() else None

    def read_day(self) -> None:
        if not self.day.exists():
            parts = ("--test-share", 0.1, "--validation-share", 0, "--to", "parquet")
            evenhand("data", "split", self.asked.log, "--out", self.day, *parts, *shlex.split(self.asked.read))

    def log(self, days: int | None = None) -> Path:
        """What a model may know: all pairs of the days before, or of the last few, and this day's train part."""
        before = sorted(day for day in self.history.iterdir() if day.name < self.day.name)
        before = before if days is None else before[max(0, len(before) - days) :]
        parts = [(day, part) for day in before for part in ("train", "test")] + [(self.day, "train")]
        files = {f"{day.name}-{part}.parquet": day / f"{part}.parquet" for day, part in parts}
        return linked(files, self.work / "log")

    def make_model(self) -> None:
        if (self.model / "config.json").exists():
            return
        new_items = () if self.asked.items is None else ("--new-items", self.asked.items)
        if self.serving() is not None and not self.asked.retrain:
            # The day before is given again for the tenth that was held out of it; what is known does no harm.
            evenhand("update", self.live, self.log(days=1), *new_items, "--out", self.model, "--force")
            return
        how = (
            ("--method", self.asked.method)
            if self.asked.method
            else ("--recipe", "best", "--budget", self.asked.budget)
        )
        out = self.work / "trained" if new_items else self.model
        begun = (out / ".checkpoints").is_dir()  # by a night that was killed
        evenhand("train", self.log(), *how, "--out", out, "--resume" if begun else "--force")
        if new_items:
            evenhand("update", out, *new_items, "--out", self.model, "--force")

    def make_lists(self) -> None:
        if not self.lists.exists():
            evenhand("recommend", self.model, "-k", self.asked.k, "--out", self.lists)

    def check(self) -> None:
        """Gates look at the held-out tenth of the day, which neither model has seen."""
        recs, gates = ["--recs", f"today={self.lists}"], []
        if self.serving() is not None:
            before = self.work / "before.parquet"
            # On equal terms: for the users of the new model, and without what they have taken since.
            terms = ("--users", self.lists, "--fallback", "--exclude-pairs", self.log(days=1))
            evenhand("recommend", self.live, "-k", self.asked.k, *terms, "--out", before, "--force")
            recs += ["--recs", f"before={before}"]
            for gate in self.asked.gate or GATES:
                gates += ["--fail-if", gate.format(k=self.asked.k)]
        files = ("--out", f"{self.audit}.html", "--save", f"{self.audit}.json", "--force")
        known = ("--train", self.log(), "--test", self.day / "test.parquet")
        evenhand("audit", *known, *recs, "--k", self.asked.k, *gates, *files)

    def publish(self) -> None:
        """In one transaction: whoever reads the table sees the older lists or the new ones."""
        if self.asked.database is not None:
            into = ("--out", self.asked.database, "--table", self.asked.table, "--force")
            evenhand("recommend", self.live, "-k", self.asked.k, *into)

    def tidy(self) -> None:
        there = sorted(self.model.parent.iterdir())
        hidden = [one for one in there if one.name.startswith(".")]  # of commands that were killed
        older = [one for one in there if one not in hidden and one.name != self.serving()]
        for model in hidden + older[: max(0, len(older) + 1 - self.asked.keep)]:
            os.replace(model, self.work / f"removed-{model.name}")  # so that no half of it is ever among the models
        shutil.rmtree(self.work)
        print(json.dumps({"live": self.serving(), "lists": str(self.lists), "audit": f"{self.audit}.html"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("shop", help="the folder described above")
    parser.add_argument("log", help="yesterday's interactions: parquet, csv, a folder, s3://…")
    parser.add_argument("--date", required=True, help="the day they are of; later days sort behind earlier ones")
    parser.add_argument("--read", default="", help="how to read them: '--user customer --item sku --weight qty'")
    parser.add_argument("--items", help="a file of items with attributes: new ones are recommended too")
    parser.add_argument("--retrain", action="store_true", help="train on the whole history instead of updating")
    parser.add_argument("--method", help="for training; else the recipe, within --budget")
    parser.add_argument("--budget", default="30m", help="time for training: 90s, 30m, 2h")
    parser.add_argument("--gate", action="append", help="in place of the usual ones; systems are today and before")
    parser.add_argument("--k", type=int, default=20, help="length of the lists")
    parser.add_argument("--database", help="postgresql://USER@HOST/DATABASE; the password from ~/.pgpass or PGPASSWORD")
    parser.add_argument("--table", default="recommendations")
    parser.add_argument("--keep", type=int, default=7, help="how many models stay, to go back to")
    asked = parser.parse_args()
    Path(asked.shop).mkdir(parents=True, exist_ok=True)
    with (Path(asked.shop) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second night waits for the first
        Night(asked).run()


if __name__ == "__main__":
    main()
