"""Fold-in: vectors for users who were not in the training data, from their interactions, without training.

The item vectors stay fixed. A user's vector solves a small linear system whose matrix is the same for all users, so
that a thousand new users cost one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.id_lookup import listed, positions
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

RIDGE = 10.0
"""Weight of the vector's length; chosen on three data sets (see docs/models.md); 3 to 30 does nearly as well."""


Factors = tuple[Tensor, Tensor]
"""A matrix as `torch.linalg.lu_factor` gives it: triangular factors and pivots."""


def user_vectors(item_vectors: Tensor, history: Interactions, of_items: Sequence[Factors] | None = None) -> Tensor:
    """float32 [R, n_users, d]: the vectors that suit each user's items best, with the items fixed.

    x_u minimises  −2 x·m_u + mean_i (x·q_i)² + λ s |x|²:  a high score for m_u, the mean of the user's
    items, low ones over the whole catalogue, and a short vector. So  x_u = (QᵀQ / n + λ s I)⁻¹ m_u, where
    s, the mean square of an entry of Q, makes λ independent of the vectors' scale. It is a step of
    implicit ALS in which the catalogue outweighs the user's own few items. `of_items` are the `systems` of the
    item vectors, if the caller has cached them: a single user then costs nothing that grows with the catalogue.
    """
    seen, place = np.unique(history.items, return_inverse=True)
    bags = torch.from_numpy(place), torch.from_numpy(history.indptr[:-1])
    found = []
    for items, system in zip(item_vectors, of_items or systems(item_vectors), strict=True):
        rows = items[torch.from_numpy(seen.astype(np.int64))].double()
        means = torch.nn.functional.embedding_bag(bags[0], rows, bags[1], mode="mean")
        found.append(torch.linalg.lu_solve(*system, means.T).T)
    return torch.stack(found).float()


def systems(item_vectors: Tensor) -> list[Factors]:
    """float64 [d, d] per replica: QᵀQ / n + λ s I, factored."""
    found: list[Factors] = []
    for items in map(Tensor.double, item_vectors):
        second_moment = items.T @ items / len(items)
        scale = (second_moment.trace() / items.shape[1]).clamp_min(torch.finfo(items.dtype).tiny)
        lengths = RIDGE * scale * torch.eye(items.shape[1], dtype=items.dtype)
        found.append(torch.linalg.lu_factor(second_moment + lengths))
    return found


def usable_history(history: Any, model: Interactions) -> Interactions:
    """The history over the items of the pairs a model knows; its notes say what could not be used."""
    if not isinstance(history, Interactions):
        from evenhand.data.reading.read import read_interactions

        history = read_interactions(history, allow_small=True)
    usable = _restrict(history, model.item_ids)
    again = int((positions(usable.user_ids, model.user_ids) >= 0).sum())
    if not again:
        return usable
    note = (
        f"{again:,} of {count(usable.n_users, 'user')} {'is' if again == 1 else 'are'} known to the model "
        "already; scores come of the history given now, and what it knew of them is not recommended either."
    )
    return replace(usable, notes=(*usable.notes, note))


def with_earlier(history: Interactions, model: Interactions) -> Interactions:
    """The history, and what the model knew of the same users: neither is recommended again."""
    place = positions(model.user_ids, history.user_ids)[model.users]
    again = place >= 0
    if not again.any():
        return history
    earlier = Interactions.from_pairs(
        place[again], model.items[again], user_ids=history.user_ids, item_ids=history.item_ids
    )
    return history.union(earlier).with_notes(*history.notes)


def _restrict(history: Interactions, item_ids: pa.Array) -> Interactions:
    """The history over the model's items, and over the users who have any of them."""
    place = positions(history.item_ids, item_ids)
    usable = place[history.items] >= 0
    counts = np.bincount(history.users[usable], minlength=history.n_users)
    left = counts > 0
    if not left.any():
        raise InputError("none of the new users' items is known to the model; check the item column.")
    notes = list(history.notes)
    unknown = len(np.unique(history.items[~usable]))
    if unknown:
        notes.append(
            f"{count(unknown, 'item')} of the new users ({(~usable).sum():,} of "
            f"{count(len(history), 'pair')}) "
            + ("is unknown to the model and was" if unknown == 1 else "are unknown to the model and were")
            + " ignored."
        )
    if not left.all():
        names = listed(history.user_ids.filter(pa.array(~left)).to_pylist())
        notes.append(f"Left out, having no item that the model knows: {names}.")
    new_index = np.cumsum(left) - 1
    return Interactions.from_pairs(
        new_index[history.users[usable]],
        place[history.items[usable]],
        user_ids=history.user_ids.filter(pa.array(left)),
        item_ids=item_ids,
        notes=tuple(notes),
    )
