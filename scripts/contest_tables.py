"""The contest in Markdown: a table a split, everyone against EASE and ALS, and what that says of `blend`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from contest_results import AGAINST, Document, Field, Gap, fields

from evenhand.encoders import ENCODERS
from evenhand.methods import METHODS

PAPER = ("ml-100k-paper", "ml-1m-paper")
TITLES = {
    "ml-100k-paper": "ML-100K, the authors' split",
    "ml-1m-paper": "ML-1M, the authors' split",
    "ml-100k-random-0": "ML-100K, random split 0",
    "ml-100k-random-1": "ML-100K, random split 1",
    "ml-100k-random-2": "ML-100K, random split 2",
    "ml-100k-time": "ML-100K, split by time",
}
ACCURACY = ("precision@5", "ndcg@5")
"""Columns whose best is bold; a low OHR alone is cheap: show nothing hot."""
SPREAD = ("precision@5", "ndcg@5", "ohr@5")
"""Columns that show their spread over seeds."""
SHOWN = (*SPREAD, "ocr@5", "uhr@5", "ucr@5", "coverage@10")
LABELS = {"precision": "precision", "ndcg": "NDCG", "coverage": "coverage"}
GAPS = ("precision@5", "ndcg@5", "ohr@5", "ndcg@10", "ohr@10")
OURS = "blend"
_WAYS = {1: "higher than with", -1: "lower than with", 0: "within the uncertainty of"}


def honest_tables(results: Path) -> str:
    """The tables of the two splits that the paper's authors published."""
    there = {field.name: field for field in fields(results) if field.name in PAPER}
    parts = [
        "Every contender tuned on validation with the same number of trials, judged once on test; the best "
        "on validation first, the most accurate on test bold. `python benchmarks/contest.py SPLIT CONTENDER "
        "--data-dir FOLDER` makes a row; its own command, with trials and seeds, is in its file under "
        "`results/contest/`. How it was run, and on more splits: [beyond.md](beyond.md)."
    ]
    for name in PAPER:
        parts += [f"### {title(name)}", _about(there[name]), table(there[name])] if name in there else []
        parts += [_absent(name)] if name not in there else []
    return "\n\n".join(parts) + "\n"


def title(name: str) -> str:
    return TITLES.get(name, name)


def label(key: str) -> str:
    name, _, k = key.partition("@")
    return f"{LABELS.get(name, name.upper())}@{k}"


def tables(found: list[Field]) -> str:
    """Every split: its table, what it was made with, and everyone against the two closed forms."""
    parts = []
    for field in found:
        parts += [f"### {title(field.name)}", _about(field), table(field), _folded(field)]
    parts += [_absent(name) for name in TITLES if name not in {field.name for field in found}]
    return "\n\n".join(parts)


def table(field: Field) -> str:
    """The best on validation first."""
    alone = bool(field.costs)
    heads = ["contender", "validation NDCG@10", *map(label, SHOWN), "seconds" if alone else "seconds a seed"]
    heads += ["memory, MB"]
    best = {key: max(field.documents, key=lambda name: field.mean(name, key) or 0) for key in ACCURACY}
    rows = []
    for name, one in field.documents.items():
        cells = [_cell(one["metrics"][key], key in SPREAD, best.get(key) == name) for key in SHOWN]
        cost = {"seconds": one["seconds"]["a_seed"], "memory": one["memory"]}
        cost = field.costs.get(name) if alone else cost
        spent = ["–", "–"] if cost is None else [_seconds(cost["seconds"]), _memory(cost["memory"])]
        rows.append([f"`{name}`", short(one["validation"]["mean"]), *cells, *spent])
    return "\n\n".join([markdown(heads, rows), *_lacking(field)])


def _lacking(field: Field) -> Iterator[str]:
    """Methods that a reader looks for in vain, where all of them take part."""
    everyone = (f"{encoder}/{method}" for method in METHODS for encoder in ENCODERS)
    lacking = [f"`{name}`" for name in everyone if name not in field.documents]
    if lacking and field.name in PAPER:
        yield f"Not measured yet: {', '.join(lacking)}."


def against_blend(found: list[Field], pooled: dict[tuple[str, str], Gap]) -> str:
    """`blend` − ease and − als on every split and on the random ones together, then a sentence each."""
    heads = ["split", "against", *map(label, GAPS)]
    rows = [
        [title(field.name), f"`{against}`", *(_span(field.gaps.get((OURS, against, key))) for key in GAPS)]
        for field in found
        if OURS in field.documents
        for against in AGAINST
    ]
    if not rows:
        return "Not measured yet."
    for against in AGAINST if pooled else ():
        name = "ML-100K, the three random splits, a user's mean"
        rows.append([name, f"`{against}`", *(_span(pooled.get((against, key))) for key in GAPS)])
    verdicts = [f"- {verdict(field)}" for field in found if OURS in field.documents]
    return markdown(heads, rows) + "\n\n" + "\n".join(verdicts)


def verdict(field: Field) -> str:
    """What can be said of `blend` beyond chance, on one split."""
    said = []
    for key in ("ndcg@5", "ohr@5"):
        ways: dict[str, list[str]] = {}
        for against in AGAINST:
            gap = field.gaps.get((OURS, against, key))
            word = "not compared with" if gap is None else _WAYS[gap.side]
            ways.setdefault(word, []).append(f"`{against}`")
        told = ", ".join(f"{word} {' and '.join(others)}" for word, others in ways.items())
        said.append(f"{label(key)} is {told}")
    place = [*field.documents].index(OURS)
    first = next(iter(field.documents))
    said.append(f"on validation it is {'first' if not place else f'number {place + 1}, after `{first}`'}")
    return f"**{title(field.name)}**: {'; '.join(said)}."


def gap_table(field: Field) -> str:
    """Everyone minus the two closed forms; bold beyond chance, both tests and Holm's adjustment."""
    keys = ("ndcg@5", "ohr@5")
    heads = ["contender", *(f"{label(key)} − `{against}`" for against in AGAINST for key in keys)]
    rows = []
    for name in field.documents:
        found = [field.gaps.get((name, against, key)) for against in AGAINST for key in keys]
        rows.append([f"`{name}`", *map(_span, found)])
    return markdown(heads, rows)


def _folded(field: Field) -> str:
    head = f"Everyone minus {' and '.join(AGAINST)}, with 95 % intervals over users; bold beyond chance"
    return f"<details><summary>{head}</summary>\n\n{gap_table(field)}\n\n</details>"


def _about(field: Field) -> str:
    first = next(iter(field.documents.values()))
    split = first["split"]
    size = ", ".join(f"{part} {split[part]:,}" for part in ("train", "validation", "test"))
    described = split["description"][:1].upper() + split["description"][1:]
    return (
        f"{split['users']:,} users × {split['items']:,} items; pairs: {size}. {described}. "
        f"{made(field.documents.values())}{_timed(field)}"
    )


def _timed(field: Field) -> str:
    machines = dict.fromkeys(f"{one['hardware']}, torch {one['torch']}" for one in field.costs.values())
    return f" Seconds and memory: one model, alone on {'; '.join(machines)}." if machines else ""


def made(documents: Iterable[Document]) -> str:
    """Searches, seeds and hardware behind some results, in a sentence or two."""
    trials, seeds, hardware = set(), set(), dict[str, None]()
    for one in documents:
        trials |= {one["search"]["trials"]} - {0}
        seeds |= {one["seeds"]} - {1}
        hardware[f"{one['hardware']}, torch {one['versions']['torch']}"] = None
    searched = f"{_some(trials)} trials a search, {_some(seeds)} seeds."
    return f"{searched} Made with {'; '.join(hardware)}."


def _some(numbers: set[int]) -> str:
    return " or ".join(map(str, sorted(numbers))) or "no"


def _absent(name: str) -> str:
    return f"{title(name)}: not measured yet."


def _cell(found: dict[str, Any], spread: bool, best: bool) -> str:
    text = short(found["mean"])
    if spread and found["std"] is not None:
        text += f" ± {short(found['std'])}"
    return f"**{text}**" if best else text


def _seconds(taken: float) -> str:
    return f"{taken:,.0f}" if taken >= 10 else f"{taken:.2g}"


def _memory(found: dict[str, float]) -> str:
    gpu = found.get("gpu_peak_mb")
    return f"{found['peak_mb']:,.0f}" + (f" + {gpu:,.0f} GPU" if gpu else "")


def _span(gap: Gap | None) -> str:
    if gap is None:
        return "–"
    text = f"{signed(gap.difference)} ({signed(gap.low)} to {signed(gap.high)})"
    return f"**{text}**" if gap.side else text


def short(number: float | None) -> str:
    """
    >>> short(0.41234), short(None)
    ('.4123', '–')
    """
    return "–" if number is None else f"{number:.4f}".removeprefix("0")


def signed(number: float) -> str:
    """
    >>> signed(-0.0123), signed(0.0123)
    ('−.0123', '+.0123')
    """
    sign = "−" if number < 0 else "+"
    return sign + short(abs(number))


def markdown(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(_lines(heads, rows))


def _lines(heads: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
