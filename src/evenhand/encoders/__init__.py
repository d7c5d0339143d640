"""Models that turn parameters into user and item vectors."""

from evenhand.encoders.base import Encoder, Tables, Vectors
from evenhand.encoders.lightgcn import LightGCN
from evenhand.encoders.mf import MF

ENCODERS: dict[str, type[Encoder]] = {"mf": MF, "lightgcn": LightGCN}

__all__ = ["ENCODERS", "MF", "Encoder", "LightGCN", "Tables", "Vectors"]
