"""Products with the normalised user-item graph, Â = D^-½ A D^-½; isolated rows are 0 in it.

A sparse product fetches a row of X for every edge. Where a GPU has a catalogue so small and so full that A
fits as a whole, multiplying with its zeros as well is many times faster.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from evenhand.data.interactions import Interactions

DENSE_CELLS = 2**30
"""The most cells, users × items, that A may have to be held whole: 2 GiB."""
DENSE_FROM = 0.005
"""The least share of them that must be pairs."""
_PIECES = 3
"""8 bits each: together the 24 of a float32."""


class Graph(nn.Module):
    """Â as it is fastest on a device; `times` is all there is to it."""

    sparse: Tensor
    links: Tensor
    user_scale: Tensor
    item_scale: Tensor

    def __init__(self, train: Interactions, device: torch.device | str) -> None:
        super().__init__()
        self.n_users = train.n_users
        self.register_buffer("sparse", normalised_graph(train).to(device), persistent=False)
        self.is_dense = False
        if (
            torch.device(device).type == "cuda"
            and fits_whole(train.n_users, train.n_items, len(train))
            and _mm_keeps_bits()
        ):
            self.hold_whole(train, device)

    def hold_whole(self, train: Interactions, device: torch.device | str) -> None:
        """Make `times` multiply with A as a whole."""
        self.is_dense = True
        user, item = (torch.from_numpy(s).float().to(device).unsqueeze(1) for s in _scales(train))
        self.register_buffer("links", links(train, device), persistent=False)
        self.register_buffer("user_scale", user, persistent=False)
        self.register_buffer("item_scale", item, persistent=False)

    def times(self, x: Tensor) -> Tensor:
        """Â·X for X [n_users + n_items, c]; where repeats must be exact on a GPU, summed row by row.

        The sparse product of CUDA adds in whatever order its blocks finish, also when asked to be
        deterministic.
        """
        if x.is_cuda and torch.are_deterministic_algorithms_enabled():
            terms = self.sparse.values().unsqueeze(1) * x[self.sparse.col_indices()]
            return torch.segment_reduce(terms, "sum", offsets=self.sparse.crow_indices(), axis=0)
        if not self.is_dense:
            product: Tensor = self.sparse @ x
            return product
        users, items = x[: self.n_users] * self.user_scale, x[self.n_users :] * self.item_scale
        to_users = whole_product(self.links, items) * self.user_scale
        to_items = whole_product(self.links.t(), users) * self.item_scale
        return torch.cat([to_users, to_items])

    def forward(self, x: Tensor) -> Tensor:
        """`times` with a gradient."""
        product: Tensor = _Product.apply(self, x)
        return product


class _Product(torch.autograd.Function):
    """Â is symmetric, so its transpose, which the gradient needs, is never built."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, x: Tensor) -> Tensor:
        ctx.graph = graph
        return graph.times(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, ctx.graph.times(gradients[0].contiguous())


def whole_product(links: Tensor, x: Tensor) -> Tensor:
    """links @ x for links of 0 and 1 in bfloat16, as exact as in float32.

    x is cut into pieces that bfloat16 holds without loss; 0 and 1 it holds anyway, and sums are float32.
    """
    found = _mm(links, pieces(x))
    return found.view(len(found), _PIECES, -1).sum(1)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, multiplied in bfloat16 and added in float32."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def pieces(x: Tensor) -> Tensor:
    """bfloat16 [n, 3c] whose three parts add up to x, float32 [n, c]."""
    cut, rest = [], x
    for _ in range(_PIECES):
        cut.append(rest.bfloat16())
        rest = rest - cut[-1].float()
    return torch.cat(cut, 1)


def fits_whole(n_users: int, n_items: int, pairs: int) -> bool:
    """Whether A is small and full enough to be held whole.

    >>> fits_whole(6_040, 3_706, 800_000), fits_whole(1_000_000, 200_000, 20_000_000)
    (True, False)
    """
    cells = n_users * n_items
    return cells <= DENSE_CELLS and pairs >= DENSE_FROM * cells


def links(train: Interactions, device: torch.device | str) -> Tensor:
    """bfloat16 [n_users, n_items]: 1 for a pair."""
    found = torch.zeros(train.n_users, train.n_items, dtype=torch.bfloat16, device=device)
    users, items = (torch.from_numpy(side.astype(np.int64)).to(device) for side in (train.users, train.items))
    found[users, items] = 1
    return found


def normalised_graph(train: Interactions) -> Tensor:
    """Sparse CSR Â [n_users + n_items]² of the bipartite graph; users come first."""
    item_start, item_users = train.by_item
    columns = np.concatenate([train.items.astype(np.int64) + train.n_users, item_users])
    begins = np.concatenate([train.indptr, len(train) + item_start[1:]])
    scale = np.concatenate(_scales(train))
    values = np.repeat(scale, np.diff(begins)) * scale[columns]
    size = train.n_users + train.n_items
    with warnings.catch_warnings():
        # torch calls its CSR support beta, and says that it skips checks; what is used of it here is tested.
        warnings.filterwarnings("ignore", message="Sparse ")
        return torch.sparse_csr_tensor(
            torch.from_numpy(begins.astype(np.int64)),
            torch.from_numpy(columns.astype(np.int64)),
            torch.from_numpy(values.astype(np.float32)),
            size=(size, size),
            check_invariants=False,
        )


def _scales(train: Interactions) -> tuple[np.ndarray, np.ndarray]:
    """1/√degree of users and of items; 0 where there is no pair."""
    user, item = (
        np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0.0)
        for degree in (train.activity, train.popularity)
    )
    return user, item


def _mm_keeps_bits() -> bool:
    """Whether this torch can multiply in bfloat16 and return float32, as it can from 2.8 on."""
    major, minor = re.findall(r"\d+", str(torch.__version__))[:2]
    return (int(major), int(minor)) >= (2, 8)
