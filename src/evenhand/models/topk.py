"""Exact top-k over the whole catalogue, in chunks of users, with what they already know left out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.utils.errors import InputError
from evenhand.utils.memory import check_memory, is_shortage

_CHUNK_SCORES = 2**24
"""Scores held at once: 64 MB, whatever the number of users."""

_CACHED_SCORES, _FEWEST_ROWS = 2**19, 64
"""Products on a CPU come in smaller chunks, which stay in its caches, if these have enough rows."""
_WORTH_COMPILING = 2**24
"""Scores from which on it pays to load the compiled selection, if nothing has loaded numba before."""
_WORTH_SHARING = 2**22
"""Scores of a chunk from which on its rows are shared out among threads."""
_SLOT, TABLE_SLOT, _WORTH_ASKING = 12, 43, 2**28
"""Bytes of an item and its score in a list; the same for lists that become a table of ids, measured; bytes of all lists
from which on memory is looked at first."""
_LONGEST_COMPILED = 256
"""Longer lists are left to torch: the compiled selection keeps its list sorted by moving entries."""
_ON_DEVICE: WeakKeyDictionary[Interactions, tuple[torch.device, Tensor, Tensor]] = WeakKeyDictionary()
"""Rows and items of what is left out, where a GPU is asked again and again: sending them again takes longer
than the lists themselves."""

Score = Callable[[np.ndarray], Tensor]
"""Users by index → a new tensor [n, n_items], which the caller may write to."""
_Rules = tuple[Interactions | None, Tensor | None]
"""Pairs that are left out, and bool [n_items]: what may be recommended."""
_Lists = tuple[np.ndarray, np.ndarray]
"""Items and scores [n, k] of a chunk, to be filled."""


@dataclass(frozen=True, eq=False)
class Products:
    """Scores as inner products of the vectors [n_users, d] and [n_items, d]."""

    user_vectors: Tensor
    item_vectors: Tensor

    def __call__(self, users: np.ndarray, out: Tensor | None = None) -> Tensor:
        """Into `out` [n, n_items], where it is given: new memory costs as much as the products."""
        rows = self.user_vectors[torch.from_numpy(users).to(self.user_vectors.device)]
        return torch.matmul(rows, self.item_vectors.T, out=out)


def by_product(user_vectors: Tensor, item_vectors: Tensor) -> Score:
    return Products(user_vectors.detach(), item_vectors.detach())


def check_lists(users: int, k: int, slot: int = _SLOT) -> None:
    if (size := users * k * slot) > _WORTH_ASKING:
        what = f"a list of {k:,} items for each of {users:,} users"
        check_memory(size, torch.device("cpu"), what, "ask for fewer users at a time, or for shorter lists")


def top_by(
    score: Score,
    n_items: int,
    users: np.ndarray,
    k: int,
    *,
    exclude: Interactions | None = None,
    only: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The k best items of each user, best first: items int64 [n, k] and scores float32 [n, k].

    `score` is asked for a chunk of users at a time. `exclude` holds pairs that are left out, `only` (bool
    [n_items]) the items that may be recommended. Of items with the same score the one with the lowest index
    comes first. Where fewer than k items remain, the list ends with item -1 and score -inf. Where there is
    not enough memory for a chunk it goes on with half as many users, down to one.
    """
    if not isinstance(k, int | np.integer) or not 1 <= k <= n_items:
        raise InputError(f"k must lie between 1 and the catalogue's {n_items:,} items, not {k}.")
    check_lists(len(users), k)
    found = np.empty((len(users), k), dtype=np.int64)
    values = np.empty((len(users), k), dtype=np.float32)
    step = _rows_at_once(score, n_items)
    kernel = _compiled(len(users) * n_items, k)
    begin, room = 0, None
    while begin < len(users):
        chunk = users[begin : begin + step]
        part = found[begin : begin + step], values[begin : begin + step]
        try:
            if room is None:
                room = _room(score, len(chunk), n_items)
            _fill(score, room, kernel, chunk, (exclude, only), part)
        except (MemoryError, RuntimeError) as problem:
            if len(chunk) == 1 or not is_shortage(problem):
                raise
            step, room = len(chunk) // 2, None
        else:
            begin += len(chunk)
    return found, values


def top_items(
    user_vectors: Tensor,
    item_vectors: Tensor,
    users: np.ndarray,
    k: int,
    *,
    exclude: Interactions | None = None,
    only: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`top_by` inner products."""
    score = by_product(user_vectors, item_vectors)
    return top_by(score, len(item_vectors), users, k, exclude=exclude, only=only)


def first_list(lists: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Items and scores of the first of these lists, without the empty places at its end."""
    items, scores = lists[0][0], lists[1][0]
    return items[items >= 0], scores[items >= 0]


def _fill(score: Score, room: Tensor | None, kernel: Any, users: np.ndarray, rules: _Rules, lists: _Lists) -> None:
    """The lists of one chunk; its scores are let go of when this returns."""
    scores = score(users) if room is None else score(users, room[: len(users)])  # type: ignore[call-arg]
    # Counts come in float64, for which the selection would be compiled once more.
    worth = scores.dtype == torch.float32 or scores.numel() >= _WORTH_SHARING
    if kernel is not None and scores.device.type == "cpu" and worth:
        _select(kernel, scores, users, rules, lists)
    else:
        _top_masked(scores, users, rules, lists)


def _rows_at_once(score: Score, n_items: int) -> int:
    most = max(1, _CHUNK_SCORES // n_items)
    if not isinstance(score, Products) or score.item_vectors.is_cuda:
        return most
    return min(most, max(_FEWEST_ROWS, _CACHED_SCORES // n_items))


def _room(score: Score, rows: int, n_items: int) -> Tensor | None:
    """Memory for the scores of one chunk after the other, where the scorer can do without new."""
    if not isinstance(score, Products):
        return None
    return torch.empty(rows, n_items, dtype=score.item_vectors.dtype, device=score.item_vectors.device)


def _compiled(n_scores: int, k: int) -> Any:
    """The compiled selection, where it serves and there is enough to do; None leaves it to torch."""
    enough = n_scores >= _WORTH_COMPILING or "numba" in sys.modules
    return _kernel() if enough and k <= _LONGEST_COMPILED else None


@cache
def _kernel() -> Any:
    """None where numba does not work, which training says aloud."""
    try:
        from evenhand.models.compiled_rows import select

        nothing = np.empty(0, dtype=np.int32)
        one = np.zeros((1, 1), dtype=np.float32)
        select(one, np.zeros(1, np.int64), np.zeros(2, np.int64), nothing, nothing > 0,
               np.zeros((1, 1), np.int64), one.copy(), 0, 1)  # fmt: skip
    except Exception:
        return None
    return select


def _select(kernel: Any, scores: Tensor, users: np.ndarray, rules: _Rules, lists: _Lists) -> None:
    """The compiled way, with the rows shared out among threads: a row's list depends on that row alone."""
    exclude, only = rules
    indptr, own = (
        (exclude.indptr, exclude.items) if exclude is not None else (np.zeros(2, np.int64), np.empty(0, np.int32))
    )
    allowed = np.empty(0, dtype=bool) if only is None else only.cpu().numpy()
    rows = scores.detach().contiguous().numpy()
    whose = np.ascontiguousarray(users, dtype=np.int64)

    def work(first: int, last: int) -> None:
        kernel(rows, whose, indptr, own, allowed, *lists, first, last)

    if scores.numel() < _WORTH_SHARING:
        work(0, len(users))
        return
    from evenhand.models.compiled_rows import by_threads

    by_threads(work, len(users))


def _top_masked(scores: Tensor, users: np.ndarray, rules: _Rules, lists: _Lists) -> None:
    """The way in torch, on any device."""
    (exclude, only), (found, values) = rules, lists
    if exclude is not None:
        scores[_pairs_of(exclude, users, scores.device)] = -torch.inf
    if only is not None:
        scores[:, ~only.to(scores.device)] = -torch.inf
    items, best = top_of(scores, found.shape[1])
    values[:] = best.cpu().numpy()
    found[:] = items.cpu().numpy()
    found[np.isneginf(values)] = -1


def _pairs_of(pairs: Interactions, users: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions in `users` and items of their pairs, on the device."""
    if pairs not in _ON_DEVICE or _ON_DEVICE[pairs][0] != device:
        start, values = (torch.from_numpy(side).to(device) for side in (pairs.indptr, pairs.items))
        _ON_DEVICE[pairs] = device, start, values
    _, indptr, items = _ON_DEVICE[pairs]
    whose = torch.from_numpy(users).to(device)
    begin, total = indptr[whose], int(pairs.activity[users].sum())
    counts = indptr[whose + 1] - begin
    row = torch.repeat_interleave(torch.arange(len(users), device=device), counts, output_size=total)
    first = begin - (counts.cumsum(0) - counts)
    return row, items[torch.arange(total, device=device) + first[row]].long()


def top_of(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Like `topk`, which leaves the order of equal scores open; only rows that have such are sorted again."""
    # One more than asked for shows whether a tie crosses the end of the list.
    wide = scores.topk(min(k + 1, scores.shape[1]), dim=1)
    if wide.values.isnan().any():  # a score that is no number is no reason to recommend, and would come first
        return top_of(scores.nan_to_num_(-torch.inf, torch.inf, -torch.inf), k)
    equal = (wide.values[:, 1:] == wide.values[:, :-1]) & wide.values[:, 1:].isfinite()
    items, values = wide.indices[:, :k], wide.values[:, :k]
    tied = equal.any(1).nonzero().squeeze(1)
    if len(tied):
        items[tied], values[tied] = _lowest_first(scores[tied], k, values[tied, -1:])
    return items, values


def _lowest_first(scores: Tensor, k: int, last: Tensor) -> tuple[Tensor, Tensor]:
    """The k items above or at the score `last`; of those just at it, the lowest indices that still fit."""
    above, level = scores > last, scores == last
    room = k - above.sum(1, keepdim=True)
    chosen = above | (level & (level.cumsum(1) <= room))
    items = chosen.nonzero()[:, 1].view(-1, k)
    values, order = scores.gather(1, items).sort(dim=1, descending=True, stable=True)
    return items.gather(1, order), values
