"""The training behind the lists, as curves and their charts: accuracy and bias by epoch, what the negatives were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from evenhand.experiments.output import carried_on
from evenhand.report import charts
from evenhand.report.charts import Figure
from evenhand.report.render import brief, clean, listing, number, percent

if TYPE_CHECKING:
    from evenhand.experiments.compare import CompareResult, Row

MOST_QUANTITIES = 8
NEGATIVES = {
    "hot_share": ("Hot negatives", "hot items", "The share of hot items among the sampled negatives, epoch by epoch."),
    "false_share": (
        "False negatives",
        "items the user did want",
        "The share of false negatives, which are held-out items of the same user, among those sampled.",
    ),
}
"""Name, what the negatives are, caption."""


def training_figures(story: TrainingStory, systems: Sequence[str]) -> list[Figure]:
    """Accuracy, over-recommendation and loss by epoch, then the negatives and what samplers report."""
    held = dict.fromkeys(curve.quantity for curve in story.curves if curve.name in systems)
    ks = [q.partition("@")[2] for q in held if q.startswith(("ndcg@", "ohr@"))]
    k = "10" if "10" in ks else next(iter(ks), None)
    # A parameter that stayed where it was set needs no chart.
    moving = {curve.quantity for curve in story.curves if max(curve.high) - min(curve.low) > 1e-9}
    rest = [q for q in held if "@" not in q and q not in ("loss", *NEGATIVES) and q in moving]
    order = [f"ndcg@{k}", f"ohr@{k}", "loss", *NEGATIVES, *rest]
    return [_figure(story, q, systems) for q in order if q in held][:MOST_QUANTITIES]


def _figure(story: TrainingStory, quantity: str, systems: Sequence[str]) -> Figure:
    curves = [c for c in story.curves if c.quantity == quantity and c.name in systems]
    called = _called(quantity)
    title, caption = _words(story, quantity, called, curves)
    share = quantity in NEGATIVES
    shown = percent if share else number
    layers: list[alt.Chart] = []
    for curve in curves:
        place = systems.index(curve.name)
        layers += _line(curve, place, story.seeds > 1)
        at = _chosen(story, curve)
        tip = f"{clean(curve.name)}, epoch {curve.epochs[at]} (chosen): {called} {shown(curve.mean[at])}"
        layers.append(charts.points([{"epoch": curve.epochs[at], "value": curve.mean[at], "tip": tip}], place, 70))
    chart = alt.layer(*layers).encode(
        x=charts.axis(alt.X, "epoch", "Epoch", ticks=6, grid=False, tickMinStep=1, format="d"),
        y=charts.axis(alt.Y, "value", None, share=share, domain=False, scale=alt.Scale(zero=share)),
    )
    spoken = "; ".join(f"{clean(c.name)}: {shown(c.mean[0])} at first, {shown(c.mean[-1])} at the end" for c in curves)
    return Figure(
        f"training-{quantity.replace('@', '-')}",
        title,
        caption,
        (charts.svg(chart, 220, f"{called} by epoch. {spoken}."),),
        charts.legend((c.name for c in curves), systems),
        ("system", "epochs", "first", "lowest", "highest", "last"),
        [(c.name, str(c.epochs[-1]), *map(shown, (c.mean[0], min(c.mean), max(c.mean), c.mean[-1]))) for c in curves],
    )


def _called(quantity: str) -> str:
    if quantity in NEGATIVES:
        return NEGATIVES[quantity][0]
    metric, _, k = quantity.partition("@")
    return f"{metric.upper()}@{k}" if k else "Loss" if quantity == "loss" else metric.replace("_", " ")


def _words(story: TrainingStory, quantity: str, called: str, curves: Sequence[Curve]) -> tuple[str, str]:
    where = story.judged_on
    stopped = " A seed that has stopped counts with its last value." if story.seeds > 1 else ""
    marks = f"the band spans the seeds, the mark is the chosen epoch.{stopped}"
    if quantity in NEGATIVES:
        return _negatives_title(NEGATIVES[quantity][1], curves), NEGATIVES[quantity][2]
    if quantity.startswith("ndcg@"):
        best = max(curves, key=lambda c: max(c.mean))
        climbs = "climbs highest" if len(curves) > 1 else "climbs"
        title = f"{brief(best.name)} {climbs} on {where}, to {called} {number(max(best.mean))}"
        return title, f"{called} on {where} after each epoch; {marks}"
    if quantity.startswith("ohr@"):
        best = min(curves, key=lambda c: c.mean[-1])
        title = f"{brief(best.name)} ends with {called} {number(best.mean[-1])} on {where}"
        least = ", the least over-recommendation of hot items" if len(curves) > 1 else ""
        return title + least, f"{called} on {where} after each epoch, less is better; {marks}"
    if quantity == "loss":
        return "How the loss falls", "Losses of different methods are not comparable, only their shapes are."
    return f"How {called} moves in training", f"What the sampler reports of itself, {called}; {marks}"


def _negatives_title(what: str, curves: Sequence[Curve]) -> str:
    ends = [(brief(c.name), c.mean[-1]) for c in curves]
    if len(ends) > 3:
        ends = [min(ends, key=lambda e: e[1]), max(ends, key=lambda e: e[1])]
    (name, share), *rest = ends
    first = f"{percent(share)} of {name}’s negatives are {what}"
    return f"In the last epoch {listing([first, *(f'{percent(s)} of {n}’s' for n, s in rest)])}"


def _line(curve: Curve, place: int, band: bool) -> list[alt.Chart]:
    rows = [
        {"epoch": e, "value": m, "low": low, "high": high}
        for e, m, low, high in zip(curve.epochs, curve.mean, curve.low, curve.high, strict=True)
    ]
    layers = [charts.line(rows, place)]
    if band:
        area = charts.chart(rows).mark_area(color=charts.colour_of(place), opacity=0.16, aria=False)
        layers.insert(0, area.encode(y="low:Q", y2="high:Q"))
    return layers


def _chosen(story: TrainingStory, curve: Curve) -> int:
    """Where in the curve the chosen epoch is, the middle one of the seeds; a mark there tells lines apart."""
    epochs = sorted(story.chosen.get(curve.name, ())) or [curve.epochs[-1]]
    wanted = epochs[len(epochs) // 2]
    return min(range(len(curve.epochs)), key=lambda n: abs(curve.epochs[n] - wanted))


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
class TrainingStory:
    """What a report tells of the training behind the lists."""

    protocol: str
    judged_on: str
    """Where the curves of accuracy were measured after each epoch: "validation" or "test"."""
    seeds: int
    curves: tuple[Curve, ...]
    chosen: Mapping[str, tuple[int, ...]]
    """By method: the epoch that each seed's model was taken from, counted from 1."""
    spreads: tuple[Row, ...]

    @staticmethod
    def of(result: CompareResult) -> TrainingStory:
        """The story of a comparison; baselines have no epochs, and so no curves."""
        return TrainingStory(
            protocol=result.protocol,
            judged_on="test" if result.protocol == "paper" else "validation",
            seeds=len(result.seeds),
            curves=tuple(c for label, fit in result.fits.items() for c in curves_of(label, fit.history)),
            chosen={label: fit.epochs for label, fit in result.fits.items() if fit.epochs},
            spreads=result.rows,
        )


def curves_of(name: str, history: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Every quantity that a history holds one number a seed of; a seed that has stopped counts with its last one.

    >>> curves_of("rns", [{"epoch": 1, "loss": [0.5, 1.0]}, {"epoch": 2, "loss": [0.5, 0.5]}])[0].mean
    (0.75, 0.5)
    """
    found: dict[str, list[tuple[int, list[float]]]] = {}
    for record in carried_on(history):
        plain = {name: values for name, values in record.items() if name not in ("epoch", "seconds", "metrics")}
        for quantity, values in (plain | dict(record.get("metrics", {}))).items():
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
