"""Iterations of implicit's BPR or ALS, on request. Run by the driver, not by hand.

Only the iterations are timed, by implicit's own callback: copying the matrix and the first random vectors,
which come with every call of `fit`, are left out.
"""

import importlib.metadata
import json
import sys

import numpy as np
import scipy.sparse as sp
from answers import outlet, serve


def matrix(path: str) -> sp.csr_matrix:
    pairs = np.load(path)
    users, items = pairs["train_users"], pairs["train_items"]
    return sp.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=tuple(pairs["shape"]))


def model(asked: dict, iterations: int):
    from implicit.als import AlternatingLeastSquares
    from implicit.bpr import BayesianPersonalizedRanking

    same = {"factors": asked["dim"], "num_threads": asked["threads"], "random_state": 0}
    if asked["kind"] == "als":
        return AlternatingLeastSquares(
            iterations=iterations, regularization=asked["l2"], alpha=1 + asked["alpha"], **same
        )
    return BayesianPersonalizedRanking(iterations=iterations, learning_rate=0.01, **same)


def main() -> None:
    say = outlet()
    asked = json.loads(sys.argv[1])
    pairs = matrix(asked["pairs"])
    iterations = 15

    def epochs() -> tuple[int, float]:
        nonlocal iterations
        took: list[float] = []
        model(asked, iterations).fit(
            pairs, show_progress=False, callback=lambda _, seconds, *more: took.append(seconds)
        )
        if sum(took) < asked["at_least"]:  # the first call only warms up, so that later ones are long enough
            iterations = min(1000, 1 + int(1.2 * iterations * asked["at_least"] / sum(took)))
        return len(took), sum(took)

    versions = {name: importlib.metadata.version(name) for name in ("implicit", "numpy", "scipy")}
    serve(say, versions, epochs)


if __name__ == "__main__":
    main()
