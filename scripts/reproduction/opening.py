"""The first five sentences: what holds, what does not, what wins, at what cost, on which hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from evenhand.paper.reproduce.people import REFERENCE
from evenhand.paper.reproduce.table import short
from reproduction.files import (
    ENCODERS,
    SETS,
    SHOWN,
    Answers,
    Results,
    Table,
    listed,
    named,
    signed,
    table,
    upper,
)
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
    if tables:
        yield _in_numbers(tables, answers)
    missing = list(results.missing())
    if missing:
        yield f"Not measured yet, so not on this page: {'; '.join(missing)}.\n"
    yield "On Yahoo!-R3 nothing was measured: its licence keeps it from us; the command reads your copy.\n"


def _holds(tables: list[Table], answers: Answers) -> str:
    pairs = [one.pairs(REFERENCE)[0] for one in tables]
    gaps = [abs(pair.mean - pair.cell.value) for pair in pairs if pair.mean is not None and pair.cell]
    if not gaps:
        return NOTHING
    beaten = [one.where for one in tables if _beats(one, answers, "rns")]
    where = "every table" if len(beaten) == len(tables) else listed(beaten) or "no table"
    return (
        f"the paper's own method comes within {short(max(gaps))} of its printed precision@5 in all "
        f"{len(gaps)} tables; it is more accurate than random negatives and over-recommends fewer hits, "
        f"beyond chance, in {where}."
    )


def _beats(one: Table, answers: Answers, other: str) -> bool:
    found = [against(one, answers, key).get(other) for key in SHOWN]
    return all(claim is not None and claim.holds for claim in found)


def _fails(tables: list[Table], answers: Answers) -> str:
    if not tables:
        return NOTHING
    found = [against(one, answers, SHOWN[0]) for one in tables]
    gaps = [rows["dns"].gap for rows in found if "dns" in rows and rows["dns"].gap is not None]
    verdicts = [rows["dns"].text for rows in found if "dns" in rows]
    ahead, behind = (sum(f"{side} beyond chance" in each for each in verdicts) for side in ("higher", "lower"))
    level = "within the uncertainty in every table"
    sides = f"ahead beyond chance in {ahead} and behind in {behind} of {len(tables)} tables"
    strong = dict.fromkeys(
        label for rows in found for label, claim in rows.items() if not claim.holds and label != "dns"
    )
    others = f"; {named(strong)} is not beaten everywhere either" if strong else ""
    kept, asked = (sum(len(one.reproduced()[side]) for one in tables) for side in (0, 1))
    apart = f"{signed(min(gaps))} to {signed(max(gaps))}" if gaps else "an unknown amount"
    return (
        "that it beats every baseline: against DNS with the same pool of five, precision@5 differs by "
        f"{apart}, {sides if ahead or behind else level}{others}; and {kept} of the "
        f"paper's {asked} rows come out as printed or near it ([which, why](#where-it-does-not-reproduce))."
    )


def _wins(results: Results) -> str:
    told = []
    for key, sign in ((SHOWN[0], 1), (SHOWN[2], -1)):
        best = [
            f"{_best(tables, key, sign)} on {name} (AUC-NS {_best(tables, key, sign, REFERENCE)})"
            for dataset, name in SETS.items()
            if (tables := results.tables("paper", dataset))
        ]
        told += [f"in {upper(key)} {listed(best)}"] if best else []
    after = "who wins with everyone tuned alike: [the honest table](#the-honest-table)"
    return f"{'; '.join(told)}; {after}." if told else NOTHING


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
    spans = []
    for other in ("rns", "dns"):
        found = [ratio for one in tables if (ratio := _ratio(one, other))]
        if found:
            spans.append(f"{_times(min(found))} to {_times(max(found))} × the time of `{other}`")
    if not spans:
        return NOTHING
    alone = "what each contender takes alone is in [the honest table](#the-honest-table)"
    return f"training with AUC-NS takes {listed(spans)}, roughly, since rows shared the machine; {alone}."


def _ratio(one: Table, other: str) -> float | None:
    """How much longer AUC-NS took than another row on the same hardware."""
    mine, row = one.entries[REFERENCE], one.entries.get(other)
    if not row or row["hardware"] != mine["hardware"] or not row["seconds"]:
        return None
    return float(mine["seconds"] / row["seconds"])


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def _in_numbers(tables: list[Table], answers: Answers) -> str:
    """The same, table by table."""
    rows = []
    for one in tables:
        ours, paper, _ = one.pairs(REFERENCE)[0].texts()
        gaps = (against(one, answers, SHOWN[0]).get(other) for other in ("rns", "dns"))
        kept, asked = map(len, one.reproduced())
        seconds = f"{one.entries[REFERENCE]['seconds']:.0f} s, {one.identity['seeds']} seeds"
        rows.append([
            one.where,
            f"{ours} / {paper}",
            *("–" if gap is None or gap.gap is None else signed(gap.gap) for gap in gaps),
            f"{kept} of {asked}",
            seconds,
            *(_times(_ratio(one, other)) for other in ("rns", "dns")),
        ])  # fmt: skip
    head = ["AUC-NS, precision@5", "ours / paper", "− `rns`", "− `dns`", "rows as printed or near"]
    return table([*head, "training", "× `rns`", "× `dns`"], rows)


def _hardware(results: Results) -> str:
    rows = Counter(row["hardware"] for one in results.found.values() for row in one["entries"].values())
    if not rows:
        return NOTHING
    seeds = listed([str(n) for n in sorted({one["identity"]["seeds"] for one in results.found.values()})])
    used = listed([f"{name} ({count} rows)" for name, count in rows.most_common()])
    return f"{used}; {seeds} seeds a row; times are [below](#commands-seeds-hardware-time)."
