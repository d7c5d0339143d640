"""`evenhand methods`: what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from evenhand.cli import options as opt


@dataclass(frozen=True)
class _Line:
    """Something with a name: what it does, where it comes from, and the classes whose parameters it has."""

    name: str
    summary: str
    source: str
    parts: tuple[type, ...]
    parameters: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        from evenhand.experiments.search_space import declared

        ranges, fixed = declared(*self.parts)
        return {
            "name": self.name,
            "summary": self.summary,
            "parameters": dict(self.parameters),
            "ranges": {name: span.to_json() for name, span in ranges.items()},
            "fixed": fixed,
            "source": self.source,
        }

    def cells(self) -> tuple[str, ...]:
        from evenhand.experiments.search_space import declared

        ranges, _ = declared(*self.parts)
        texts = [
            f"{name}={default}" + (f" ({ranges[name]})" if name in ranges else "")
            for name, default in self.parameters.items()
        ]
        return self.name, self.summary, ", ".join(texts) or "–", self.source


def command(json: opt.Json = False) -> None:
    """List methods, encoders and baselines, with their parameters (default and sensible range) and sources."""
    from evenhand.cli import show

    found = {kind: list(lines) for kind, lines in _everything()}
    if json:
        show.print_json({kind: [line.to_json() for line in lines] for kind, lines in found.items()})
        return
    for kind, lines in found.items():
        kind = "baselines" if kind == "rivals" else kind  # its name in JSON documents from before
        headings = (kind.removesuffix("s"), "what it does", "parameters", "source")
        show.print_listing(headings, [line.cells() for line in lines])
    show.print_sentence(
        "\nParameters: name=default (the range that `evenhand tune` searches; :log by orders of magnitude). "
        "METHOD@OTHER is the loss of one method with the negatives of another.",
    )


def _everything() -> Iterator[tuple[str, Iterator[_Line]]]:
    from evenhand.encoders import ENCODERS
    from evenhand.methods import BASELINES, METHODS
    from evenhand.training.settings import Settings

    for kind, entries in (("methods", METHODS), ("rivals", BASELINES)):
        yield kind, (_Line(e.name, e.summary, e.source, e.parts, e.parameters()) for e in entries.values())
    encoders = ((name, _ENCODERS.get(name, ("", "–")), kind) for name, kind in ENCODERS.items())
    yield "encoders", (_Line(name, *texts, (kind,), _defaults(kind)) for name, texts, kind in encoders)
    yield "settings", iter([_Line("training", "how every method is trained", "–", (Settings,), _defaults(Settings))])


def _defaults(kind: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(kind)}


_ENCODERS = {
    "mf": ("inner products of learned vectors", "Koren et al. 2009"),
    "lightgcn": ("vectors averaged over the user-item graph", "He et al. 2020"),
}
