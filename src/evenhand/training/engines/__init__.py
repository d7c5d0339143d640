"""The fast engines behind one seam: `engine_for` picks the one that can do what a loop asks for."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

from evenhand.samplers.counting import compile_problem
from evenhand.training.engines.base import Engine, Plan
from evenhand.training.engines.torch_engine import TorchEngine

if TYPE_CHECKING:
    from evenhand.training.loop import Loop

__all__ = ["Engine", "Plan", "engine_for"]


def engine_for(loop: Loop) -> Engine:
    """The fastest engine for this loop; the plain one where a kernel cannot be had, which is said once."""
    if loop.settings.engine == "torch":
        return TorchEngine(loop)
    if loop.device.type == "cpu" and numba_works():
        from evenhand.training.engines.numba_engine import NumbaEngine, serves

        if serves(loop):
            return NumbaEngine(loop)
    if loop.device.type == "cuda":
        return _on_gpu(loop)
    return TorchEngine(loop)


def _on_gpu(loop: Loop) -> Engine:
    from evenhand.training.engines.graph_engine import GraphEngine
    from evenhand.training.engines.triton_engine import TritonEngine, serves

    if serves(loop):
        if (problem := compile_problem("cuda")) is None:
            return TritonEngine(loop)
        _say_once(problem)
    # The exact repeats of a GPU take kernels that cannot be recorded.
    return TorchEngine(loop) if loop.settings.deterministic else GraphEngine(loop)


@cache
def _say_once(reason: str) -> None:
    warnings.warn(f"triton does not work here ({reason}); training goes on, slower.", stacklevel=5)


@cache
def numba_works() -> bool:
    """Whether anything can be compiled here; if not, that is said once."""
    try:
        import numba
        from numba import njit

        njit(lambda x: x + 1)(1)
    except Exception as problem:
        reason = str(problem).splitlines()[0]
        warnings.warn(f"numba does not work here ({reason}); training goes on with torch, slower.", stacklevel=4)
        return False
    return bool(numba)
