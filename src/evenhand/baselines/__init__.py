"""What a user would pick instead of a trained sampler: the same split, the same tables, no negatives."""

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline
from evenhand.baselines.blend import Blend, GivenVectors
from evenhand.baselines.ease import EASE
from evenhand.baselines.gfcf import GFCF
from evenhand.baselines.itemknn import ItemKNN
from evenhand.baselines.popular import Popular
from evenhand.baselines.recipe import Recipe

__all__ = ["ALS", "EASE", "GFCF", "Baseline", "Blend", "GivenVectors", "ItemKNN", "Popular", "Recipe"]
