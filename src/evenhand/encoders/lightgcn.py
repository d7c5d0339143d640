"""LightGCN: vectors are averaged over the user-item graph, so that neighbours share what they learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.encoders.base import Encoder, Tables, Vectors
from evenhand.encoders.graph import Graph
from evenhand.errors import InputError


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
    """Tables whose vectors are averaged over the graph; all replicas share each product."""

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
        self.graph = Graph(train, device)

    def encode(self, users: Tensor, items: Tensor) -> Vectors:
        replicas, n_users, dim = users.shape
        start = torch.cat([users, items], dim=1)
        layer = start.transpose(0, 1).reshape(-1, replicas * dim)
        total = layer
        for _ in range(self.layers):
            layer = self.graph(layer)
            total = total + layer
        mean = (total / (self.layers + 1)).view(-1, replicas, dim).transpose(0, 1)
        return Vectors(mean[:, :n_users].contiguous(), mean[:, n_users:].contiguous())
