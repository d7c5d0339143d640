"""Losses that turn scores of positives and negatives into a gradient."""

from evenhand.objectives.bpr import bpr

__all__ = ["bpr"]
