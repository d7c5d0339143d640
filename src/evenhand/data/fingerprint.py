"""A name for data by its content: the same pairs of the same ids have the same fingerprint.

A model keeps it, so that anyone can check whether a file is what the model was trained on.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenhand.data.interactions import Interactions


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
