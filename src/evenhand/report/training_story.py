"""How the methods of a comparison were trained: curves epoch by epoch, and the spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenhand.experiments.compare import CompareResult
    from evenhand.metrics.statistics import Summary

_NO_CURVE = ("epoch", "seconds", "metrics")


@dataclass(frozen=True)
class Curve:
    """One quantity of one method after each epoch: the mean over seeds, and the range they span."""

    name: str
    """The method's label."""
    quantity: str
    """"loss", "hot_share" and "false_share" (of the sampled negatives), "ndcg@10", "alpha", …"""
    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Spread:
    """One method at one k: every metric, measured once per seed."""

    name: str
    k: int
    metrics: Mapping[str, Summary]


@dataclass(frozen=True)
class TrainingStory:
    """What a report tells of the training behind the lists."""

    sentence: str
    """The sentence that sums the comparison up."""
    protocol: str
    judged_on: str
    """Where the curves of accuracy were measured after each epoch: "validation" or "test"."""
    seeds: int
    curves: tuple[Curve, ...]
    chosen: Mapping[str, tuple[int, ...]]
    """By method: the epoch that each seed's model was taken from, counted from 1."""
    spreads: tuple[Spread, ...]

    @staticmethod
    def of(result: CompareResult) -> TrainingStory:
        """The story of a comparison; baselines have no epochs, and so no curves."""
        return TrainingStory(
            sentence=result.sentence,
            protocol=result.protocol,
            judged_on="test" if result.protocol == "paper" else "validation",
            seeds=len(result.seeds),
            curves=tuple(c for label, fit in result.fits.items() for c in curves_of(label, fit.history)),
            chosen={label: fit.epochs for label, fit in result.fits.items() if fit.epochs},
            spreads=tuple(Spread(row.name, row.k, row.metrics) for row in result.rows),
        )

    def of_quantity(self, quantity: str) -> tuple[Curve, ...]:
        return tuple(curve for curve in self.curves if curve.quantity == quantity)


def curves_of(name: str, history: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Every quantity that a history holds one number a seed of.

    >>> curves_of("rns", [{"epoch": 1, "loss": [0.5, 1.0]}, {"epoch": 2, "loss": [0.5, 0.5]}])[0].mean
    (0.75, 0.5)
    """
    found: dict[str, list[tuple[int, list[float]]]] = {}
    for record in history:
        for quantity, values in _quantities(record):
            numbers = [float(v) for v in values if v is not None and math.isfinite(v)]
            if numbers:
                found.setdefault(quantity, []).append((int(record["epoch"]), numbers))
    return [
        Curve(
            name,
            quantity,
            epochs=tuple(epoch for epoch, _ in points),
            mean=tuple(sum(numbers) / len(numbers) for _, numbers in points),
            low=tuple(min(numbers) for _, numbers in points),
            high=tuple(max(numbers) for _, numbers in points),
        )
        for quantity, points in found.items()
    ]


def _quantities(record: Mapping[str, Any]) -> Iterable[tuple[str, Sequence[float | None]]]:
    plain = {name: values for name, values in record.items() if name not in _NO_CURVE}
    return (plain | dict(record.get("metrics", {}))).items()
