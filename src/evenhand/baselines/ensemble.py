"""How much each part of a blend counts, found on users with held-out items.

A weight is chosen by what it does to the lists: NDCG@20 over the users, not the likelihood of a stand-in. Only items
that some part would list matter, so a few hundred scores per user are kept, whatever the size of the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions, gather_rows
from evenhand.models.base import Model
from evenhand.models.blend_model import scaled

K = 20
"""The cutoff at which lists are compared."""
MOST_USERS = 4000
"""Users on whom weights are found; more do not change them."""
_DEPTH = 60
"""Items that each part puts forward for a user."""
_CHUNK_CELLS = 2**25
_STEPS = (0.2, 0.1, 0.05)
"""How far a weight moves at once, relative to the sum of all of them: coarse steps first."""
_ROUNDS = 40
_TIE = 1e-3
"""What NDCG counts for among lists that are all beyond the limit on exposure."""


@dataclass(frozen=True, eq=False)
class Shortlists:
    """The items that any part would list, for some users, with every part's score of them."""

    scores: Tensor
    """[parts, users, candidates], each part on the blend's scale"""
    wanted: Tensor
    """bool [users, candidates]: held-out items"""
    absent: Tensor
    """bool [users, candidates]: repeats, and places without an item"""
    head: Tensor
    """bool [users, candidates]: items of the most popular tenth"""
    ideal: Tensor
    """[users]: DCG of the best possible list"""
    demand: float
    """The share of the pairs that the most popular tenth of the items has"""
    of_users: int
    """How many users have held-out items; where there are more than MOST_USERS, the lists are those of a sample"""
    out_of_reach: int = 0
    """Users that were left out since no part lists anything they want: they count, with an NDCG of 0."""

    @staticmethod
    def of(
        models: Sequence[Model],
        pairs: Interactions,
        held: Interactions,
        signed: Sequence[bool] = (),
        most: int = MOST_USERS,
    ) -> Shortlists:
        """From models fitted to `pairs`, for users drawn from those who have items in `held`.

        A part that is `signed` may count against items, so what it would list least is looked at too.
        """
        users = evaluated_users(held, most)
        head = np.zeros(pairs.n_items, dtype=bool)
        head[np.argsort(-pairs.popularity, kind="stable")[: max(1, pairs.n_items // 10)]] = True
        step = max(1, _CHUNK_CELLS // (pairs.n_items * len(models)))
        chunks = [
            _shortlist(models, pairs, held, users[begin : begin + step], signed) for begin in range(0, len(users), step)
        ]
        scores, wanted, absent, items = (torch.cat(each, dim=-2) for each in zip(*chunks, strict=True))
        device = scores.device
        # Parts agree on many items, and finding weights takes as long as the lists are wide: repeats go.
        places = absent.to(torch.uint8).argsort(dim=1, stable=True)[:, : max(1, int((~absent).sum(1).max()))]
        scores = scores.gather(2, places.expand(len(scores), -1, -1))
        wanted, absent, items = (each.gather(1, places) for each in (wanted, absent, items))
        sizes = torch.from_numpy(np.minimum(held.activity[users], K)).to(device)
        ideal = torch.cumsum(_discounts(K, device), 0)[sizes - 1]
        demand = float(pairs.popularity[head].sum() / max(1, len(pairs)))
        there = int((held.activity > 0).sum())
        return Shortlists(scores, wanted, absent, torch.from_numpy(head).to(device)[items], ideal, demand, there)

    @property
    def settled_on(self) -> dict[str, int]:
        """On how many users weights are found, and of how many."""
        return {"users": len(self.ideal), "of": self.of_users}

    def value(self, total: Tensor, limit: float | None = None) -> float:
        """NDCG@20 of lists by these scores [users, candidates]; below 0 where exposure is beyond the limit."""
        top = self._top(total)
        hits = self.wanted.gather(1, top)
        gains = (hits * _discounts(top.shape[1], top.device)).sum(1) / self.ideal
        ndcg = float(gains.sum()) / (len(gains) + self.out_of_reach)
        if limit is None:
            return ndcg
        beyond = self._ratio(top) - limit
        return ndcg if beyond <= 0 else _TIE * (ndcg - 1) - beyond

    def ratio(self, weights: Sequence[float]) -> float:
        """The share of slots of the most popular tenth over its share of the pairs."""
        return self._ratio(self._top(self.blended(weights)))

    def blended(self, weights: Sequence[float] | np.ndarray) -> Tensor:
        """[users, candidates]: the parts' scores added up."""
        return torch.einsum("p,puc->uc", self.scores.new_tensor(weights), self.scores)

    def within_reach(self) -> Shortlists:
        """The same without users for whom no weights find anything."""
        found = self.wanted.any(1)
        kept = {name: getattr(self, name)[found] for name in ("wanted", "absent", "head", "ideal")}
        return replace(self, scores=self.scores[:, found], **kept, out_of_reach=int((~found).sum()))

    def _top(self, total: Tensor) -> Tensor:
        return total.masked_fill(self.absent, -torch.inf).topk(min(K, total.shape[1]), dim=1).indices

    def _ratio(self, top: Tensor) -> float:
        real = ~self.absent.gather(1, top)
        share = float((self.head.gather(1, top) & real).sum()) / max(1, int(real.sum()))
        return share / max(self.demand, 1e-9)


def found_weights(
    lists: Shortlists, signed: Sequence[bool], limit: float | None = None
) -> tuple[tuple[float, ...], float]:
    """Weights and their NDCG@20, never below that of the best single part.

    From the best part on, the move of one weight that gains most is made, until none gains; then with smaller steps.
    Weights are not negative, except where `signed` allows it. A `limit` on exposure comes before accuracy.
    """
    if limit is None:
        lists = lists.within_reach()
    singles = [lists.value(one, limit) for one in lists.scores]
    allowed = [value if not may else -np.inf for value, may in zip(singles, signed, strict=True)]
    weights = np.zeros(len(singles))
    weights[int(np.argmax(allowed if np.isfinite(allowed).any() else singles))] = 1.0
    total = lists.blended(weights)
    value = lists.value(total, limit)
    for step in _STEPS:
        for _ in range(_ROUNDS):
            size = step * np.abs(weights).sum()
            moves = [(part, change) for part in range(len(weights)) for change in (size, -size)]
            moves = [(p, max(c, -weights[p]) if not signed[p] else c) for p, c in moves]
            tried = [(lists.value(total + c * lists.scores[p], limit), p, c) for p, c in moves if c]
            best, part, change = max(tried)
            if best <= value:
                break
            value, weights[part], total = best, weights[part] + change, total + change * lists.scores[part]
    weights /= np.abs(weights).sum()
    return tuple(float(round(w, 6)) for w in weights), value


def evaluated_users(held: Interactions, most: int) -> np.ndarray:
    """Users with held-out items, ascending; where there are more than `most`, always the same sample."""
    users = np.flatnonzero(held.activity > 0)
    if len(users) <= most:
        return users
    return np.sort(users[np.argsort(np.random.PCG64(0).random_raw(len(users)), kind="stable")[:most]])


def _shortlist(
    models: Sequence[Model], pairs: Interactions, held: Interactions, users: np.ndarray, signed: Sequence[bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    every = [scaled(model.scores(users), pairs, users, "best") for model in models]
    device = next((one.device for one in every if one.is_cuda), torch.device("cpu"))
    every = [one.to(device) for one in every]
    row, item = (torch.from_numpy(x).to(device) for x in gather_rows(pairs.indptr, pairs.items, users))
    seen = torch.zeros(len(users), pairs.n_items, dtype=torch.bool, device=device)
    seen[row, item.long()] = True
    depth = min(_DEPTH, pairs.n_items)
    forward = [*every, *(-one for one, may in zip(every, signed, strict=False) if may)]
    items = torch.cat([one.masked_fill(seen, -torch.inf).topk(depth, 1).indices for one in forward], 1)
    items = items.sort(1).values
    absent = seen.gather(1, items)
    absent[:, 1:] |= items[:, 1:] == items[:, :-1]
    wanted = torch.from_numpy(held.contains(np.repeat(users, items.shape[1]), items.flatten().cpu().numpy()))
    return (
        torch.stack([one.gather(1, items) for one in every]),
        wanted.view(items.shape).to(device) & ~absent,
        absent,
        items,
    )


def _discounts(length: int, device: torch.device) -> Tensor:
    return 1 / torch.log2(torch.arange(2, length + 2, dtype=torch.float64, device=device))
