"""Whether what was found on ML-100K serves ML-1M: the weight decay of a method, and a tenth of it.

    python benchmarks/carried_decay.py FOLDER macr cause --encoder mf

FOLDER holds `ml-1m/` with the authors' split. One seed trains without a tenth of train until precision@5 on
that tenth has not risen for 20 epochs, which is also how `evenhand reproduce --until 20` finds its epochs.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from evenhand.data.splits import Split, held_out_share
from evenhand.methods import parse
from evenhand.paper.experiment import Experiment, load_published_split, recipe
from evenhand.paper.published import tuned_for
from evenhand.training.run import train
from evenhand.training.trained import Trained

options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
options.add_argument("folder")
options.add_argument("methods", nargs="+", help="macr, cause, samreg, bc-loss")
options.add_argument("--encoder", default="mf", choices=["mf", "lightgcn"])
options.add_argument("--device", default="auto")
given = options.parse_args()

whole = load_published_split("ml-1m", given.folder, "paper")
rest, held = held_out_share(whole.train, 0.1)
split = Split(rest, held, whole.test.take(np.zeros(len(whole.test), dtype=bool)), "a tenth of train")
for method in given.methods:
    found = tuned_for("ml-100k", "mf", method)
    assert found is not None, f"{method} was not tuned on ML-100K"
    row = recipe(Experiment("overall", "ml-1m", given.encoder, epochs=300), method).method.components()
    one = parse(method, shared=found.own)
    assert isinstance(one, Trained)
    for decay in (found.weight_decay, found.weight_decay / 10):
        how = replace(row["settings"], batch=found.batch, lr=found.lr, weight_decay=decay, patience=20)
        seen: list[float] = []
        train(
            split,
            row["encoder"],
            one.sampler,
            [0],
            how,
            device=given.device,
            objective=one.objective,
            stop_on=("precision", 5),
            on_epoch=lambda _epoch, _last, log, seen=seen: seen.append(log["metrics"]["precision@5"][0]),
        )
        print(
            f"{given.encoder} {method} weight decay {decay:g}: {max(seen):.4f} in {len(seen)} epochs",
            flush=True,
        )
