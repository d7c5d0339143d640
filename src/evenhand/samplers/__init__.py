"""Ways to choose training negatives; `auc` is the paper's."""

from evenhand.samplers.auc import AUCSampler
from evenhand.samplers.base import BoundSampler, Sampler, bind
from evenhand.samplers.dynamic import DynamicSampler
from evenhand.samplers.static import BalancedSampler, GroupSampler, PopularitySampler, UniformSampler

__all__ = [
    "AUCSampler",
    "BalancedSampler",
    "BoundSampler",
    "DynamicSampler",
    "GroupSampler",
    "PopularitySampler",
    "Sampler",
    "UniformSampler",
    "bind",
]
