"""What a person should know of a log before training on it, and a fingerprint that identifies its content.

The same few numbers for any interactions or split, so that datasets can be compared at a glance. A model keeps the
fingerprint, so that anyone can check whether a file is what it was trained on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import gini, share_of_hottest
from evenhand.data.splits import Split
from evenhand.data.spread_log import SpreadLog
from evenhand.utils.spread_arrays import total
from evenhand.utils.world import World


@dataclass(frozen=True)
class DatasetSummary:
    """All numbers are of every pair, the parts of a split taken together."""

    users: int
    """Users in the vocabulary, with or without a pair; so also `items`."""
    items: int
    pairs: int
    density: float
    """pairs / (users × items)."""
    popularity_gini: float
    hot_share: float
    """The share of pairs on the hottest 15 % of items."""
    activity_min: int
    activity_median: float
    activity_max: int
    parts: dict[str, int]
    """The pairs of each part of a split; empty for plain interactions."""
    notes: tuple[str, ...]


def describe(data: Interactions | SpreadLog | Split) -> DatasetSummary:
    """Summarise interactions, also those of several processes, or all parts of a split.

    >>> found = describe(Interactions.from_pairs([0, 0, 1], [0, 1, 0]))
    >>> found.density, found.activity_max
    (0.75, 2)
    """
    if isinstance(data, Interactions | SpreadLog):
        whole, parts = data, {}
    else:
        whole, parts = data.consumed.union(data.test), {name: len(part) for name, part in data.parts().items()}
    log = SpreadLog.of(whole, World.alone()) if isinstance(whole, Interactions) else whole
    # How many users have 0, 1, … pairs; at least one, so that there is a median.
    of_size = total(log.world, np.bincount(log.mine.activity, minlength=log.n_items + 1)) if log.n_users else np.ones(1)
    ends = np.cumsum(of_size)
    lower, upper = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
    return DatasetSummary(
        users=log.n_users,
        items=log.n_items,
        pairs=len(log),
        density=len(log) / max(1, log.n_users * log.n_items),
        popularity_gini=gini(log.popularity),
        hot_share=share_of_hottest(log.popularity),
        activity_min=int(np.flatnonzero(of_size)[0]),
        activity_median=float((lower + upper) / 2),
        activity_max=int(np.flatnonzero(of_size)[-1]),
        parts=parts,
        notes=tuple(data.notes),
    )


def spread_fingerprint(log: SpreadLog) -> str:
    """For a log over ranks: SHA-256 over those of its blocks of users, the same for any number of ranks."""
    block, mine = log.user_numbers // log.users.block, log.mine
    ends = [*np.flatnonzero(np.diff(block, prepend=-1)).tolist(), len(block)]
    found: dict[str, str] = {}
    for first, last in pairwise(ends):
        digest = hashlib.sha256()
        _add_ids(digest, mine.user_ids.slice(first, last - first))
        digest.update(_little_endian(mine.activity[first:last], "<i8"))
        digest.update(_little_endian(mine.items[mine.indptr[first] : mine.indptr[last]], "<i4"))
        found[str(block[first])] = digest.hexdigest()
    of_all = {int(number): text for part in log.world.gathered(found) for number, text in part.items()}
    digest = hashlib.sha256(b"evenhand interactions in blocks 1\n")
    _add_ids(digest, log.item_ids)
    for number in sorted(of_all):
        digest.update(of_all[number].encode())
    return digest.hexdigest()


def fingerprint(interactions: Interactions) -> str:
    """SHA-256, in hexadecimal, over the ids and the pairs; ratings and timestamps do not count.

    `Interactions` keeps ids and pairs sorted, so the order of a file's rows does not matter.

    >>> a = Interactions.from_pairs([0, 1, 1], [0, 0, 1])
    >>> b = Interactions.from_pairs([1, 0, 1], [1, 0, 0])
    >>> fingerprint(a) == fingerprint(b), fingerprint(a) == fingerprint(a.take(a.users > 0))
    (True, False)
    """
    digest = hashlib.sha256(b"evenhand interactions 1\n")
    for ids in (interactions.user_ids, interactions.item_ids):
        _add_ids(digest, ids)
    digest.update(_little_endian(interactions.indptr, "<i8"))
    digest.update(_little_endian(interactions.items, "<i4"))
    return digest.hexdigest()


def _add_ids(digest: Any, ids: pa.Array) -> None:
    """Kind and number of the ids, then they; before texts their lengths, so that none runs into the next."""
    if pa.types.is_integer(ids.type):
        digest.update(f"integer {len(ids)}\n".encode())
        digest.update(_little_endian(ids.to_numpy(zero_copy_only=False), "<i8"))
        return
    digest.update(f"string {len(ids)}\n".encode())
    texts = ids.cast(pa.large_binary())
    digest.update(_little_endian(pc.binary_length(texts).to_numpy(zero_copy_only=False), "<i8"))
    digest.update(b"".join(texts.to_pylist()))


def _little_endian(values: np.ndarray, kind: str) -> Any:
    return np.ascontiguousarray(values, dtype=kind).data
