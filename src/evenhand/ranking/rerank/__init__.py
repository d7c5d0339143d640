"""A cure for finished lists: from more candidates than are shown, pick the shown ones less by popularity."""

from evenhand.ranking.rerank.methods import METHODS
from evenhand.ranking.rerank.run import Reranked, rerank, rerank_lists

__all__ = ["METHODS", "Reranked", "rerank", "rerank_lists"]
