"""The engines, and the one place that chooses among them: each says here what it serves, the fastest first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import torch

from evenhand.encoders import MF
from evenhand.objectives import BPR, IPS, Objective
from evenhand.objectives.softmax import Softmax
from evenhand.objectives.softmax_relatives import BSL, PSL, AUCSoftmax, SLatK
from evenhand.samplers import AUCSampler, DynamicSampler, GroupSampler, PopularitySampler, UniformSampler
from evenhand.samplers.counting import compile_problem
from evenhand.training.engines.base import Engine, Plan
from evenhand.utils.errors import InputError
from evenhand.utils.world import World

if TYPE_CHECKING:
    from evenhand.training.estimates import Work
    from evenhand.training.trainer import Trainer

__all__ = ["Engine", "Plan", "check_served", "engine_for", "engine_name"]

_COMPILED = (UniformSampler, PopularitySampler, DynamicSampler, GroupSampler, AUCSampler)
"""Samplers that compiled steps know; a class derived from one may choose otherwise, so it is not among them."""
_SHARED = (Softmax, PSL, BSL, SLatK, AUCSoftmax)
"""Objectives with shared negatives that several processes can train."""


@dataclass(frozen=True)
class Kind:
    """An engine that may be chosen."""

    module: str
    engine: str
    serves: Callable[[Work], bool]
    works_here: Callable[[], bool] = lambda: True
    """Whether what it needs is installed; what is missing is reported once."""


def _sharded(device: str, shared: bool) -> Callable[[Work], bool]:
    """For work that is split among processes."""
    return lambda work: work.ranks > 0 and work.device == device and work.objective.shares_negatives == shared


def _compiles(work: Work, objectives: Collection[type[Objective]] = (BPR,)) -> bool:
    """Whether compiled steps can do it: two tables, BPR, one negative, and a choice that they know."""
    sampler = work.sampler
    closed_form = type(work.encoder) is MF and type(work.objective) in objectives and work.negatives == 1
    other_rule = isinstance(sampler, AUCSampler) and sampler.rule != "paper"
    other_choice = isinstance(sampler, DynamicSampler) and sampler.top > 1
    return closed_form and type(sampler) in _COMPILED and not other_rule and not other_choice


def _triton_serves(work: Work) -> bool:
    sampler = work.sampler
    other = isinstance(sampler, AUCSampler) and (sampler.alpha == "auto" or sampler.pool is not None)
    return work.device == "cuda" and _compiles(work) and not other


def _openmp_works() -> bool:
    """OpenMP ends a process that was forked from one which had used it."""
    if not numba_works():
        return False
    from evenhand.training.engines.numba_engine import forked

    return not forked()


def _triton_works() -> bool:
    problem = compile_problem("cuda") if torch.cuda.is_available() else None
    if problem is not None:
        _say_once(problem)
    return problem is None


_ITEMS_ON_EACH = 16 * 10**9
"""Bytes up to which item rows, with Adam's memory and sums of gradients, lie on every GPU; a number that does not
depend on the GPU, nor on how many there are, so that neither changes a model."""


def _items_lie_on_each(work: Work) -> bool:
    return work.ranks > 0 and _triton_serves(work) and work.item_bytes <= _ITEMS_ON_EACH


ENGINES = {
    "sharded": Kind("sharded", "ShardedEngine", _sharded("cpu", False)),
    "sharded-softmax": Kind("sharded_softmax", "ShardedSoftmaxEngine", _sharded("cpu", True)),
    "triton-ranks": Kind("triton_ranks", "TritonRanksEngine", _items_lie_on_each, _triton_works),
    "sharded-torch": Kind("sharded_torch", "ShardedTorchEngine", _sharded("cuda", False)),
    "sharded-torch-softmax": Kind("sharded_torch", "ShardedTorchSoftmaxEngine", _sharded("cuda", True)),
    "numba": Kind(
        "numba_engine",
        "NumbaEngine",
        lambda work: work.device == "cpu" and _compiles(work, (BPR, IPS)),
        _openmp_works,
    ),
    "rows": Kind(
        "rows_engine",
        "RowsEngine",
        lambda work: work.device == "cpu" and type(work.encoder) is MF and work.objective.shares_negatives,
        _openmp_works,
    ),
    "triton": Kind("triton_engine", "TritonEngine", _triton_serves, _triton_works),
    # The exact repeats of a GPU take kernels that cannot be recorded.
    "graph": Kind("base", "GraphEngine", lambda work: work.device == "cuda" and not work.settings.deterministic),
    "torch": Kind("base", "TorchEngine", lambda work: True),
}


def engine_name(work: Work) -> str:
    """The engine that does this work: the first that serves it and works here, unless the settings name one."""
    if work.settings.engine != "auto" and not work.ranks:
        return work.settings.engine
    if work.ranks == 1 and work.device == "cuda" and work.settings.engine == "auto":
        work = replace(work, ranks=0)  # one GPU has all rows: nothing to send, and the same state to keep
    return next(name for name, kind in ENGINES.items() if kind.serves(work) and kind.works_here())


def check_served(work: Work) -> None:
    """Refuse what several processes cannot train, with what they can."""
    if not work.ranks:
        return
    said = "over several processes"
    if type(work.encoder) is not MF:
        raise InputError(f"{said} every vector of this encoder would need the rows of all; add --encoder mf.")
    if work.device == "cuda" and work.ranks > 1 and not World.current().has_gpus:
        raise InputError(f"{said} each needs a GPU of its own; start as many as there are, or add --device cpu.")
    shared = type(work.objective) in _SHARED and type(work.sampler) in (UniformSampler, PopularitySampler)
    if not shared and not _compiles(work):
        known = "rns, pns, fairstatic, dns, auc-ns with one negative for each positive, and the softmax family"
        raise InputError(f"{said} evenhand trains {known}; start other methods in one process.")
    if isinstance(work.sampler, AUCSampler) and not work.draws:
        raise InputError(f"{said} none sees all items, so ranks cannot be exact; ask for auc-ns:ecdf=64.")


def engine_for(trainer: Trainer) -> Engine:
    kind = ENGINES[engine_name(trainer.work)]
    made: Any = getattr(import_module(f"evenhand.training.engines.{kind.module}"), kind.engine)
    return cast(Engine, made(trainer))


@cache
def _say_once(reason: str) -> None:
    warnings.warn(f"triton does not work here ({reason}); training goes on, slower.", stacklevel=5)


@cache
def numba_works() -> bool:
    """Whether anything can be compiled here; if not, that is said once."""
    try:
        from numba import njit

        njit(lambda x: x + 1)(1)
    except Exception as problem:
        reason = str(problem).splitlines()[0]
        warnings.warn(f"numba does not work here ({reason}); training goes on with torch, slower.", stacklevel=4)
        return False
    return True
