"""FairStatic with its groups drawn along two lines: hot by train counts, and hot as in the paper's metrics.

    python benchmarks/fairstatic_groups.py FOLDER ml-100k mf --seeds 3

The second line counts test pairs too, so nobody should train with it; it is here to find out whether the
paper did. All is as in `evenhand reproduce overall`, but for the groups and for `--share`, the share of hot
negatives (without it, that of the interactions).
"""

from __future__ import annotations

import argparse

import numpy as np

from evenhand.data.popularity import HotRule
from evenhand.paper.experiment import Experiment, load_published_split, recipe
from evenhand.samplers.static import GroupSampler
from evenhand.training.run import train

SHOWN = ("precision", "ndcg", "ohr", "ocr", "uhr", "ucr")

options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
options.add_argument("folder", help="holds ml-100k/ and ml-1m/ with the authors' split")
options.add_argument("dataset", choices=["ml-100k", "ml-1m"])
options.add_argument("encoder", choices=["mf", "lightgcn"])
options.add_argument("--lines", nargs="+", default=["honest", "paper"], help="hot rules")
options.add_argument("--share", type=float, help="of hot negatives")
options.add_argument("--settings", choices=["paper", "released"], default="paper")
options.add_argument("--seeds", type=int, default=3)
options.add_argument("--epochs", type=int, default=100)
options.add_argument("--device", default="auto")
options.add_argument("--every", type=int, default=0, help="show each so many epochs")


def main() -> None:
    given = options.parse_args()
    split = load_published_split(given.dataset, given.folder, "paper")
    experiment = Experiment("overall", given.dataset, given.encoder, settings=given.settings, epochs=given.epochs)
    row = recipe(experiment, "fairstatic")
    assert row.encoder is not None
    for line in given.lines:
        groups = tuple(HotRule.parse(line).mask(split).astype(int).tolist())
        shares = "interactions" if given.share is None else (1 - given.share, given.share)

        def show(epoch: int, last: int, log: dict[str, dict[str, list[float]]]) -> None:
            if given.every and epoch % given.every == 0:
                seen = " ".join(f"{name} {np.mean(log['metrics'][f'{name}@5']):.4f}" for name in SHOWN)
                print(f"  epoch {epoch}: {seen}", flush=True)

        fitted = train(
            split, row.encoder, GroupSampler(groups, shares), given.seeds, row.settings,
            protocol="paper", device=given.device, ks=(5,), on_epoch=show,
        )  # fmt: skip
        means = {name: np.mean([one.metrics[name] for one in fitted.results[5]]) for name in SHOWN}
        message = " ".join(f"{name} {mean:.4f}" for name, mean in means.items())
        print(f"hot by '{line}', {sum(groups)} items: {message}; epochs {fitted.epochs}", flush=True)


if __name__ == "__main__":
    main()
