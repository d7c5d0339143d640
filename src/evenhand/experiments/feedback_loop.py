"""The feedback loop the paper warns of, made visible: recommend, let users choose, retrain, look again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.data.simulate import Round, Simulation, simulate_rounds
from evenhand.data.splits import Split
from evenhand.encoders import Encoder
from evenhand.methods import AnyMethod, method_of
from evenhand.models.topk import top_by
from evenhand.training.settings import Settings


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
