"""`train`: a split, an encoder, a sampler, an objective and settings in, a trained model out."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import evenhand
from evenhand.data.describe import fingerprint, spread_fingerprint
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split, SpreadSplit
from evenhand.data.spread_log import SpreadLog
from evenhand.encoders import Encoder, Vectors, describe_encoder
from evenhand.models.base import described
from evenhand.models.factors import FactorModel, on_cpu
from evenhand.objectives import BPR, Objective
from evenhand.samplers.base import Sampler
from evenhand.training.checkpoints import Checkpoints, SpreadCheckpoints
from evenhand.training.early_stopping import STOPPING_K, Race, evaluator_of, protocol_of
from evenhand.training.estimates import check_fits, memory_errors_explained, over_ranks, work_of
from evenhand.training.evaluation import reported, users_within_reach
from evenhand.training.method import Fit, check_asked, metrics_json, seed_numbers
from evenhand.training.settings import ProtocolName, Resume, Settings, exact_repeats, resolve_device
from evenhand.training.trainer import Trainer, too_high
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch
from evenhand.utils.world import World

_BPR = BPR()
_ABSURD = 100
"""Times the loss of guessing, ln 2: no sigmoid of such a margin differs from 0 or 1 in 32 bits."""


def train(
    split: Split,
    encoder: Encoder,
    sampler: Sampler | Sequence[Sampler],
    seeds: int | Sequence[int],
    settings: Settings | Sequence[Settings] | None = None,
    *,
    objective: Objective = _BPR,
    label: str | None = None,
    protocol: ProtocolName = "honest",
    device: str = "auto",
    ks: tuple[int, ...] = (5, 10, 20),
    hot: str | HotRule | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoints: Path | None = None,
    resume: Resume = False,
    start: tuple[Tensor, Tensor] | None = None,
    stop_on: tuple[str, int] = ("ndcg", STOPPING_K),
    free_start: bool = True,
    race: Sequence[float] | None = None,
) -> Fit:
    """Train R seeds side by side and evaluate them under a protocol.

    `label` is what the model calls its method.
    With a folder for `checkpoints`, `resume` goes on from the newest one there: the result is, on a CPU to
    the last bit, that of a run that was never interrupted; "matching" starts over where that one is of another run.
    `start` are tables to begin with instead of random ones (nan rows stay random). `stop_on` is what the honest
    protocol chooses and stops on; with `free_start` the first epochs from random tables cost no patience. In a `race`
    replicas that are far behind the best are given up; it holds what others, before them, had reached by each epoch.

    Settings in a list belong to one replica each and may differ in lr, weight_decay and l2. Where they or the
    samplers are given so, a seed may come more than once: the same draws under other parameters.
    """
    check_asked(split, protocol, ks)
    where, objective = resolve_device(device), objective.closed()
    settings = settings or Settings()
    alike = isinstance(sampler, Sampler) and isinstance(settings, Settings)
    numbers = seed_numbers(seeds, repeatable=not alike)
    samplers = [sampler] * len(numbers) if isinstance(sampler, Sampler) else list(sampler)
    if len(samplers) != len(numbers):
        raise InputError(f"{len(numbers)} seeds need as many samplers, but {len(samplers)} were given.")
    given = [settings] * len(numbers) if isinstance(settings, Settings) else settings
    each = [one.under(protocol, encoder, split.train, objective) for one in given]
    rule = hot if isinstance(hot, HotRule) else HotRule.parse(hot or protocol)
    hot_mask = rule.mask(split)

    if over_ranks(each[0]):
        split = cast(Split, SpreadSplit.of(split, World.current()))
    held_out = split.test if protocol == "paper" else split.validation
    check_fits(work_of(split.train, held_out, encoder, samplers, each[0], objective, where), where)
    with memory_errors_explained():
        trainer = Trainer(
            split.train, encoder, samplers, numbers, each, where, hot=hot_mask, held_out=held_out, objective=objective
        )
    if start is not None:
        trainer.start_from(start)
    common, ranks = trainer.settings, trainer.work.ranks
    stopping, evaluator = protocol_of(
        protocol, split, common, hot_mask, ks, len(numbers), stop_on,
        free_start=free_start and start is None, race=None if race is None else Race(trainer.steps, race),
    )  # fmt: skip
    identity = {
        "data": {
            name: spread_fingerprint(part) if isinstance(part, SpreadLog) else fingerprint(part)
            for name, part in split.parts().items()
        },
        "encoder": describe_encoder(encoder),
        # A grouping has a number for every item, so the text of a sampler may be long.
        "method": [hashlib.sha256(repr(s).encode()).hexdigest() for s in samplers],
        "objective": repr(objective),
        "settings": asdict(common) if len(set(each)) == 1 else [asdict(one) for one in each],
        "seeds": list(numbers),
        "protocol": [protocol, list(ks), rule.describe(), list(stop_on)],
        "device": where.type,
        "start": "random" if start is None else _digest(start),
        "race": None if race is None else list(race),
        "versions": {"evenhand": evenhand.__version__, "torch": str(torch.__version__)},
    }
    if ranks:
        identity["engine"] = "sharded"
    saved = (SpreadCheckpoints if ranks else Checkpoints)(checkpoints, identity, strict=resume != "matching")
    with exact_repeats(common.deterministic), memory_errors_explained():
        history, seconds = trainer.run(stopping, evaluator, saved, resume=bool(resume), on_epoch=on_epoch)
    chosen = Vectors(*on_cpu(stopping.vectors))
    results = stopping.results()
    if results is None:  # the one look at test
        look = evaluator_of(split.test, split.consumed, hot_mask, ks, users_within_reach(split.test))
        results = reported(look(chosen)) if len(split.test) else {}
    best = int(np.argmax(stopping.value))
    model = FactorModel(
        *chosen,
        known=split.consumed,
        seeds=numbers,
        best=best,
        info={
            "encoder": describe_encoder(encoder),
            "method": label or f"{type(samplers[best]).__name__} with {type(objective).__name__}",
            "sampler": described(samplers[best]),
            "objective": described(objective),
            "settings": asdict(each[best]),
            **_differences(samplers, each),
            "protocol": protocol,
            "split": split.description,
            "hot": rule.describe(),
            "chosen_epochs": [int(e) + 1 for e in stopping.epoch],
            "fingerprint": identity["data"],
            "versions": versions(where),
        },
        history=tuple(history),
        metrics=metrics_json(results),
        tables=None if stopping.tables is None else on_cpu(stopping.tables),
    )
    return Fit(
        model=model,
        results=results,
        validation=stopping.validation,
        epochs=tuple(int(e) + 1 for e in stopping.epoch),
        seconds=seconds,
        notes=(
            *split.notes,
            *trainer.notes,
            *saved.notes,
            *(evaluator.notes if evaluator else ()),
            *_runaway(objective, history, max(each, key=lambda one: one.lr or 0.0)),
        ),
    )


def _runaway(objective: Objective, history: Sequence[Mapping[str, Any]], settings: Settings) -> tuple[str, ...]:
    """A note on a loss that is a number and yet no good; those of other objectives have other scales."""
    last = [one for one in history[-1]["loss"] if one is not None] if history and type(objective) is BPR else []
    loss = max(last, default=0.0)
    if loss <= _ABSURD * math.log(2):
        return ()
    cause = too_high(settings.lr or 0.0, settings.weight_decay or 0.0)
    return (f"The loss ended at {loss:.2g}, where guessing has {math.log(2):.2f}; {cause}.",)


def _digest(tables: tuple[Tensor, Tensor]) -> str:
    digest = hashlib.sha256()
    for table in tables:
        digest.update(table.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def versions(device: torch.device) -> dict[str, str]:
    """Everything that may move a number in the last digits."""
    import pyarrow

    return {
        "evenhand": evenhand.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "pyarrow": pyarrow.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "threads": str(torch.get_num_threads()),
    }


def _differences(samplers: Sequence[Sampler], settings: Sequence[Settings]) -> dict[str, Any]:
    """What each replica was trained with, where they differ."""
    pairs = list(zip(samplers, settings, strict=True))
    if len(set(pairs)) == 1:
        return {}
    return {"replicas": [{"sampler": described(one), "settings": asdict(own)} for one, own in pairs]}
