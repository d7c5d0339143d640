"""From the first epoch to the last: train, look, keep the best, save, and stop when asked to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from evenhand.encoders import Vectors
from evenhand.metrics.catalogue import HISTORY
from evenhand.metrics.users import UserMetrics
from evenhand.training.checkpoint import Checkpoints, StopSignal, fitting
from evenhand.training.loop import EpochLog, Loop, under
from evenhand.training.progress import OnEpoch
from evenhand.training.selection import Evaluator, Selection
from evenhand.training.settings import Settings
from evenhand.utils.errors import DivergedError, RunError, StoppedError
from evenhand.utils.memory import is_shortage


def train_epochs(
    loop: Loop,
    selection: Selection,
    evaluator: Evaluator | None,
    settings: Settings,
    saved: Checkpoints | None,
    resume: bool,
    on_epoch: OnEpoch | None,
) -> tuple[list[dict[str, Any]], float, tuple[str, ...]]:
    """Train until the epochs are up or the selection is satisfied: history, seconds, notes."""
    history: list[dict[str, Any]] = []
    earlier = 0.0
    kept = 0
    if saved and resume and (found := saved.load()):
        tensors, facts = found
        with fitting(saved.folder):
            loop.load_state({n: t for n, t in tensors.items() if not n.startswith("selection.")}, facts["step"])
            selection.load_state(under("selection.", tensors), loop.device)
            history, earlier = facts["history"], facts["seconds"]
            kept = len(history)
    began = time.perf_counter()

    def elapsed() -> float:
        return earlier + time.perf_counter() - began

    def save() -> None:
        nonlocal kept
        assert saved is not None
        tensors = loop.state() | {f"selection.{name}": t for name, t in selection.state().items()}
        saved.save(tensors, {"step": loop.step, "history": history, "seconds": elapsed()})
        kept = len(history)

    with StopSignal().listening() as stop, divergence_explained(lambda: kept):
        while len(history) < settings.epochs and not selection.finished:
            epoch = len(history)
            while (log := loop.run_epoch(epoch, lambda: stop() or bool(saved and saved.due_within()))) is None:
                if saved:
                    save()
                if stop():
                    raise StoppedError(_how_to_go_on(epoch, saved))
            vectors, scored = _best_final(loop.finals(), evaluator, selection)
            if loop.loss.trains_encoder or epoch + 1 == settings.epochs:
                selection.see(epoch, scored, loop.tensors(vectors))
            history.append(_record(epoch, log, scored, elapsed()))
            if on_epoch:
                on_epoch(epoch + 1, settings.epochs, history[-1])
            last = len(history) == settings.epochs or selection.finished
            if saved and (last or stop() or saved.due()):
                save()
            if stop():
                raise StoppedError(_how_to_go_on(epoch + 1, saved))
    return history, elapsed(), tuple(saved.notes) if saved else ()


def _best_final(
    finals: Sequence[Vectors], evaluator: Evaluator | None, selection: Selection
) -> tuple[Vectors, list[dict[int, UserMetrics]]]:
    """Where the objective offers several models, the one that each replica does best with."""
    if evaluator is None:
        return finals[0], []
    scored = [evaluator(vectors) for vectors in finals]
    if len(finals) == 1:
        return finals[0], scored[0]
    winner = np.argmax([selection.measure(one) for one in scored], axis=0)
    return (
        Vectors(*(torch.stack([side[w][r] for r, w in enumerate(winner)]) for side in zip(*finals, strict=True))),
        [scored[w][r] for r, w in enumerate(winner)],
    )


@contextmanager
def divergence_explained(kept: Callable[[], int]) -> Iterator[None]:
    """Say what is left of a run whose numbers ran away, given how many epochs were saved."""
    try:
        yield
    except DivergedError as problem:
        rest = f"; the last good checkpoint, after epoch {kept()}, is kept: start over with --force"
        raise RunError(f"{problem}{rest if kept() else ''}.") from problem


@contextmanager
def memory_errors_explained() -> Iterator[None]:
    """Running out of memory is no bug: say what would fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as problem:
        if not is_shortage(problem):
            raise
        raise RunError(
            "there is not enough memory for this; lower --dim, --batch or --seeds, or use --ecdf 64."
        ) from problem


def _how_to_go_on(epochs: int, saved: Checkpoints | None) -> str:
    done = f"stopped after {epochs} epoch{'s' if epochs != 1 else ''}"
    return f"{done}; everything is saved: go on with --resume." if saved else f"{done}; nothing was saved."


def _record(epoch: int, log: EpochLog, scored: Sequence[Any], seconds: float) -> dict[str, Any]:
    record: dict[str, Any] = {
        "epoch": epoch + 1,
        "seconds": round(seconds, 3),
        "loss": log.loss.tolist(),
        "hot_share": log.hot_share.tolist(),
    }
    if log.false_share is not None:
        record["false_share"] = log.false_share.tolist()
    record.update({name: value.tolist() for name, value in log.sampler.items()})
    if scored:
        record["metrics"] = {
            f"{name}@{k}": [one[k].mean(name) for one in scored] for k in scored[0] for name in HISTORY
        }
    return record
