"""Which metrics a page shows first and what it calls them; what they mean stands in the audit's catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from evenhand.metrics.catalogue import METRICS, PAGE


def short(metric: str) -> str:
    """The metric's title; one that is not known is called by its own name.

    >>> short("ohr"), short("house_metric")
    ('OHR', 'house metric')
    """
    return METRICS[metric].title if metric in METRICS else metric.replace("_", " ")


def meaning(metric: str) -> str:
    """What the metric says, in words; empty for one that is not known."""
    return METRICS[metric].meaning if metric in METRICS else ""


def higher_is_better(metric: str) -> bool | None:
    """None where neither is better, or where nobody says."""
    return METRICS[metric].higher_is_better if metric in METRICS else None


def main_groups(metrics: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The metrics of the first screen by group; without any known one, the first six there are."""
    held = list(dict.fromkeys(metrics))
    found = [(title, [m for m in names if m in held]) for title, names in PAGE]
    return [(title, names) for title, names in found if names] or ([("Metrics", held[:6])] if held else [])


def in_order(metrics: Iterable[str]) -> list[str]:
    """Every metric once: the known ones as the catalogue has them, then the others as they came."""
    held = list(dict.fromkeys(metrics))
    return [m for m in METRICS if m in held] + [m for m in held if m not in METRICS]
