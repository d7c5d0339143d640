"""Train recommenders that do not overrate what is popular, and show it.

    import evenhand as eh

Names are loaded when they are first used, so that importing evenhand is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from evenhand.audit.run_audit import audit
    from evenhand.baselines import ALS, EASE, GFCF, ItemKNN, Popular
    from evenhand.data.datasets.load import load_dataset, load_split
    from evenhand.data.interactions import Interactions
    from evenhand.data.simulate import simulate
    from evenhand.data.splits import Split, given_split
    from evenhand.encoders import MF, LightGCN
    from evenhand.experiments.compare import compare
    from evenhand.experiments.feedback_loop import feedback_loop
    from evenhand.experiments.fit import fit
    from evenhand.experiments.tune import tune
    from evenhand.metrics.evaluate import evaluate
    from evenhand.models.base import Model
    from evenhand.models.factors import load
    from evenhand.models.rerank import rerank
    from evenhand.samplers import (
        AUCSampler,
        DynamicSampler,
        GroupSampler,
        PopularitySampler,
        UniformSampler,
    )
    from evenhand.training import Settings
    from evenhand.utils.errors import InputError, RunError

_HOME = {
    "audit": "evenhand.audit",
    "Interactions": "evenhand.data.interactions",
    "load_dataset": "evenhand.data.datasets.load",
    "load_split": "evenhand.data.datasets.load",
    "simulate": "evenhand.data.simulate",
    "Split": "evenhand.data.splits",
    "given_split": "evenhand.data.splits",
    "MF": "evenhand.encoders",
    "LightGCN": "evenhand.encoders",
    "InputError": "evenhand.utils.errors",
    "RunError": "evenhand.utils.errors",
    "compare": "evenhand.experiments.compare",
    "evaluate": "evenhand.metrics.evaluate",
    "Model": "evenhand.models.base",
    "load": "evenhand.models.factors",
    "rerank": "evenhand.models.rerank",
    "ALS": "evenhand.baselines",
    "EASE": "evenhand.baselines",
    "GFCF": "evenhand.baselines",
    "ItemKNN": "evenhand.baselines",
    "Popular": "evenhand.baselines",
    "AUCSampler": "evenhand.samplers",
    "DynamicSampler": "evenhand.samplers",
    "GroupSampler": "evenhand.samplers",
    "PopularitySampler": "evenhand.samplers",
    "UniformSampler": "evenhand.samplers",
    "Settings": "evenhand.training",
    "feedback_loop": "evenhand.experiments.feedback_loop",
    "fit": "evenhand.experiments.fit",
    "tune": "evenhand.experiments.tune",
}
__all__ = [
    "ALS",
    "EASE",
    "GFCF",
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
