"""The loop that trains a model, and the protocols under which it is evaluated."""

from evenhand.training.method import Fit
from evenhand.training.run import train
from evenhand.training.settings import Settings

__all__ = ["Fit", "Settings", "train"]
