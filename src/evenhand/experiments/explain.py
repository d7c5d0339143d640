"""What a run is going to do, in a few lines, before it does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from evenhand.baselines.run import Challenger
from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, LightGCN
from evenhand.experiments.entrants import Entrant
from evenhand.samplers.auc import dkw_bound
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.memory_estimate import Work, work_of
from evenhand.training.settings import JUDGED_UP_TO, ProtocolName, Settings, resolve_device
from evenhand.utils.memory import available_bytes, gigabytes

_CONFIDENCE = 0.95


def explained(
    split: Split,
    contenders: Sequence[Entrant],
    encoder: Encoder,
    seeds: int,
    settings: Settings,
    *,
    protocol: ProtocolName = "honest",
    hot: str | None = None,
    device: str = "auto",
) -> Iterator[str]:
    """One line on each thing that a reader of the results would ask about."""
    where = resolve_device(device)
    parts = ", ".join(f"{name} {len(part):,}" for name, part in split.parts().items())
    yield f"data: {split.n_users:,} users × {split.n_items:,} items; pairs: {parts}"
    yield f"split: {split.description}"
    yield f"protocol: {_protocol(protocol, settings.under(protocol), split)}"
    rule = HotRule.parse(hot or protocol)
    yield f"hot items: {int(rule.mask(split).sum()):,}, by the rule: {rule.describe()}"
    layers = f" and {encoder.layers} layers" if isinstance(encoder, LightGCN) else ""
    yield (
        f"encoder: {type(encoder).__name__.lower()} with vectors of length {encoder.dim}{layers}; "
        f"{seeds} seed{'s' if seeds > 1 else ''}, side by side, on {where.type}"
    )
    held_out = split.test if protocol == "paper" else split.validation
    for one in contenders:
        if isinstance(one, Challenger):
            yield f"{one.label}: fitted on train once; it is not trained in epochs"
            continue
        samplers = [one.sampler] * seeds
        own = settings.under(protocol, encoder, split.train, one.objective)
        work = work_of(split.train, held_out, encoder, samplers, own, one.objective, where)
        yield f"{one.label}: {'; '.join(_of_work(work, where))}"


def _protocol(protocol: ProtocolName, settings: Settings, split: Split) -> str:
    if protocol == "paper":
        return f"paper, {settings.epochs} epochs, the best test epoch of each metric counts"
    if split.validation is None or not len(split.validation):
        return f"honest, {settings.epochs} epochs, without a validation part the last one counts"
    patience = "" if settings.patience is None else f" or {settings.patience} without a better one"
    there = int((split.validation.activity > 0).sum())
    judged = min(there, settings.eval_users or JUDGED_UP_TO)
    return (
        f"honest, at most {settings.epochs} epochs{patience}, by NDCG@{min(STOPPING_K, split.n_items)} of "
        f"{judged:,} of {there:,} validation users; one look at test, with all users"
    )


def _regularisation(work: Work) -> str:
    used = work.settings
    if used.weight_decay:
        return f"weight decay {used.weight_decay:g} on every row at every step"
    if used.l2:
        return f"L2 {used.l2:g} on the rows of a batch, alike for rare and popular items"
    return "no L2" if work.objective.lengths_matter else "no L2, as cosines do not depend on lengths"


def _of_work(work: Work, device: torch.device) -> Iterator[str]:
    yield f"engine {work.engine}"
    yield f"{'sparse' if work.sparse else 'dense'} updates"
    yield _regularisation(work)
    if work.draws == 0:
        yield f"exact ranks among {work.n_items:,} items"
    elif work.draws is not None:
        yield (
            f"ranks from {work.draws} draws, off by at most {dkw_bound(work.draws, _CONFIDENCE):.2f} "
            f"with {_CONFIDENCE:.0%} confidence"
        )
    needs = sorted(work.needs().items(), key=lambda need: -need[1])[:3]
    largest = ", ".join(f"{what} {gigabytes(size)}" for what, size in needs)
    left = available_bytes(device)
    free = "" if left is None else f" of {gigabytes(left)} free"
    yield f"memory about {gigabytes(work.total)}{free} ({largest})"
