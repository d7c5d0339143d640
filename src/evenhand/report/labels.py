"""Which metrics a page shows first and what it calls them; what they mean stands in the catalogue."""

from __future__ import annotations

from collections.abc import Iterable

from evenhand.metrics.catalogue import METRICS, PAGE, Metric


def described(metric: str) -> Metric:
    """The metric as the catalogue has it; one that it does not have is called by its own name.

    >>> described("ohr").title, described("house_metric").title
    ('OHR', 'house metric')
    """
    return METRICS.get(metric) or Metric(metric, metric.replace("_", " "), "", None, "", "")


def titled(metric: str, k: int | str) -> str:
    """
    >>> titled("ndcg", 10)
    'NDCG@10'
    """
    return f"{described(metric).title}@{k}"


def main_groups(metrics: Iterable[str]) -> list[tuple[str, list[str]]]:
    """The metrics of the first screen by group; without any known one, the first six there are."""
    held = list(dict.fromkeys(metrics))
    found = [(title, [m for m in names if m in held]) for title, names in PAGE]
    return [(title, names) for title, names in found if names] or ([("Metrics", held[:6])] if held else [])


def in_order(metrics: Iterable[str]) -> list[str]:
    """Every metric once: the known ones as the catalogue has them, then the others as they came."""
    held = list(dict.fromkeys(metrics))
    return [m for m in METRICS if m in held] + [m for m in held if m not in METRICS]
