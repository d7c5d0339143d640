"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenhand.cli import options as opt

if TYPE_CHECKING:
    from evenhand.methods import Entry

_ENCODERS = {
    "mf": ("inner products of learned vectors", "Koren et al. 2009"),
    "lightgcn": ("vectors averaged over the user-item graph", "He et al. 2020"),
}


def command(json: opt.Json = False) -> None:
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
