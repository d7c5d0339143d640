"""Going on with a trained model when newer logs come in: new users and items join, the rest is kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split, share_vocabulary
from evenhand.encoders import Encoder
from evenhand.models.factors import FactorModel
from evenhand.objectives import Objective
from evenhand.samplers import GroupSampler, Sampler
from evenhand.training.method import PLAIN, Fit, RunOptions
from evenhand.training.run import train
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError

VALIDATION = 0.1
"""The share of new pairs on which the update is stopped."""


def updated(
    model: FactorModel,
    new: Interactions,
    encoder: Encoder,
    sampler: Sampler,
    settings: Settings,
    *,
    objective: Objective,
    label: str | None = None,
    seed: int = 0,
    device: str = "auto",
    run: RunOptions = PLAIN,
) -> Fit:
    """Train the model further, on what it knew and on `new`.

    Users and items it did not know start at random; Adam starts afresh. A tenth of the new pairs decides
    when to stop, so `new` should be what came in since.
    """
    if isinstance(sampler, GroupSampler) and sampler.groups is not None:
        raise InputError("a model with a grouping of its own items cannot be updated; train it again.")

    parts, notes = share_vocabulary({"model": model.known, "new": new})
    known, newer = parts["model"], parts["new"]
    fresh = newer.take(~known.contains(newer.users, newer.items))
    if not len(fresh):
        raise InputError("the new data holds no pair that the model does not know already.")
    split = _hold_out(known, fresh, seed)
    users, items = model.tables or model.vectors
    start = (
        _moved(users, model.known.user_ids, split.train.user_ids),
        _moved(items, model.known.item_ids, split.train.item_ids),
    )
    fitted = train(
        split,
        encoder,
        sampler,
        model.seeds,
        settings,
        objective=objective,
        label=label,
        device=device,
        on_epoch=run.on_epoch,
        start=start,
        checkpoints=run.checkpoints,
        resume="matching",
    )
    return replace(fitted, notes=(*notes, *fitted.notes))


def _hold_out(known: Interactions, fresh: Interactions, seed: int) -> Split:
    held = np.random.Generator(np.random.PCG64(seed)).permutation(len(fresh)) < VALIDATION * len(fresh)
    nothing = fresh.take(np.zeros(len(fresh), dtype=bool))
    return Split(
        train=known.union(fresh.take(~held)),
        validation=fresh.take(held) if held.any() else None,
        test=nothing,
        description=f"an update with {len(fresh):,} new pairs, a tenth of them for validation",
    )


def _moved(table: Tensor, old_ids: pa.Array, new_ids: pa.Array) -> Tensor:
    """The rows of the old ids at their place among the new ids; rows of new ids are nan."""
    place = pc.index_in(old_ids.cast(new_ids.type), value_set=new_ids).to_numpy()
    moved = torch.full((table.shape[0], len(new_ids), table.shape[2]), torch.nan)
    moved[:, torch.from_numpy(place.astype(np.int64))] = table.to(moved.dtype)
    return moved
