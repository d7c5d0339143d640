"""`evenhand metrics`: every metric there is, with its meaning and formula."""

from __future__ import annotations

import math

from evenhand.cli import options as opt


def command(json: opt.Json = False) -> None:
    """List every metric: meaning, formula, which way is better, range and average."""
    from evenhand.cli import show
    from evenhand.metrics.catalogue import METRICS

    if json:
        show.print_json({"metrics": [metric.to_json() for metric in METRICS.values()]})
        return

    def end(value: float) -> str:
        return "∞" if math.isinf(value) else f"{value:g}"

    rows = [
        (
            f"{one.name} {one.arrow}".rstrip(),
            one.group,
            one.meaning,
            one.formula,
            one.average,
            f"{end(one.low)}…{end(one.high)}",
        )
        for one in METRICS.values()
    ]
    show.print_listing(("metric", "group", "what it says", "formula", "average", "range"), rows)
    show.print_sentence(
        "\n↑ higher is better, ↓ lower. Averages: users (mean over all), served (over users with a list), paper (over "
        "all, an empty denominator as 0), defined (over users with a denominator), pooled (of sums over all users), "
        "items (of every item's slots). docs/metrics.md defines the symbols."
    )
