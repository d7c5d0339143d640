"""Commands, seeds, hardware and time of every file; and how long ML-1M was trained."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from evenhand.paper.reproduce.record import Document
from evenhand.paper.reproduce.table import short
from reproduction.files import ENCODERS, Results, Table, number, table, upper

SHARED_GPU = ("NVIDIA H200",)
"""Several rows trained at a time on this one."""
ML_1M_LINE = {
    "auc-ns": (("precision@5", 0.416, 1), ("ohr@5", 0.586, -1)),
    "rns": (("precision@5", 0.360, 1),),
}
"""What MF on ML-1M must reach, and in which direction."""


def costs(results: Results) -> Iterator[str]:
    yield "## Commands, seeds, hardware, time\n"
    yield "One command a file; it adds what is missing, and goes on where it was stopped. Each row of a"
    yield "file has its own command, numbers, versions and seconds. With `--data-dir`, the folder's"
    yield "`paper_train.csv` and `paper_test.csv` are the authors' split; without them a random fifth of"
    yield "the data is the test part.\n"
    rows = [_line(name, document) for name, document in results.found.items() if document["entries"]]
    yield table(["file", "command", "rows × seeds", "hardware", "seconds in all", "longest row"], rows)
    used = {row["hardware"] for one in results.found.values() for row in one["entries"].values()}
    for name in sorted(used & set(SHARED_GPU)):
        yield f"Several rows shared the one {name}: a row alone is faster, and a table took less than the"
        yield "sum. By the clock, 2026-11-15: seven processes at once made LightGCN's eleven trained rows and"
        yield "six of MF's, ML-100K, honest protocol, ten seeds, in 119 s, beside six other trainings; in"
        yield "another batch of fourteen MF's five losses took 148 s. So the table of one protocol takes less"
        yield "than five minutes of one such GPU.\n"
    for encoder, seconds in _per_encoder(results).items():
        yield f"- Everything on ML-100K with {encoder}: {_time(seconds)} of training."
    yield ""


def _per_encoder(results: Results) -> dict[str, float]:
    sums = dict[str, float]()
    for document in results.found.values():
        what = document["identity"]
        if what["dataset"] == "ml-100k":
            name = ENCODERS[what["encoder"]]
            sums[name] = sums.get(name, 0.0) + total(document)
    return sums


def total(document: Document) -> float:
    """Seconds of all rows; values of a sweep that trained together share theirs."""
    return sum(row["seconds"] / row.get("trained_together", 1) for row in document["entries"].values())


def _line(name: str, document: Document) -> list[str]:
    entries: dict[str, Any] = document["entries"]
    hardware = Counter(row["hardware"] for row in entries.values())
    used = [f"{what} ({n} rows)" if len(hardware) > 1 else what for what, n in hardware.most_common()]
    longest = max(entries, key=lambda label: entries[label]["seconds"])
    together = entries[longest].get("trained_together", 1)
    slow = f"`{longest}` {entries[longest]['seconds']:.0f}" if together == 1 else f"{together} values together"
    rows = f"{len(entries)} × {document['identity']['seeds']}"
    whole = f"{total(document):.0f} ({_time(total(document))})"
    return [f"`{name}.json`", f"`{command(entries)}`", rows, ", ".join(used), whole, slow]


def command(entries: dict[str, Any]) -> str:
    """The command of the whole file: that of a row, without its name."""
    words = shlex.split(next(iter(entries.values()))["command"])
    for option in ("--methods", "--values"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    return shlex.join([*words, "--out", "results"])


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"


def on_ml_1m(results: Results) -> Iterator[str]:
    yield "## ML-1M: epochs, and the line to reach\n"
    tables = results.tables(dataset="ml-1m")
    if not tables:
        yield "Not measured yet.\n"
        return
    yield "The released code trains for 500 epochs at most. Here one seed of each row was trained on nine"
    yield f"tenths of train until precision@5 on the last tenth had not risen for {_patience(tables)}"
    yield "epochs; then all seeds were trained as many epochs on all of train.\n"
    trained = [label for one in tables for label in one.entries if "training" in one.entries[label]]
    rows = [[f"`{label}`", *(_epochs(one, label) for one in tables)] for label in dict.fromkeys(trained)]
    yield table(["method", *(f"{one.where}: epochs trained" for one in tables)], rows)
    for one in tables:
        for label, asked in ML_1M_LINE.items() if one.identity["encoder"] == "mf" else ():
            for key, bound, sign in asked:
                yield _reached(one, label, key, bound, sign)
    yield ""


def _patience(tables: list[Table]) -> str:
    found = {one.identity["until"] for one in tables if one.identity.get("until")}
    return "/".join(map(str, sorted(found))) or "20"


def _epochs(one: Table, label: str) -> str:
    row = one.entries.get(label)
    if row is None:
        return "–"
    found = row.get("epochs_found")
    return str(found) if found is not None else f"{row['training']['epochs']} at most, not searched"


def _reached(one: Table, label: str, key: str, bound: float, sign: int) -> str:
    mean = one.mean(label, key)
    line = f"line {'≥' if sign > 0 else '≤'} {short(bound)}"
    if mean is None:
        return f"- {one.where}: {upper(key)} of `{label}` is not measured yet ({line})."
    met = "reached" if sign * (mean - bound) >= 0 else "**missed**"
    (pair,) = one.pairs(label, (key,))
    paper = number(pair.cell.value if pair.cell else None)
    return f"- {one.where}: {upper(key)} of `{label}` {number(mean)}, {line}, paper {paper}: {met}."
