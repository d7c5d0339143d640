"""What there is to choose from: `evenhand methods` and `evenhand metrics`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evenhand.cli import options as opt

if TYPE_CHECKING:
    from evenhand.methods import Entry

_ENCODERS = {
    "mf": ("inner products of learned vectors", "Koren et al. 2009"),
    "lightgcn": ("vectors averaged over the user-item graph", "He et al. 2020"),
}


def methods(json: opt.Json = False) -> None:
    """List methods, encoders and baselines, with their parameters (default and sensible range) and sources."""
    from evenhand.cli import show
    from evenhand.encoders import ENCODERS
    from evenhand.methods import BASELINES, METHODS, Entry
    from evenhand.training.settings import Settings

    encoders = [Entry(name, (kind,), *_ENCODERS.get(name, ("", "–"))) for name, kind in ENCODERS.items()]
    settings = [Entry("training", (Settings,), "how every method is trained", "–")]
    found = {"methods": METHODS.values(), "rivals": BASELINES.values(), "encoders": encoders, "settings": settings}
    if json:
        show.print_json({kind: [_document(entry) for entry in entries] for kind, entries in found.items()})
        return
    for kind, entries in found.items():
        kind = "baselines" if kind == "rivals" else kind  # its name in JSON documents from before
        headings = (kind.removesuffix("s"), "what it does", "parameters", "source")
        show.print_listing(headings, [_cells(entry) for entry in entries])
    show.print_sentence(
        "\nParameters: name=default (the range that `evenhand tune` searches; :log by orders of magnitude). "
        "METHOD@OTHER is the loss of one method with the negatives of another."
    )


def _document(entry: Entry) -> dict[str, Any]:
    from evenhand.experiments.search_space import declared

    ranges, fixed = declared(*entry.parts)
    return {
        "name": entry.name,
        "summary": entry.summary,
        "parameters": entry.parameters(),
        "ranges": {name: span.to_json() for name, span in ranges.items()},
        "fixed": fixed,
        "source": entry.source,
    }


def _cells(entry: Entry) -> tuple[str, ...]:
    from evenhand.experiments.search_space import declared

    ranges, _ = declared(*entry.parts)
    texts = [
        f"{name}={default}" + (f" ({ranges[name]})" if name in ranges else "")
        for name, default in entry.parameters().items()
    ]
    return entry.name, entry.summary, ", ".join(texts) or "–", entry.source


def metrics(json: opt.Json = False) -> None:
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
