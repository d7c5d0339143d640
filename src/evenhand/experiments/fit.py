"""`fit`: a split and a method in, a fitted model out; and what `--explain` says of it beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evenhand.data.popularity import HotRule
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, LightGCN
from evenhand.methods import AnyMethod, method_of
from evenhand.models.base import Model
from evenhand.objectives import Objective
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import users_within_reach
from evenhand.training.method import Conditions, Method
from evenhand.training.settings import EVALUATED_UP_TO, ProtocolName, Settings
from evenhand.utils.progress import OnEpoch, task


def fit(
    split: Split,
    method: AnyMethod = "auc-ns",
    encoder: str | Encoder = "mf",
    seeds: int | Sequence[int] = 3,
    objective: Objective | None = None,
    settings: Settings | None = None,
    *,
    protocol: ProtocolName = "honest",
    k: int | Sequence[int] = (5, 10, 20),
    hot: str | HotRule | None = None,
    device: str = "auto",
    progress: bool | OnEpoch = True,
) -> Model:
    """Fit a method with several seeds and return the model; its `recommend` uses the best seed on validation.

    `method` is a name ("auc-ns", "dns:candidates=2", "ease"), a sampler (also one of your own) or a method
    (`EASE(l2=300)`); `encoder` a name ("mf", "lightgcn") or an encoder. Encoder, objective and settings are for what is
    trained in epochs. `progress` shows a bar, or is called after each epoch with (epochs done, at most, its record).
    """
    one = method_of(method, encoder, settings, objective)
    with task(one.label, show=progress) as on_epoch:
        return one.fit(split, seeds=seeds, protocol=protocol, k=k, hot=hot, device=device, on_epoch=on_epoch).model


def explained(conditions: Conditions, methods: Sequence[Method], encoder: Encoder, settings: Settings) -> Iterator[str]:
    """One line on each thing that a reader of the results would ask about."""
    split, seeds = conditions.split, len(conditions.seeds)
    parts = ", ".join(f"{name} {len(part):,}" for name, part in split.parts().items())
    yield f"data: {split.n_users:,} users × {split.n_items:,} items; pairs: {parts}"
    yield f"split: {split.description}"
    yield f"protocol: {_protocol(conditions, settings.under(conditions.protocol))}"
    yield f"hot items: {int(conditions.hot_items.sum()):,}, by the rule: {conditions.hot.describe()}"
    layers = f" and {encoder.layers} layers" if isinstance(encoder, LightGCN) else ""
    yield (
        f"encoder: {type(encoder).__name__.lower()} with vectors of length {encoder.dim}{layers}; "
        f"{seeds} seed{'s' if seeds > 1 else ''}, side by side, on {conditions.device.type}"
    )
    for method in methods:
        yield method.under(conditions).explain(conditions)


def _protocol(conditions: Conditions, settings: Settings) -> str:
    split = conditions.split
    if conditions.protocol == "paper":
        return f"paper, {settings.epochs} epochs, the best test epoch of each metric counts"
    if split.validation is None or not len(split.validation):
        return f"honest, {settings.epochs} epochs, without a validation part the last one counts"
    patience = "" if settings.patience is None else f" or {settings.patience} without a better one"
    there = split.validation.active_users
    measured = min(there, settings.eval_users or EVALUATED_UP_TO)
    users, sample = split.test.active_users, users_within_reach(split.test)
    tested = "all users" if users <= sample else f"{sample:,} of {users:,} users"
    return (
        f"honest, at most {settings.epochs} epochs{patience}, by NDCG@{min(STOPPING_K, split.n_items)} of "
        f"{measured:,} of {there:,} validation users; one look at test, with {tested}"
    )
