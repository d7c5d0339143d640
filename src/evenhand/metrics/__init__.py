"""How good a list is, how biased, and whether a difference is more than chance.

The room works on arrays of recommended items and never sees a model.
"""
