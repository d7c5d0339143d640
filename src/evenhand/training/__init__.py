"""The loop that trains a model, and the protocols under which it is judged."""

from evenhand.training.run import Fit, train
from evenhand.training.settings import Settings

__all__ = ["Fit", "Settings", "train"]
