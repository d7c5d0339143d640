"""From vectors to recommendations: exact top-k, and the model that answers with a table."""

from evenhand.ranking.export import export
from evenhand.ranking.model import Model, load
from evenhand.ranking.topk import top_items

__all__ = ["Model", "export", "load", "top_items"]
