"""Training the rows: one method, one baseline, or several values of a sweep side by side."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.baselines.run import Challenger, fit_baseline
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, held_out_share
from evenhand.experiments.entrants import Outcome
from evenhand.methods import Contender
from evenhand.metrics.statistics import summarise
from evenhand.paper.mse import MOST_CELLS, mse
from evenhand.paper.reproduce.people import Runs
from evenhand.paper.reproduce.recipes import Recipe
from evenhand.paper.reproduce.request import Request
from evenhand.training.evaluation import Result
from evenhand.training.run import train, versions
from evenhand.training.settings import resolve_device
from evenhand.utils.progress import OnEpoch
from evenhand.utils.text import count

METRICS = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr", "fpr", "fnr")
HELD_OUT, STOPPING_K = 0.1, 5
"""Where no number of epochs is published: the share of train, and the list length, on which it is found."""
_DIGITS = 6
_REPLICAS_ON_A_GPU = 120
"""Seeds × values of a sweep that train side by side on a GPU; on a CPU the values take turns."""


@dataclass(frozen=True, eq=False)
class Finished:
    """A row that is done: what goes into the file, and the users behind it."""

    label: str
    entry: dict[str, Any]
    people: Runs


def batches(recipes: Sequence[Recipe], request: Request, device: str) -> list[list[Recipe]]:
    """Which rows train together: methods one by one, the values of a sweep as the device likes it."""
    together = 1
    if request.part != "overall" and resolve_device(device).type == "cuda":
        together = max(1, _REPLICAS_ON_A_GPU // request.seeds)
    return [list(recipes[n : n + together]) for n in range(0, len(recipes), together)]


def fit_batch(
    batch: Sequence[Recipe],
    request: Request,
    split: Split,
    work: Path,
    device: str,
    on_epoch: OnEpoch | None = None,
) -> list[Finished]:
    """Train or fit these rows; an interrupted training goes on from its checkpoints in `work`.

    These stay until `forget`, so that a process that is killed before the rows are on record loses nothing.
    """
    seeds = tuple(range(request.seeds))
    first = batch[0]
    if isinstance(first.entrant, Challenger):
        mask = HotRule.parse(request.protocol).mask(split)
        baseline = first.entrant.baseline
        outcome: Outcome = fit_baseline(
            split, baseline, seeds, request.protocol, resolve_device(device), mask, request.ks
        )
        return [_finished(first, outcome, slice(None), request, split, device, 1)]
    assert first.encoder is not None
    assert first.settings is not None
    samplers = [one.entrant.sampler for one in batch if isinstance(one.entrant, Contender) for _ in seeds]
    checkpoints = work / _work_name(batch, device)
    settings = first.settings
    if request.until is not None:
        first_look = _first_look(checkpoints)
        longest = max(epochs_until(one, request, split, first_look, device, on_epoch) for one in batch)
        settings = replace(settings, epochs=longest)
    outcome = train(
        split,
        first.encoder,
        samplers,
        seeds * len(batch),
        settings,
        protocol=request.protocol,
        device=device,
        ks=request.ks,
        on_epoch=on_epoch,
        checkpoints=checkpoints,
        resume=True,
        objective=first.entrant.objective,
    )
    return [
        _finished(one, outcome, slice(n * len(seeds), (n + 1) * len(seeds)), request, split, device, len(batch))
        for n, one in enumerate(batch)
    ]


def epochs_until(
    recipe: Recipe,
    request: Request,
    split: Split,
    checkpoints: Path,
    device: str,
    on_epoch: OnEpoch | None = None,
) -> int:
    """How long one seed trains without a tenth of train until precision@5 on it stays without a rise."""
    assert recipe.encoder is not None
    assert recipe.settings is not None
    assert isinstance(recipe.entrant, Contender)
    rest, held = held_out_share(split.train, HELD_OUT)
    found = train(
        Split(rest, held, split.test.take(np.zeros(len(split.test), dtype=bool)), split.description),
        recipe.encoder,
        recipe.entrant.sampler,
        [0],
        replace(recipe.settings, patience=request.until),
        device=device,
        on_epoch=on_epoch,
        checkpoints=checkpoints / recipe.label.replace("/", "-"),
        resume=True,
        objective=recipe.entrant.objective,
        stop_on=("precision", STOPPING_K),
    )
    return len(found.history)


def forget(batch: Sequence[Recipe], work: Path, device: str) -> None:
    """Remove the checkpoints of rows that are on record."""
    checkpoints = work / _work_name(batch, device)
    for folder in (checkpoints, _first_look(checkpoints)):
        shutil.rmtree(folder, ignore_errors=True)


def _first_look(checkpoints: Path) -> Path:
    """Where the trainings that only look for the number of epochs are kept."""
    return checkpoints.with_name(f"{checkpoints.name}-until")


def _finished(
    recipe: Recipe, fit: Outcome, mine: slice, request: Request, split: Split, device: str, together: int
) -> Finished:
    where = resolve_device(device)
    used = versions(where)
    results = {k: each[mine] for k, each in fit.results.items()}
    entry = {
        "method": recipe.entrant.method,
        **recipe.to_json(),
        "command": request.command(recipe.label),
        "hardware": used["device"]
        if where.type == "cuda"
        else f"{used['device']}, {count(int(used['threads']), 'thread')}",
        "versions": used,
        "seconds": round(fit.seconds, 1),
        "trained_together": together,
        "chosen_epochs": list(fit.epochs[mine]),
        "metrics": _metrics(results) | _model_metrics(fit, mine, split),
        "notes": list(fit.notes),
    }
    if request.until is not None and fit.history:
        entry["epochs_found"] = len(fit.history)
    return Finished(recipe.label, entry, {k: [one.users for one in each] for k, each in results.items()})


def _metrics(results: Mapping[int, Sequence[Result]]) -> dict[str, Any]:
    return {
        f"{name}@{k}": _summary([one.metrics[name] for one in each]) for k, each in results.items() for name in METRICS
    }


def _model_metrics(fit: Outcome, mine: slice, split: Split) -> dict[str, Any]:
    """What does not depend on k: the paper's MSE, and what the sampled negatives were."""
    found: dict[str, Any] = {"mse": _summary(_mse(fit.vectors, mine, split))}
    for name in ("hot_share", "false_share"):
        if fit.history and name in fit.history[0]:
            each = np.array([record[name][mine] for record in fit.history])
            found |= {name: _summary(each.mean(0)), f"{name}_first_epoch": _summary(each[0])}
    return found


def _mse(vectors: tuple[Tensor, Tensor] | None, mine: slice, split: Split) -> list[float]:
    if vectors is None or split.n_users * split.n_items > MOST_CELLS:
        return [float("nan")]
    liked = split.train.union(split.validation, split.test)
    users, items = (side[mine] for side in vectors)
    return [mse(*replica, liked) for replica in zip(users, items, strict=True)]


def _summary(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    return summarise(values).to_json(_DIGITS)


def _work_name(batch: Sequence[Recipe], device: str) -> str:
    """One folder for one piece of work: other numbers, device or torch get another, and start anew."""
    what = [[one.label, one.to_json()] for one in batch]
    text = json.dumps([what, resolve_device(device).type, str(torch.__version__)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
