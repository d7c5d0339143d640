"""What a fitted recommender is: scores for a whole catalogue, exact top-k, fold-in, and the folder on disk."""

from evenhand.models.base import Model
from evenhand.models.factors import FactorModel, load
from evenhand.models.topk import top_items
from evenhand.models.vector_files import export

__all__ = ["FactorModel", "Model", "export", "load", "top_items"]
