"""What share of the sampled negatives is hot, and what share is false: two rows of the paper's β table.

.venv/bin/python benchmarks/claims/beta_diagnostics.py FOLDER

FOLDER holds the authors' split of ML-100K (`paper_train.csv`, `paper_test.csv`). MF is trained with the
paper's settings in a plain loop around the sampler, and its negatives are counted in three ways in three
stretches of the run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import evenhand as eh
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.paper.published import cells

BATCH, DIM, LR, DECAY, MILESTONE = 128, 32, 0.1, 1e-4, 20


@dataclass(frozen=True)
class Shares:
    """Hot and false share of negatives, counted over all drawn, over users alike, over distinct pairs."""

    hot: float
    false: float
    hot_user: float
    false_user: float
    hot_distinct: float
    false_distinct: float


def count(users: np.ndarray, items: np.ndarray, hot: np.ndarray, held_out: np.ndarray) -> Shares:
    """Shares of one epoch's negatives; `held_out` are the sorted keys user · n_items + item of test."""
    keys = users.astype(np.int64) * len(hot) + items
    is_hot, is_false = hot[items], np.isin(keys, held_out)
    drawn = np.bincount(users)
    some = drawn > 0

    def over_users(what: np.ndarray) -> float:
        return float((np.bincount(users, what)[some] / drawn[some]).mean())

    _, first = np.unique(keys, return_index=True)
    return Shares(
        hot=float(is_hot.mean()),
        false=float(is_false.mean()),
        hot_user=over_users(is_hot),
        false_user=over_users(is_false),
        hot_distinct=float(is_hot[first].mean()),
        false_distinct=float(is_false[first].mean()),
    )


def negatives_by_epoch(
    split: Split, sampler: eh.AUCSampler, epochs: int, lr: float = LR, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Users and sampled items of every epoch of BPR with Adam, the learning rate a tenth after epoch 20."""
    generator = torch.Generator().manual_seed(seed)
    bound = sampler.bind(split.train)
    users, items = (torch.from_numpy(a.astype(np.int64)) for a in (split.train.users, split.train.items))
    tables = [
        (torch.randn(n, DIM, generator=generator) * (2 / (n + DIM)) ** 0.5).requires_grad_()
        for n in (split.n_users, split.n_items)
    ]
    optimiser = torch.optim.Adam(tables, lr=lr, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [MILESTONE])
    for _ in range(epochs):
        order = torch.randperm(len(users), generator=generator)
        seen, drawn = [], []
        for chosen in order.split(BATCH)[: len(users) // BATCH]:
            u = users[chosen]
            negative = bound.sample(u, tables[0], tables[1], generator=generator).squeeze(1)
            difference = ((tables[1][items[chosen]] - tables[1][negative]) * tables[0][u]).sum(1)
            optimiser.zero_grad()
            torch.nn.functional.softplus(-difference).mean().backward()
            optimiser.step()
            seen.append(u)
            drawn.append(negative)
        schedule.step()
        yield torch.cat(seen).numpy(), torch.cat(drawn).numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--betas", type=float, nargs="+", default=[0.0005, 0.01, 0.1])
    parser.add_argument("--lr", type=float, default=LR)
    parser.add_argument("--hot", default="paper", help="the rule for hot items: paper or honest")
    given = parser.parse_args()
    split = eh.given_split(*(eh.Interactions.read(given.folder / f"paper_{p}.csv") for p in ("train", "test")))
    hot = HotRule.parse(given.hot).mask(split)
    stretches = {
        "epoch 1": slice(0, 1),
        f"epochs 1–{MILESTONE}": slice(0, MILESTONE),
        f"epochs {MILESTONE + 1}–{given.epochs}": slice(MILESTONE, None),
    }
    print("β       stretch        hot / false: all drawn   users alike       distinct pairs    paper")
    for beta in given.betas:
        published = {c.metric: c.text for c in cells("beta", setting=beta)}
        sampler = eh.AUCSampler(beta=beta, ecdf=64)
        rows = [
            count(u, i, hot, split.test.keys) for u, i in negatives_by_epoch(split, sampler, given.epochs, given.lr)
        ]
        for name, stretch in stretches.items():
            if not rows[stretch]:
                continue
            mean = np.mean([list(vars(row).values()) for row in rows[stretch]], axis=0)
            shown = "   ".join(f"{mean[n]:.4f} / {mean[n + 1]:.4f}" for n in (0, 2, 4))
            paper = f"{published['hot_share']} / {published['false_share']}"
            print(f"{beta:<7g} {name:14} {'':11}{shown}   {paper}", flush=True)


if __name__ == "__main__":
    main()
