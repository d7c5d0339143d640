"""The first five sentences: what holds, what does not, what wins, at what cost, on which hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evenhand.paper.reproduce.people import REFERENCE
from evenhand.paper.reproduce.table import short
from reproduction.files import ENCODERS, SETS, SHOWN, Answers, Results, Table, listed, named, signed
from reproduction.summary import against

NOTHING = "not measured yet."


def opening(results: Results, answers: Answers) -> Iterator[str]:
    tables = results.tables()
    yield f"- **What holds:** {_holds(tables, answers)}"
    yield f"- **What does not:** {_fails(tables, answers)}"
    yield f"- **What wins:** {_wins(results)}"
    yield f"- **At what cost:** {_costs(tables)}"
    yield f"- **On which hardware:** {_hardware(results)}"
    yield ""
    missing = list(results.missing())
    if missing:
        yield f"Not measured yet, so not on this page: {'; '.join(missing)}.\n"
    yield "On Yahoo!-R3 nothing was measured: its licence keeps it from us; the command reads your copy.\n"


def _holds(tables: list[Table], answers: Answers) -> str:
    if not tables:
        return NOTHING
    told = [f"{_beside(one)} ({one.where})" for one in tables]
    beaten = [one.where for one in tables if _beats(one, answers, "rns")]
    counted = [(one.where, *map(len, one.reproduced())) for one in tables]
    rows = [f"{kept} of {asked} ({where})" for where, kept, asked in counted]
    where = "every table" if len(beaten) == len(tables) else listed(beaten) or "no table"
    return (
        f"the paper's own method has precision@5 {listed(told)}; it is more accurate than random "
        f"negatives and over-recommends fewer hits, beyond chance, in {where}; of the paper's rows "
        f"{listed(rows)} come out within .01 of print or within our spread."
    )


def _beside(one: Table) -> str:
    pair = one.pairs(REFERENCE)[0]
    paper = f", paper {short(pair.cell.value)}" if pair.cell else ""
    return f"{short(pair.mean or 0.0)}{paper}"


def _beats(one: Table, answers: Answers, other: str) -> bool:
    found = [against(one, answers, key).get(other) for key in SHOWN]
    return all(claim is not None and claim.holds for claim in found)


def _fails(tables: list[Table], answers: Answers) -> str:
    if not tables:
        return NOTHING
    gaps, strong = [], dict[str, None]()
    for one in tables:
        rows = against(one, answers, SHOWN[0])
        if "dns" in rows and rows["dns"].gap is not None:
            verdict = rows["dns"].text.rpartition(": ")[2].rstrip(".")
            gaps.append(f"{signed(rows['dns'].gap)}, {verdict} ({one.where})")
        strong |= dict.fromkeys(label for label, claim in rows.items() if not claim.holds and label != "dns")
    others = f"; {named(strong)} is not beaten everywhere either" if strong else ""
    lost = sorted({row for one in tables for row in one.reproduced()[1] - one.reproduced()[0]})
    off = (
        f"; and {named(lost)} miss the printed numbers somewhere ([where, why](#where-it-does-not-reproduce))"
    )
    return (
        "that it beats every baseline: against DNS with the same pool of five, precision@5 differs by "
        f"{listed(gaps) or 'an unknown amount'}{others}{off if lost else ''}."
    )


def _wins(results: Results) -> str:
    told = []
    for protocol in ("paper", "honest"):
        for dataset, name in SETS.items():
            tables = results.tables(protocol, dataset)
            if tables:
                most, least = _best(tables, SHOWN[0], 1), _best(tables, SHOWN[2], -1)
                mine = _best(tables, SHOWN[0], 1, REFERENCE), _best(tables, SHOWN[2], -1, REFERENCE)
                told.append(
                    f"on {name}, {protocol} protocol, {most} in precision@5 (AUC-NS {mine[0]}) and "
                    f"{least} in OHR@5 (AUC-NS {mine[1]})"
                )
    return f"{'; '.join(told)}." if told else NOTHING


def _best(tables: list[Table], key: str, sign: int, only: str | None = None) -> str:
    """The best row of several tables, with its encoder where it has one."""
    found = [
        (sign * value, one, label)
        for one in tables
        for label in one.entries
        if only in (None, label) and (value := one.mean(label, key)) is not None
    ]
    value, one, label = max(found, key=lambda each: each[0])
    encoder = f" with {ENCODERS[one.identity['encoder']]}" if "training" in one.entries[label] else ""
    return f"{'' if only else f'`{label}` '}{short(abs(value))}{encoder}"


def _costs(tables: list[Table]) -> str:
    told = []
    for one in tables:
        mine = one.entries[REFERENCE]
        rows = {other: one.entries.get(other) for other in ("rns", "dns", "als", "ease")}
        ratios = [
            f"{_times(mine['seconds'] / row['seconds'])} × `{other}`"
            for other, row in rows.items()
            if row and row["hardware"] == mine["hardware"] and row["seconds"] > 0
        ]
        took = f"{mine['seconds']:.0f} s for {one.identity['seeds']} seeds"
        told.append(f"{took} ({one.where}, {mine['hardware']}): {', '.join(ratios)}".rstrip(": "))
    return f"training AUC-NS takes {'; '.join(told)}." if told else NOTHING


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def _hardware(results: Results) -> str:
    rows = Counter(row["hardware"] for one in results.found.values() for row in one["entries"].values())
    if not rows:
        return NOTHING
    seeds = listed([str(n) for n in sorted({one["identity"]["seeds"] for one in results.found.values()})])
    used = listed([f"{name} ({count} rows)" for name, count in rows.most_common()])
    return f"{used}; {seeds} seeds a row; times are [below](#commands-seeds-hardware-time)."
