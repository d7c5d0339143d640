"""Train recommenders that do not overrate what is popular, and show it.

    import evenhand as eh

Names are loaded when they are first used, so that importing evenhand is cheap.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

# Turns an idle OpenMP thread waits before it sleeps. By default it waits so long that training takes ten times as long
# where another process keeps one of the cores busy. Read when torch is loaded, so it is set before.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

if TYPE_CHECKING:
    from evenhand.audit.run_audit import audit
    from evenhand.baselines import ALS, EASE, GFCF, Blend, ItemKNN, Popular
    from evenhand.data.datasets.load import load_dataset, load_split
    from evenhand.data.interactions import Interactions
    from evenhand.data.simulate import simulate
    from evenhand.data.splits import Split, given_split
    from evenhand.encoders import MF, LightGCN
    from evenhand.experiments.compare import compare, compare_tests
    from evenhand.experiments.fit import feedback_loop, fit
    from evenhand.experiments.tune import tune
    from evenhand.metrics.evaluate import evaluate
    from evenhand.models.base import Model
    from evenhand.models.filters import notes_of
    from evenhand.models.folder import load
    from evenhand.models.rerank import rerank
    from evenhand.objectives import BPR, BSL, IPS, MACR, PSL, AUCSoftmax, BCLoss, CausE, Reg, SLatK, Softmax
    from evenhand.samplers import (
        AUCSampler,
        BalancedSampler,
        DynamicSampler,
        GroupSampler,
        PopularitySampler,
        Sampler,
        UniformSampler,
    )
    from evenhand.training import Settings
    from evenhand.training.method import Method
    from evenhand.training.trained import Trained
    from evenhand.utils.errors import InputError, RunError

_HOME = {
    name: module
    for module, names in {
        "evenhand.audit.run_audit": "audit",
        "evenhand.baselines": "ALS EASE GFCF Blend ItemKNN Popular",
        "evenhand.data.datasets.load": "load_dataset load_split",
        "evenhand.data.interactions": "Interactions",
        "evenhand.data.simulate": "simulate",
        "evenhand.data.splits": "Split given_split",
        "evenhand.encoders": "MF LightGCN",
        "evenhand.experiments.compare": "compare compare_tests",
        "evenhand.experiments.fit": "feedback_loop fit",
        "evenhand.experiments.tune": "tune",
        "evenhand.methods": "Method Trained",
        "evenhand.metrics.evaluate": "evaluate",
        "evenhand.models.base": "Model",
        "evenhand.models.folder": "load",
        "evenhand.models.filters": "notes_of",
        "evenhand.models.rerank": "rerank",
        "evenhand.objectives": "BPR BSL IPS MACR PSL AUCSoftmax BCLoss CausE Reg SLatK Softmax",
        "evenhand.samplers": (
            "AUCSampler BalancedSampler DynamicSampler GroupSampler PopularitySampler Sampler UniformSampler"
        ),
        "evenhand.training": "Settings",
        "evenhand.utils.errors": "InputError RunError",
    }.items()
    for name in names.split()
}
__all__ = [
    "ALS",
    "BPR",
    "BSL",
    "EASE",
    "GFCF",
    "IPS",
    "MACR",
    "MF",
    "PSL",
    "AUCSampler",
    "AUCSoftmax",
    "BCLoss",
    "BalancedSampler",
    "Blend",
    "CausE",
    "DynamicSampler",
    "GroupSampler",
    "InputError",
    "Interactions",
    "ItemKNN",
    "LightGCN",
    "Method",
    "Model",
    "Popular",
    "PopularitySampler",
    "Reg",
    "RunError",
    "SLatK",
    "Sampler",
    "Settings",
    "Softmax",
    "Split",
    "Trained",
    "UniformSampler",
    "audit",
    "compare",
    "compare_tests",
    "evaluate",
    "feedback_loop",
    "fit",
    "given_split",
    "load",
    "load_dataset",
    "load_split",
    "notes_of",
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


class _Package(ModuleType):
    """`evenhand.audit` is a function and a room of modules; whichever is imported first, the name is the function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "audit" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
