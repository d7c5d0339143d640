"""Most popular: everyone gets the items that most users have, or have had of late. The floor a method must clear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from evenhand.baselines.base import Baseline, check_number
from evenhand.data.interactions import Interactions
from evenhand.models.item_weights import CountTable, ItemWeightModel
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class Popular(Baseline):
    """`s(u, i) = Σ w` over the train pairs of the item; of equals, the lowest index comes first.

    Without a half-life every w is 1. With one `w = 2^-(share of all pairs that are newer / half_life)`: a tenth means
    that a pair counts half once a tenth of the log is newer than it, whatever the unit of its times.
    """

    half_life: float = 0
    """As a share of the log, for tests by time; 0 counts all pairs alike. 0.03 to 0.1 did best on two logs."""
    log: bool = False
    """Score by log(1 + s): the same lists, but on a scale on which popularity can be taken out of a blend."""

    def __post_init__(self) -> None:
        check_number("half_life", self.half_life, zero=True)
        if not isinstance(self.log, bool):
            raise InputError(f"log must be true or false, not {self.log}.")

    def fit_pairs(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> ItemWeightModel:
        weights = recency(train, self.half_life) if self.half_life else None
        counts = np.bincount(train.items, weights=weights, minlength=train.n_items)
        scores = torch.from_numpy(counts).double()
        return self.item_model(train, CountTable(scores.log1p() if self.log else scores))


def recency(train: Interactions, half_life: float) -> np.ndarray:
    """float64 [n_pairs]: `2^-(share of newer pairs / half_life)`; pairs of one moment weigh the same."""
    times = train.timestamps
    if times is None or np.isnan(times).any():
        raise InputError("a half_life needs the time of every pair; name its column with timestamp= or --timestamp.")
    newer = len(times) - np.searchsorted(np.sort(times), times, side="right")
    return np.asarray(np.exp2(-newer / (half_life * max(len(times), 1))))
