"""A cure for finished lists: from more candidates than are shown, pick the shown ones less by popularity."""

from evenhand.models.rerank.rerank import Reranked, rerank, rerank_lists
from evenhand.models.rerank.rules import METHODS

__all__ = ["METHODS", "Reranked", "rerank", "rerank_lists"]
