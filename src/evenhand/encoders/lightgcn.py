"""LightGCN: vectors are averaged over the user-item graph, so that neighbours share what they learned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, Tables, Vectors
from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class LightGCN(Encoder):
    """The mean of `E, ÂE, …, Â^L E` with `Â = D^-½ A D^-½`, no self-loops; isolated rows stay 0 in Â."""

    layers: int = 2
    """How many hops L; 0 is MF."""

    weight_decay = 5e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 0:
            raise InputError(f"layers must be at least 0, not {self.layers}.")

    def start(self, train: Interactions, seeds: Sequence[int], device: torch.device | str) -> Tables:
        return Propagated(train, self.dim, self.layers, seeds, device)


class Propagated(Tables):
    """Tables whose vectors are averaged over the graph; all replicas share each sparse product."""

    propagates = True

    def __init__(
        self,
        train: Interactions,
        dim: int,
        layers: int,
        seeds: Sequence[int],
        device: torch.device | str,
    ) -> None:
        super().__init__(train, dim, seeds, device)
        self.layers = layers
        self.register_buffer("graph", normalised_graph(train).to(device), persistent=False)

    def encode(self, users: Tensor, items: Tensor) -> Vectors:
        replicas, n_users, dim = users.shape
        start = torch.cat([users, items], dim=1)
        layer = start.transpose(0, 1).reshape(-1, replicas * dim)
        total = layer
        for _ in range(self.layers):
            layer = _GraphProduct.apply(self.graph, layer)
            total = total + layer
        mean = (total / (self.layers + 1)).view(-1, replicas, dim).transpose(0, 1)
        return Vectors(mean[:, :n_users].contiguous(), mean[:, n_users:].contiguous())


class _GraphProduct(torch.autograd.Function):
    """Â·X. Â is symmetric, so its transpose, which the gradient needs, is never built."""

    @staticmethod
    def forward(ctx: Any, graph: Tensor, x: Tensor) -> Tensor:
        ctx.graph = graph
        return _times(graph, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, _times(ctx.graph, gradients[0].contiguous())


def _times(graph: Tensor, x: Tensor) -> Tensor:
    """graph @ x; where repeats must be exact on a GPU, summed row by row.

    The sparse product of CUDA adds in whatever order its blocks finish, also when asked to be deterministic.
    """
    if x.is_cuda and torch.are_deterministic_algorithms_enabled():
        terms = graph.values().unsqueeze(1) * x[graph.col_indices()]
        return torch.segment_reduce(terms, "sum", offsets=graph.crow_indices(), axis=0)
    return graph @ x


def normalised_graph(train: Interactions) -> Tensor:
    """Sparse CSR Â [n_users + n_items]² of the bipartite graph; users come first."""
    item_start, item_users = train.by_item
    columns = np.concatenate([train.items.astype(np.int64) + train.n_users, item_users])
    begins = np.concatenate([train.indptr, len(train) + item_start[1:]])
    degree = np.diff(begins)
    scale = np.where(degree > 0, 1 / np.sqrt(np.maximum(degree, 1)), 0.0)
    values = np.repeat(scale, degree) * scale[columns]
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
