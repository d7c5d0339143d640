"""`fit`: a split and a method in, a fitted model out; and what `--explain` says of it beforehand.

`feedback_loop` fits again and again to the log that its own lists make: the loop that the paper warns of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import HotRule, hot_items
from evenhand.data.simulate import Round, Simulation, simulate_rounds
from evenhand.data.splits import Split
from evenhand.encoders import Encoder, LightGCN
from evenhand.methods import AnyMethod, method_of
from evenhand.models.base import Model
from evenhand.models.topk import top_by
from evenhand.objectives import Objective
from evenhand.training.early_stopping import STOPPING_K
from evenhand.training.evaluation import users_each_epoch, users_within_reach
from evenhand.training.method import Conditions, Method
from evenhand.training.settings import ProtocolName, Settings
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
    measured = min(there, settings.eval_users or users_each_epoch(split.validation))
    users, sample = split.test.active_users, users_within_reach(split.test)
    tested = "all users" if users <= sample else f"{sample:,} of {users:,} users"
    return (
        f"honest, at most {settings.epochs} epochs{patience}, by NDCG@{min(STOPPING_K, split.n_items)} of "
        f"{measured:,} of {there:,} validation users; one look at test, with {tested}"
    )


@dataclass(frozen=True)
class FeedbackRound:
    """One round, measured against the truth that only a simulation has."""

    number: int
    ohr: float
    """Of the hot items a user was shown, the share that the user does not like; the mean over users."""
    precision: float
    """The share of shown items that the user truly likes."""
    exposure_gini: float
    popularity_gini: float
    choice_rate: float


def feedback_loop(
    simulation: Simulation,
    method: AnyMethod = "auc-ns",
    encoder: str | Encoder = "mf",
    n_rounds: int = 5,
    k: int = 10,
    settings: Settings | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
) -> list[FeedbackRound]:
    """Train on the log so far, show everyone k items, add what they choose, and go again.

    Hot items are the top 15 % of the log that the round was trained on.
    """
    one = method_of(method, encoder, settings or Settings(epochs=25))
    hot: list[np.ndarray] = []

    def recommend(log: Interactions) -> np.ndarray:
        hot.append(hot_items(log.popularity))
        nothing = log.take(np.zeros(len(log), dtype=bool))
        model = one.fit(Split(log, None, nothing, "the log so far"), seeds=[seed], device=device).model
        return top_by(model.scorer(0), log.n_items, np.arange(log.n_users), k, exclude=log)[0]

    rounds = simulate_rounds(simulation, recommend, n_rounds, k, seed=seed)
    return [_measured(simulation, turn, was_hot) for turn, was_hot in zip(rounds, hot, strict=True)]


def _measured(simulation: Simulation, turn: Round, hot: np.ndarray) -> FeedbackRound:
    users = np.arange(len(turn.top))[:, None]
    shown = turn.top >= 0
    liked = simulation.truth(users, np.maximum(turn.top, 0)) & shown
    shown_hot = hot[turn.top] & shown
    wrong = (shown_hot & ~liked).sum(1) / np.maximum(shown_hot.sum(1), 1)
    return FeedbackRound(
        number=turn.number,
        ohr=float(wrong.mean()),
        precision=float(liked.sum() / max(1, shown.sum())),
        exposure_gini=turn.exposure_gini,
        popularity_gini=turn.popularity_gini,
        choice_rate=turn.choice_rate,
    )
