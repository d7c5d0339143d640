"""A small model with random vectors, for tests of what is done with models."""

import pyarrow as pa
import torch

from evenhand.data.interactions import Interactions
from evenhand.models.factors import FactorModel
from evenhand.testing import corner_cases


def model(kind: str, seed: int = 1) -> FactorModel:
    """Nine users (one has every item, one all but the fourth, one none), twelve items, seeds 7, 3 and 11."""
    log = corner_cases()
    if kind == "string":
        log = Interactions.from_pairs(
            log.users,
            log.items,
            user_ids=pa.array([f"u{i:02}" for i in range(9)]),
            item_ids=pa.array([f"ä{i:02}" for i in range(12)]),
        )
    else:
        log = Interactions.from_pairs(
            log.users,
            log.items,
            user_ids=pa.array(range(100, 109), pa.int64()),
            item_ids=pa.array(range(0, 120, 10), pa.int64()),
        )
    g = torch.Generator().manual_seed(seed)
    return FactorModel(
        torch.randn(3, 9, 4, generator=g),
        torch.randn(3, 12, 4, generator=g),
        known=log,
        seeds=(7, 3, 11),
        best=1,
        info={"method": "dns", "settings": {"lr": 0.01}},
        metrics={
            "5": {"precision": {"mean": 0.25, "std": 0.01, "values": [0.24, 0.25, 0.26]}},
            "10": {
                "precision": {"mean": 0.2, "std": None, "values": [0.2]},
                "ohr": {"mean": None, "std": None},
            },
        },
        history=({"epoch": 1, "loss": [0.1, 0.2, 0.3]},),
    )
