"""Models that turn parameters into user and item vectors."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evenhand.encoders.base import Encoder, Tables, Vectors
from evenhand.encoders.lightgcn import LightGCN
from evenhand.encoders.mf import MF
from evenhand.utils.errors import unknown

ENCODERS: dict[str, type[Encoder]] = {"mf": MF, "lightgcn": LightGCN}

__all__ = ["ENCODERS", "MF", "Encoder", "LightGCN", "Tables", "Vectors", "describe_encoder", "encoder_named"]


def encoder_named(encoder: str | Encoder) -> Encoder:
    """An encoder by its name in `ENCODERS`, with its defaults; an encoder itself is given back."""
    if isinstance(encoder, Encoder):
        return encoder
    if encoder not in ENCODERS:
        raise unknown("encoder", encoder, ENCODERS)
    return ENCODERS[encoder]()


def describe_encoder(encoder: Encoder) -> dict[str, Any]:
    """Its name and parameters, as a model folder writes them."""
    return {"name": type(encoder).__name__.lower(), **asdict(encoder)}
