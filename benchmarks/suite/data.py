"""The data of the small sections: MovieLens-100K where there is a copy, else the simulated `demo`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import evenhand as eh
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split

PAPER_FILES = ("paper_train.csv", "paper_test.csv")
VARIABLE = "EVENHAND_ML100K"


@dataclass(frozen=True)
class Data:
    """A split and the words that say what it is."""

    split: Split
    words: str

    def shortened(self, step: int = 16) -> Data:
        """Every so many-th pair of train, to see that things work."""
        few = self.split.train.take(np.arange(len(self.split.train)) % step == 0)
        return Data(replace(self.split, train=few), f"{self.words}, shortened")

    def hot(self, rule: str) -> np.ndarray:
        """bool [n_items]: the popular items by the rule of a protocol."""
        return HotRule.parse(rule).mask(self.split)


def folder(asked: str | None) -> Path | None:
    """Where MovieLens-100K lies: as asked for, or as the environment says."""
    named = asked or os.environ.get(VARIABLE)
    if not named:
        return None
    found = Path(named).expanduser()
    if not found.is_dir():
        raise SystemExit(f"{found} is no folder; give the one with u.data or {' and '.join(PAPER_FILES)}.")
    return found


def demo() -> Data:
    return Data(eh.load_split("demo"), "demo")


def paper_split(place: Path | None) -> Data:
    """The published split; without its files a random one of u.data; without that, `demo`."""
    if place and all((place / name).is_file() for name in PAPER_FILES):
        train, test = (eh.Interactions.read(place / name) for name in PAPER_FILES)
        return Data(eh.given_split(train, test), "ML-100K, the paper's split")
    if place:
        log = eh.load_dataset("ml-100k", place, download=False)
        return Data(log.split(validation=0), "ML-100K, a random split (the paper's files are not there)")
    split = eh.load_dataset("demo").split(validation=0)
    return Data(split, f"demo (no ML-100K: set {VARIABLE} or --ml-100k)")


def honest_split(place: Path | None) -> Data:
    """Train, validation and test by the default split."""
    if place and (place / "u.data").is_file():
        return Data(eh.load_dataset("ml-100k", place, download=False).split(), "ML-100K, default split")
    if place:
        paper = paper_split(place).split
        return Data(paper.train.union(paper.test).split(), "ML-100K out of the paper's files, default split")
    return Data(eh.load_dataset("demo").split(), f"demo (no ML-100K: set {VARIABLE} or --ml-100k)")
