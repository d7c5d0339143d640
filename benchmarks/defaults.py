"""How far the defaults of trained methods are from what a search finds, on validation, on every data set at hand.

    python benchmarks/defaults.py DATA_DIR [--sets ml-100k,gowalla] [--methods rns,dns] [--trials 30] [--out FILE.json]

A default is what `evenhand compare` trains without options: what it leaves open (L2, temperature) is settled on
validation inside the fit. The search sees the same validation part, has `--trials` trials of one seed over lr, L2 and
the method's own parameters, and begins with the usual values. Both report validation NDCG@20; test is not looked at.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

from evenhand.data.interactions import Interactions
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, split_interactions
from evenhand.experiments.tune import tune
from evenhand.methods import parse
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Conditions
from evenhand.training.settings import Settings

LOGS = {
    "ml-100k": "ml-100k/paper_train.csv",
    "ml-1m": "ml-1m/paper_train.csv",
    "amazon-beauty": "amazon-beauty/log.csv",
    "amazon-electronic": "amazon-electronic/train.txt",
    "amazon-electronic-popularity-shift": "amazon-electronic-popularity-shift/train.txt",
    "gowalla": "gowalla/train.txt",
}
"""Train parts alone: what a published test holds is not read."""
K = 20


def splits(folder: Path, names: list[str]) -> Iterator[tuple[str, Split]]:
    for name in names:
        if not (folder / LOGS[name]).exists():
            print(f"{name}: not here")
            continue
        log: Interactions = read_interactions(folder / LOGS[name])
        how = "popularity-shift" if "shift" in name else "random"
        # The test part is as small as can be, as nothing looks at it.
        yield name, split_interactions(log, test=0.001, validation=0.1, how=how)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--sets", default=",".join(LOGS))
    asked.add_argument("--methods", default="rns,pns,dns,auc-ns,softmax")
    asked.add_argument("--encoder", default="mf")
    asked.add_argument("--trials", type=int, default=30)
    asked.add_argument("--batch", type=int, default=4096)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    rows = []
    for name, split in splits(given.folder, given.sets.split(",")):
        settings = Settings(batch=given.batch)
        for text in given.methods.split(","):
            began = time.perf_counter()
            conditions = Conditions.of(split, 1)
            fit = parse(text, given.encoder, settings).fit_under(conditions)
            seen = Evaluator(split.validation, split.train, conditions.hot_items, (K,))
            default = seen.evaluate(fit.scorers)[0][K].mean("ndcg")
            halfway = time.perf_counter()
            found = tune(
                split, text, given.encoder, trials=given.trials, settings=settings, seeds=1, metric=f"ndcg@{K}"
            )
            row = {
                "data": name,
                "method": text,
                "default": default,
                "searched": found.value,
                "share": default / max(found.value, default),
                "chosen": next((note for note in fit.notes if "was chosen by" in note), ""),
                "best": found.picked.parameters,
                "seconds": [round(halfway - began), round(time.perf_counter() - halfway)],
            }
            rows.append(row)
            print(
                f"{name:36} {text:10} default {default:.4f}, best of {given.trials} trials {found.value:.4f}: "
                f"{row['share']:.1%}  ({row['seconds'][0]} s, {row['seconds'][1]} s)  {row['chosen']}",
                flush=True,
            )
            if given.out:
                given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
