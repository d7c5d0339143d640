"""Ways to choose training negatives, one file each; `auc` is the paper's."""

from evenhand.samplers.auc import AUCSampler
from evenhand.samplers.balanced import BalancedSampler
from evenhand.samplers.base import BoundSampler, Sampler, bind
from evenhand.samplers.by_popularity import PopularitySampler
from evenhand.samplers.dynamic import DynamicSampler
from evenhand.samplers.group import GroupSampler
from evenhand.samplers.uniform import UniformSampler

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
