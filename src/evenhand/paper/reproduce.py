"""`reproduce`: run an experiment of the paper again, keep what is finished, and go on where it was left."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import evenhand
from evenhand.data.describe import fingerprint
from evenhand.data.splits import Split, held_out_share
from evenhand.experiments.results import (
    DIGITS,
    Comparison,
    Document,
    Results,
    Run,
    as_written,
    check_writable,
    rounded,
    work_folder,
    writing,
)
from evenhand.paper import claims
from evenhand.paper.experiment import Experiment, Recipe, recipe, swept
from evenhand.paper.tables import mse_per_seed
from evenhand.training.method import Conditions, Fit, RunOptions
from evenhand.training.run import train, versions
from evenhand.training.settings import resolve_device
from evenhand.utils.atomic import one_process
from evenhand.utils.errors import InputError, RunError, StoppedError
from evenhand.utils.progress import OnEpoch
from evenhand.utils.text import count

Finished = tuple[Run, claims.Runs]
"""A row that is done, and the values of its users."""
METRICS = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr", "fpr", "fnr")
HELD_OUT, STOPPING_K = 0.1, 5
"""Where no number of epochs is published: the share of train, and the cutoff, on which it is found."""
_REPLICAS_ON_A_GPU = 120
"""Seeds × values of a sweep that train side by side on a GPU; on a CPU the values take turns."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The results so far, and which of the rows asked for they still lack."""

    results: Results
    document: Document
    """The experiment as `--json` prints it."""
    missing: tuple[str, ...]
    failed: dict[str, str]
    """Those among them that could not be trained, and why."""


def recipes_for(experiment: Experiment, asked: Sequence[str]) -> list[Recipe]:
    """The rows asked for, every name and value understood; nothing is trained yet."""
    make = recipe if experiment.part == "overall" else swept
    found = [make(experiment, text) for text in dict.fromkeys(text.strip() for text in asked) if text]
    if not found:
        raise InputError("no method was named; leave --methods out for all of them.")
    return found


def reproduce(
    experiment: Experiment,
    split: Split,
    asked: Sequence[str],
    folder: Path,
    *,
    device: str = "auto",
    minutes: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
    bars: Callable[[str], OnEpoch | None] | None = None,
) -> Outcome:
    """Make the rows that the folder does not have yet.

    `asked` are methods, or values of a sweep as they are published. After `minutes` the work stops with
    what is finished, a training in progress at its last checkpoint; the same call goes on with it.
    """
    recipes = recipes_for(experiment, asked)
    clock = _Clock(minutes)
    with one_process(folder):
        identity = experiment.identity() | {
            "split": split.description,
            "data": {name: fingerprint(part) for name, part in split.parts().items()},
        }
        results = _opened(folder, experiment, identity)
        there = results.of(experiment.name)
        for one in recipes:
            _check_same(one, there.get(one.label), folder)
        pending = [one for one in recipes if one.label not in there]
        if len(pending) < len(recipes):
            tell(f"{len(recipes) - len(pending)} of {len(recipes)} rows are there already.")
        with writing(folder):
            work = work_folder(folder) / experiment.name
        done, failed = 0, dict[str, str]()
        for batch in batches(pending, experiment, device):
            if clock.is_over:
                break
            name = batch[0].label if len(batch) == 1 else f"{len(batch)} values of {experiment.part}"
            bar = bars(name) if bars else None
            try:
                finished = fit_batch(batch, experiment, split, work, device, clock.watching(bar))
            except StoppedError:
                if clock.is_over:
                    break
                raise StoppedError(f"stopped in {name}", "all is saved: the same command goes on") from None
            except RunError as problem:
                failed |= {one.label: str(problem) for one in batch}
                tell(f"{name}: failed: {problem}")
                continue
            for run, users in finished:
                with writing(folder):
                    claims.store(work, run.method, users)
                results.add(replace(run, details={"identity": identity, **run.details}))
            forget(batch, work, device)
            if experiment.part == "overall":
                _compare_over_users(results, experiment, work)
            done += len(batch)
            tell(f"{name}: done; {done} of {len(pending)}{clock.estimate(done, len(pending))}")
    finished_now = results.of(experiment.name)
    missing = tuple(one.label for one in pending if one.label not in finished_now)
    empty = {"format": 1, "evenhand": evenhand.__version__, "identity": identity, "entries": {}, "over_users": []}
    document = results.document(experiment.name) if finished_now else empty
    return Outcome(results, document, missing, failed)


def _opened(folder: Path, experiment: Experiment, identity: Mapping[str, Any]) -> Results:
    """The results of the folder; those of another version, other data or other settings are never mixed."""
    check_writable(folder)
    results = Results(folder)
    with as_written(folder):
        for run in results.runs.values():
            theirs = run.versions["evenhand"]
            if "identity" in run.details and theirs != evenhand.__version__:
                raise InputError(
                    f"{folder} holds results of evenhand {theirs}, but this is "
                    f"{evenhand.__version__}; choose another --out."
                )
        for run in results.of(experiment.name).values():
            other = run.details["identity"]
            reasons = [
                "other data" if name == "data" else f"{name} {other.get(name)}, now {mine}"
                for name, mine in identity.items()
                if mine != other.get(name)
            ]
            if reasons:
                raise InputError(
                    f"{folder} has {experiment.name} made otherwise ({', '.join(reasons)}); ask for the same, or "
                    "choose another --out."
                )
    return results


def _compare_over_users(results: Results, experiment: Experiment, work: Path) -> None:
    """The reference minus every other row, by a bootstrap over users; what is known stays as it is."""
    runs = results.of(experiment.name)
    known = {one.against for one in results.comparisons if one.experiment == experiment.name}
    reference = runs.get(claims.REFERENCE)
    others = [label for label in runs if label not in known]
    if reference is None:
        return
    where = (reference.experiment, reference.dataset, reference.split, reference.encoder, reference.method)
    for label, metric, k, found in claims.differences(work, others):
        numbers = (round(value, DIGITS) for value in (found.difference, found.low, found.high, found.p))
        results.comparisons.append(Comparison(*where, label, "users", metric, k, *numbers))
    results.write()


def _check_same(one: Recipe, run: Run | None, folder: Path) -> None:
    """A row that is there must have been made with the numbers it would be made with now.

    Numbers that only one of them knows, because an option is newer than the row, do not count.
    """
    now, then = _flat(json.loads(json.dumps(one.to_json()))), _flat({} if run is None else run.details)
    differing = [name for name in now if name in then and now[name] != then[name]]
    if differing:
        raise InputError(f"{folder} has '{one.label}' with another {' and '.join(differing)}; choose another --out.")


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Every number by a name such as "training lr"."""
    parts = {name: part if isinstance(part, dict) else {"": part} for name, part in entry.items()}
    return {f"{name} {key}".strip(): value for name, part in parts.items() for key, value in part.items()}


def batches(recipes: Sequence[Recipe], experiment: Experiment, device: str) -> list[list[Recipe]]:
    """Which rows train together: methods one by one, the values of a sweep as the device likes it."""
    together = 1
    if experiment.part != "overall" and resolve_device(device).type == "cuda":
        together = max(1, _REPLICAS_ON_A_GPU // experiment.seeds)
    return [list(recipes[n : n + together]) for n in range(0, len(recipes), together)]


def fit_batch(
    batch: Sequence[Recipe],
    experiment: Experiment,
    split: Split,
    work: Path,
    device: str,
    on_epoch: OnEpoch | None = None,
) -> list[Finished]:
    """Train or fit these rows, with the values of their users; an interrupted training goes on from its checkpoints.

    These stay until `forget`, so that a process that is killed before the rows are on record loses nothing.
    """
    checkpoints, methods = work / _work_name(batch, device), [one.method for one in batch]
    if experiment.until is not None and methods[0].encoder_name is not None:
        first_look = _first_look(checkpoints)
        longest = max(epochs_until(one, experiment, split, first_look, device, on_epoch) for one in batch)
        methods = [one.having({"epochs": longest}) for one in methods]
    conditions = Conditions.of(split, experiment.seeds, experiment.protocol, experiment.ks, None, device)
    fits = methods[0].fit_together(methods, conditions, RunOptions(on_epoch, checkpoints, resume=True))
    return [_finished(one, fit, experiment, split, device, len(batch)) for one, fit in zip(batch, fits, strict=True)]


def epochs_until(
    recipe: Recipe,
    experiment: Experiment,
    split: Split,
    checkpoints: Path,
    device: str,
    on_epoch: OnEpoch | None = None,
) -> int:
    """How long one seed trains without a tenth of train until precision@5 on it stays without a rise."""
    parts = recipe.method.components()
    rest, held = held_out_share(split.train, HELD_OUT)
    found = train(
        Split(rest, held, split.test.take(np.zeros(len(split.test), dtype=bool)), split.description),
        parts["encoder"],
        parts["sampler"],
        [0],
        replace(parts["settings"], patience=experiment.until),
        device=device,
        on_epoch=on_epoch,
        checkpoints=checkpoints / recipe.label.replace("/", "-"),
        resume=True,
        objective=parts["objective"],
        stop_on=("precision", STOPPING_K),
        free_start=False,
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


def _work_name(batch: Sequence[Recipe], device: str) -> str:
    """One folder for one piece of work: other numbers, device or torch get another, and start again."""
    what = [[one.label, one.to_json()] for one in batch]
    text = json.dumps([what, resolve_device(device).type, str(torch.__version__)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _finished(recipe: Recipe, fit: Fit, experiment: Experiment, split: Split, device: str, together: int) -> Finished:
    where = resolve_device(device)
    used = versions(where)
    threads = "" if where.type == "cuda" else f", {count(int(used['threads']), 'thread')}"
    details = {"method": recipe.method.name, **recipe.to_json(), "trained_together": together}
    if experiment.until is not None and fit.history:
        details["epochs_found"] = len(fit.history)
    run = Run(
        experiment.name,
        experiment.dataset,
        "paper" if split.description.startswith("the authors' split") else "random",
        None if recipe.method.encoder_name is None else experiment.encoder,
        recipe.label,
        round(fit.seconds, 1),
        experiment.command(recipe.label),
        used["device"] + threads,
        used,
        details | {"notes": list(fit.notes)},
        {
            "epoch": list(fit.epochs),
            **{
                f"{name}@{k}": rounded([one.metrics[name] for one in each])
                for k, each in fit.results.items()
                for name in METRICS
            },
            **_model_measured(fit, split),
        },
    )
    return run, {k: [one.users for one in each] for k, each in fit.results.items()}


def _model_measured(fit: Fit, split: Split) -> dict[str, list[float | None]]:
    """What does not depend on k: the paper's MSE, and what the sampled negatives were."""
    found = {"mse": rounded(mse_per_seed(fit.vectors, split))}
    for name in ("hot_share", "false_share"):
        if fit.history and name in fit.history[0]:
            each = np.array([record[name] for record in fit.history])
            found |= {name: rounded(each.mean(0)), f"{name}_first_epoch": rounded(each[0])}
    return found


class _Clock:
    """How long the work has taken, may take, and will take at this pace."""

    def __init__(self, minutes: float | None) -> None:
        if minutes is not None and not minutes > 0:
            raise InputError(f"--time-limit takes minutes above 0, not {minutes:g}.")
        self.began = time.monotonic()
        self.limit = None if minutes is None else 60 * minutes

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.elapsed >= self.limit

    def watching(self, then: OnEpoch | None) -> OnEpoch | None:
        """An epoch callback that asks training to save and stop, as Ctrl-C does, when the time is up."""
        if self.limit is None or threading.current_thread() is not threading.main_thread():
            return then

        def on_epoch(epoch: int, most: int, news: object) -> None:
            if then is not None:
                then(epoch, most, news)  # type: ignore[arg-type]
            if self.is_over and epoch < most:
                signal.raise_signal(signal.SIGINT)

        return on_epoch

    def estimate(self, done: int, total: int) -> str:
        """Time left if the rest goes as fast as what is done.

        >>> _Clock(None).estimate(1, 1)
        '.'
        """
        if done == total:
            return "."
        left = self.elapsed / done * (total - done)
        return f", about {left / 60:.0f} min left." if left >= 90 else f", about {left:.0f} s left."
