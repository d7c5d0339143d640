"""How good a list is, how biased, and whether a difference is more than chance.

The room works on arrays of recommended items and never sees a model.
"""

from evenhand.metrics.bias import Rate
from evenhand.metrics.catalogue import METRICS, Metric
from evenhand.metrics.evaluate import Evaluation, EvaluationRow, evaluate
from evenhand.metrics.lists import Lists, read_lists
from evenhand.metrics.statistics import (
    Comparison,
    Interval,
    Summary,
    bootstrap_over_users,
    bootstrap_ratios_over_users,
    compare_metric,
    holm,
    paired_over_seeds,
    summarise,
)
from evenhand.metrics.users import NO_ITEM, UNKNOWN_ITEM, UserMetrics, score_lists

__all__ = [
    "METRICS",
    "NO_ITEM",
    "UNKNOWN_ITEM",
    "Comparison",
    "Evaluation",
    "EvaluationRow",
    "Interval",
    "Lists",
    "Metric",
    "Rate",
    "Summary",
    "UserMetrics",
    "bootstrap_over_users",
    "bootstrap_ratios_over_users",
    "compare_metric",
    "evaluate",
    "holm",
    "paired_over_seeds",
    "read_lists",
    "score_lists",
    "summarise",
]
