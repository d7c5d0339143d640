"""Our ALS against that of the `implicit` package, on the same pairs with the same numbers.

    python benchmarks/als.py TRAIN --other PYTHON [--solver cg] [--rounds 3] [--factors 128] [--threads 2]

PYTHON is the interpreter of an environment of its own, with implicit (`pip install implicit==0.7.3`).
The two take turns, so that other work on the machine slows both, and the best of the rounds counts; what is
compiled is compiled before. Printed are seconds, the ratio theirs / ours with the same solver (exact, or what
is the default of both, three steps of conjugate gradients), and the value that each reaches of the loss that
both minimise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import evenhand as eh
from evenhand.baselines import ALS

THEIRS = """
import json, sys, time
import implicit, numpy as np, scipy.sparse as sp
folder, factors, iterations, alpha, l2, threads, cg = json.loads(sys.argv[1])
z = np.load(folder + "/train.npz")
X = sp.csr_matrix((np.ones(len(z["items"]), np.float32), z["items"], z["indptr"]), shape=tuple(z["shape"]))
model = implicit.als.AlternatingLeastSquares(factors=factors, regularization=l2, alpha=1 + alpha, use_cg=cg,
    iterations=iterations, num_threads=threads, random_state=0)
began = time.perf_counter()
model.fit(X, show_progress=False)
seconds = time.perf_counter() - began
np.savez(folder + "/theirs.npz", users=model.user_factors, items=model.item_factors)
print(json.dumps([seconds, implicit.__version__]))
"""


def loss(users: np.ndarray, items: np.ndarray, train: eh.Interactions, baseline: ALS) -> float:
    """The objective of `ALS`, summed over all cells without visiting them."""
    users, items = users.astype(np.float64), items.astype(np.float64)
    scores = np.concatenate(
        [
            (users[train.users[part]] * items[train.items[part]]).sum(1)
            for part in np.array_split(np.arange(len(train)), 1 + len(train) // 100_000)
        ]
    )
    everywhere = float(np.sum((users.T @ users) * (items.T @ items)))
    seen = float(np.sum((1 + baseline.alpha) * (1 - scores) ** 2 - scores**2))
    return everywhere + seen + baseline.l2 * float(np.sum(users**2) + np.sum(items**2))


def our_run(train: eh.Interactions, baseline: ALS) -> tuple[float, float]:
    """(seconds, loss)"""
    began = time.perf_counter()
    fitted = baseline.fit_pairs(train)
    seconds = time.perf_counter() - began
    return seconds, loss(*(side[0].numpy() for side in fitted.vectors), train, baseline)


def their_run(train: eh.Interactions, baseline: ALS, other: str, threads: int, folder: str) -> tuple[float, float, str]:
    """(seconds, loss, version)"""
    arguments = [
        folder,
        baseline.factors,
        baseline.iterations,
        baseline.alpha,
        baseline.l2,
        threads,
        baseline.steps > 0,
    ]
    # Its BLAS would otherwise start threads within its own threads.
    answer = subprocess.run(
        [other, "-c", THEIRS, json.dumps(arguments)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    seconds, version = json.loads(answer.stdout)
    found = np.load(Path(folder) / "theirs.npz")
    return seconds, loss(found["users"], found["items"], train, baseline), version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--other", required=True, help="python of the environment with implicit")
    parser.add_argument("--solver", choices=("cg", "exact"), default="cg")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--factors", type=int, default=ALS.factors)
    parser.add_argument("--iterations", type=int, default=ALS.iterations)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()

    torch.set_num_threads(asked.threads)
    train = eh.Interactions.read(asked.train)
    steps = ALS.steps if asked.solver == "cg" else 0
    baseline = ALS(factors=asked.factors, iterations=asked.iterations, steps=steps)
    print(f"{train}; {baseline}; {asked.threads} threads")
    replace(baseline, iterations=1).fit_pairs(train)
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        shape = [train.n_users, train.n_items]
        np.savez(Path(folder) / "train.npz", items=train.items, indptr=train.indptr, shape=shape)
        for _ in range(asked.rounds):
            ours.append(our_run(train, baseline))
            theirs.append(their_run(train, baseline, asked.other, asked.threads, folder))
            ratio = theirs[-1][0] / ours[-1][0]
            print(f"ours {ours[-1][0]:6.2f} s   implicit {theirs[-1][0]:6.2f} s   ratio {ratio:.2f}", flush=True)
    mine, other = (min(run[0] for run in runs) for runs in (ours, theirs))
    print(f"best of {asked.rounds}: ours {mine:.2f} s, implicit {other:.2f} s, ratio {other / mine:.2f}")
    print(f"loss: ours {ours[0][1]:,.1f}, implicit {theirs[0][1]:,.1f}")
    print(f"{platform.machine()}, torch {torch.__version__}, evenhand {eh.__version__}, implicit {theirs[0][2]}")


if __name__ == "__main__":
    main()
