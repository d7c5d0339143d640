"""Does a metric corrected for exposure order methods as an unbiased test does, better than the plain one?

    python benchmarks/exposure_correction.py --data-dir FOLDER --sets demo,coat,ml-100k,amazon-electronic

Every method is fitted to train. Truth is its recall@20 (NDCG@10) on a test whose items were not drawn by popularity:
demo's and Coat's random exposure, a popularity-shift split of ML-100K, the published one of Amazon-Electronic. The
estimates come from a random tenth of the biased log. Printed: Kendall's tau of estimate and truth over the methods,
with 95 % intervals from a bootstrap over users, and that of the gain over the plain metric.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import evenhand as eh
from evenhand.data.datasets.load import demo_simulation, load_split
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, given_split
from evenhand.methods import parse
from evenhand.metrics.slots import power_law_exponent, propensities
from evenhand.models.topk import top_by

CLOSED = (
    "popular",
    *(f"itemknn:item_exponent={e}:shrink={s}" for e in (0, 0.25, 0.5, 0.75, 1) for s in (0, 10)),
    *("itemknn:neighbours=10", "itemknn:neighbours=all", "itemknn:user_exponent=0.5", "itemknn:power=2"),
    *("als:factors=32:iterations=8", "als:factors=32:iterations=8:alpha=20", "als:factors=32:iterations=8:l2=300"),
)
EASES = tuple(f"ease:l2={l2}:balance={b}" for l2 in (50, 400, 2000) for b in (0, 0.5, 1))
TRAINED = ("rns", "pns", "dns", "auc-ns")
DRAWS = 400
EXPONENTS = {"plain": 0.0, "½": 0.5, "1": 1.0, "Yang": None}


def split_of(name: str, folder: Path) -> Split:
    """Validation is a random part of the biased log; test is not biased."""
    if name == "demo":
        world = demo_simulation()
        return Split(world.split.train, world.split.validation, world.uniform_test, "demo")
    if name == "coat":
        # All that was shown is in the file; what counts is what was liked.
        return load_split("coat", folder, test_part="randomised", validation=0.1, validation_how="random", min_rating=4)
    if name == "ml-100k":
        return eh.load_dataset(name, folder).split(how="popularity-shift", validation_how="random")
    train, test = (
        eh.Interactions.read(folder / f"{name}-popularity-shift" / f"{part}.txt") for part in ("train", "test")
    )
    return given_split(train, test, validation=0.1, validation_how="random")


def sums(
    top: np.ndarray, users: np.ndarray, part: Interactions, weight: np.ndarray, k: int, discounted: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Numerator and denominator of every user, zero for users without a pair in the part."""
    shown = top[:, :k]
    hits = part.contains(np.repeat(users, k), shown.ravel()).reshape(shown.shape) & (shown >= 0)
    gains = hits / np.log2(np.arange(2, k + 2)) if discounted else hits.astype(np.float64)
    above = (gains / weight[np.maximum(shown, 0)]).sum(axis=1)
    return above, np.bincount(part.users, weights=1 / weight[part.items], minlength=len(users))


def measured(name: str, split: Split) -> dict[str, np.ndarray]:
    """For one method: the sums of every estimate, and of the truth."""
    fitted = parse(name).fit(split, seeds=1, k=(10,), device="cpu")
    users, counts = np.arange(split.n_users), split.train.popularity
    top = top_by(fitted.scorers[0], split.n_items, users, 20, exclude=split.train)[0]
    assert split.validation is not None
    found = {}
    for metric, k, discounted in (("recall@20", 20, False), ("DCG@10", 10, True)):
        ones = np.ones(split.n_items)
        found[f"truth {metric}"] = np.array(sums(top, users, split.test, ones, k, discounted))
        for label, exponent in EXPONENTS.items():
            weight = propensities(counts, exponent)
            found[f"{label} {metric}"] = np.array(sums(top, users, split.validation, weight, k, discounted))
    return found


def taus(estimates: np.ndarray, truths: np.ndarray) -> np.ndarray:
    """[draws]: Kendall's tau-b over the last axis."""
    a, b = (np.sign(x[..., :, None] - x[..., None, :]) for x in (estimates, truths))
    return (a * b).sum((-1, -2)) / np.sqrt(np.abs(a).sum((-1, -2)) * np.abs(b).sum((-1, -2)))


def value(columns: np.ndarray, weights: np.ndarray, pooled: bool) -> np.ndarray:
    """[draws, methods] of columns [methods, 2, users]: a mean over users, or one ratio of all pairs."""
    above, below = columns[:, 0], columns[:, 1]
    if pooled:
        return (weights @ above.T) / (weights @ below.T)
    there = below > 0
    each = np.divide(above, below, out=np.zeros_like(above), where=there)
    return (weights @ each.T) / (weights @ there.T)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--data-dir", type=Path, default=Path("data"))
    options.add_argument("--sets", default="demo,coat,ml-100k,amazon-electronic")
    options.add_argument("--trained", action="store_true", help="also methods that are trained, which takes minutes")
    asked = options.parse_args()
    generator = np.random.default_rng(0)
    print("| data | methods | metric | estimate | tau | 95 % | gain over plain | 95 % |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.sets.split(","):
        began = time.perf_counter()
        folder = asked.data_dir if name.startswith("amazon") else asked.data_dir / name
        split = split_of(name, folder)
        methods = CLOSED + (() if split.n_items > 4000 else EASES) + (TRAINED if asked.trained else ())
        found = [measured(one, split) for one in methods]
        weights = np.vstack([np.ones(split.n_users), generator.poisson(1.0, (DRAWS, split.n_users))])
        for metric in ("recall@20", "DCG@10"):
            columns = {label: np.stack([one[f"{label} {metric}"] for one in found]) for label in ("truth", *EXPONENTS)}
            truth = value(columns["truth"], weights, pooled=False)
            plain = taus(value(columns["plain"], weights, pooled=False), truth)
            for label in EXPONENTS:
                for pooled in (False, True):
                    tau = taus(value(columns[label], weights, pooled), truth)
                    low, high = np.quantile(tau[1:], (0.025, 0.975))
                    gain_low, gain_high = np.quantile((tau - plain)[1:], (0.025, 0.975))
                    how = ", pooled" if pooled else ""
                    print(
                        f"| {name} | {len(methods)} | {metric} | {label}{how} "
                        f"| {tau[0]:+.2f} | {low:+.2f} to {high:+.2f} "
                        f"| {tau[0] - plain[0]:+.2f} | {gain_low:+.2f} to {gain_high:+.2f} |",
                        flush=True,
                    )
        law = power_law_exponent(split.train.popularity)
        print(f"<!-- {name}: exponent {(law + 1) / 2:.2f}, {time.perf_counter() - began:.0f} s -->", flush=True)


if __name__ == "__main__":
    main()
