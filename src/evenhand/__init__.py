"""Train recommenders that do not overrate what is popular, and show it.

    import evenhand as eh

Names are loaded when they are first used, so that importing evenhand is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from evenhand.audit.run import audit
    from evenhand.data.interactions import Interactions
    from evenhand.data.named import load_dataset, load_split
    from evenhand.data.simulate import simulate
    from evenhand.data.splits import Split, given_split
    from evenhand.encoders import MF, LightGCN
    from evenhand.errors import InputError, RunError
    from evenhand.experiments.compare import compare
    from evenhand.experiments.feedback import feedback_loop
    from evenhand.experiments.tune import tune
    from evenhand.metrics.evaluate import evaluate
    from evenhand.ranking.model import Model, load
    from evenhand.ranking.rerank import rerank
    from evenhand.rivals import ALS, EASE, ItemKNN, Popular
    from evenhand.samplers import (
        AUCSampler,
        DynamicSampler,
        GroupSampler,
        PopularitySampler,
        UniformSampler,
    )
    from evenhand.training import Settings, fit

_HOME = {
    "audit": "evenhand.audit",
    "Interactions": "evenhand.data.interactions",
    "load_dataset": "evenhand.data.named",
    "load_split": "evenhand.data.named",
    "simulate": "evenhand.data.simulate",
    "Split": "evenhand.data.splits",
    "given_split": "evenhand.data.splits",
    "MF": "evenhand.encoders",
    "LightGCN": "evenhand.encoders",
    "InputError": "evenhand.errors",
    "RunError": "evenhand.errors",
    "compare": "evenhand.experiments.compare",
    "evaluate": "evenhand.metrics.evaluate",
    "Model": "evenhand.ranking.model",
    "load": "evenhand.ranking.model",
    "rerank": "evenhand.ranking.rerank",
    "ALS": "evenhand.rivals",
    "EASE": "evenhand.rivals",
    "ItemKNN": "evenhand.rivals",
    "Popular": "evenhand.rivals",
    "AUCSampler": "evenhand.samplers",
    "DynamicSampler": "evenhand.samplers",
    "GroupSampler": "evenhand.samplers",
    "PopularitySampler": "evenhand.samplers",
    "UniformSampler": "evenhand.samplers",
    "Settings": "evenhand.training",
    "feedback_loop": "evenhand.experiments.feedback",
    "fit": "evenhand.experiments.fit",
    "tune": "evenhand.experiments.tune",
}
__all__ = [
    "ALS",
    "EASE",
    "MF",
    "AUCSampler",
    "DynamicSampler",
    "GroupSampler",
    "InputError",
    "Interactions",
    "ItemKNN",
    "LightGCN",
    "Model",
    "Popular",
    "PopularitySampler",
    "RunError",
    "Settings",
    "Split",
    "UniformSampler",
    "audit",
    "compare",
    "evaluate",
    "feedback_loop",
    "fit",
    "given_split",
    "load",
    "load_dataset",
    "load_split",
    "rerank",
    "simulate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evenhand' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
