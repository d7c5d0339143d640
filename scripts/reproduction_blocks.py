"""What rests on `evenhand reproduce`: blocks of docs/reproduction.md, claims.md and results.md, and of README.md."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

import charts
from page_text import ENCODERS, SETS, code, label, listed, paragraph, short, signed, spread, table
from reproduction_tables import GOOD, SHOWN, Experiments, Table, papers_row

from evenhand.paper.claims import REFERENCE
from evenhand.paper.experiment import SWEEPS
from evenhand.paper.published import cell, cells
from evenhand.paper.tables import grids

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ"}
FIRST = ("rns", "pns", "dns", "auc-ns")
"""The rows of README's table."""


def blocks(found: Experiments) -> dict[str, dict[str, str]]:
    """A page → the name of a block → its text."""
    return {
        "docs/reproduction.md": {
            "opening": "\n".join(_opening(found)),
            "beside": "\n\n".join(_beside(one) for one in found.overall()),
            "beats": "\n".join(_beats(found)),
            **{part: "\n".join(_sweep(found, part)) for part in SWEEPS},
            "mse": _mse(found),
            "costs": _costs(found),
        },
        "docs/claims.md": {"claims": table(["claim", "holds", "measured", ""], _claim_rows(found))},
        "docs/results.md": {"mse": _mse_table(found)},
        "README.md": {"negatives": _first_table(found), "paper": _in_short(found)},
    }


def _opening(found: Experiments) -> Iterator[str]:
    tables = found.overall()
    pairs = [one.pairs(REFERENCE)[0] for one in tables]
    gaps = [abs(pair.mean - pair.cell.value) for pair in pairs if pair.mean is not None and pair.cell]
    beaten = [one.where for one in tables if all(_better(one, key, "rns") for key in SHOWN)]
    where = "every table" if len(beaten) == len(tables) else listed(beaten) or "no table"
    yield (
        f"- **What holds:** the paper's own method comes within {short(max(gaps))} of its printed precision@5 in all "
        f"{len(gaps)} tables; it is more accurate than random negatives and over-recommends fewer hits, beyond "
        f"chance, in {where}."
    )
    claims = [one.against(SHOWN[0]) for one in tables]
    apart = [rows["dns"].gap or 0.0 for rows in claims if "dns" in rows]
    level = not any(word in rows["dns"].text for rows in claims for word in ("higher beyond", "lower beyond"))
    strong = dict.fromkeys(row for rows in claims for row, one in rows.items() if not one.holds and row != "dns")
    kept, asked = (sum(one.reproduced()[side] for one in tables) for side in (0, 1))
    yield (
        "- **What does not:** that it beats every baseline: against DNS with the same pool of five, precision@5 "
        f"differs by {signed(min(apart))} to {signed(max(apart))}, {'within' if level else 'not always within'} the "
        f"uncertainty; {code(strong)} is not beaten everywhere either; and {kept} of the paper's {asked} rows come out "
        "as printed or near it ([which, why](#where-it-does-not-reproduce))."
    )
    best = listed([_winner(found.overall("paper", name), SETS[name]) for name in SETS])
    yield f"- **What wins:** in precision@5 {best}; with everyone tuned alike: [beyond.md](beyond.md)."
    used = Counter(row["hardware"] for one in found.tables.values() for row in one.entries.values())
    yield f"- **On which hardware:** {listed([f'{name} ({count} rows)' for name, count in used.most_common()])}."
    yield ""
    rows = []
    for one in tables:
        ours, paper, _ = one.pairs(REFERENCE)[0].texts()
        differences = [one.against(SHOWN[0])[other].gap or 0.0 for other in ("rns", "dns")]
        kept, asked = one.reproduced()
        times = [_times(one, other) for other in ("rns", "dns")]
        rows.append([one.where, f"{ours} / {paper}", *map(signed, differences), f"{kept} of {asked}", *times])
    head = ["AUC-NS, precision@5", "ours / paper", "− `rns`", "− `dns`", "rows reproduced", "time × `rns`", "× `dns`"]
    yield table(head, rows)


def _better(one: Table, key: str, other: str) -> bool:
    claim = one.against(key).get(other)
    return bool(claim and claim.holds)


def _winner(tables: list[Table], name: str) -> str:
    def best(only: str | None) -> tuple[float, Table, str]:
        rows = [(one, row) for one in tables for row in one.entries if only in (None, row)]
        return max(((one.mean(row, SHOWN[0]) or 0.0, one, row) for one, row in rows), key=lambda each: each[0])

    value, one, row = best(None)
    ours, ours_in, _ = best(REFERENCE)
    encoder = f" with {ENCODERS[one.identity['encoder']]}" if "training" in one.entries[row] else ""
    mine = f"AUC-NS {short(ours)} with {ENCODERS[ours_in.identity['encoder']]}"
    return f"`{row}` {short(value)}{encoder} on {name} ({mine})"


def _times(one: Table, other: str) -> str:
    """How much longer AUC-NS took than another row on the same hardware."""
    mine, row = one.entries[REFERENCE], one.entries.get(other)
    return f"{mine['seconds'] / row['seconds']:.1f}" if row and row["hardware"] == mine["hardware"] else "–"


def _beside(one: Table) -> str:
    rows = []
    for row in [*one.papers(), *(row for row in one.entries if row not in one.papers())]:
        texts = [pair.texts() for pair in one.pairs(row)]
        numbers = [ours if paper == "–" else f"{ours} / {paper}" for ours, paper, _ in texts]
        rows.append([f"`{row}`", *numbers, one.verdict(row) if papers_row(row) else ""])
    kept, asked = one.reproduced()
    head = f"### {one.where}, {one.identity['seeds']} seeds: {kept} of {asked} rows reproduced or near"
    return f"{head}\n\n{table(['method', *map(label, SHOWN), 'reproduced'], rows)}"


def _beats(found: Experiments) -> Iterator[str]:
    tables = [*found.overall(), *found.overall("honest")]
    yield table(["table", *map(label, SHOWN)], [[one.where, *(_count(one, key) for key in SHOWN)] for one in tables])
    yield ""
    for paper, honest in zip(found.overall(dataset="ml-100k"), found.overall("honest"), strict=False):
        yield _honestly(paper, honest)


def _honestly(paper: Table, honest: Table) -> str:
    """What the honest protocol changes."""
    both = [{row: one.mean(row, SHOWN[0]) or 0.0 for row in honest.entries} for one in (paper, honest)]
    falls = [both[0][row] - both[1][row] for row in honest.entries]
    before, after = (sorted(one, key=lambda row, one=one: -one[row]) for one in both)
    pairs = [(a, b) for n, a in enumerate(before) for b in before[n + 1 :]]
    turned = [f"`{b}` above `{a}`" for a, b in pairs if after.index(a) > after.index(b)]
    which = f" ({', '.join(turned[:3])}{', …' if len(turned) > 3 else ''})" if turned else ""
    return (
        f"- {honest.where}: precision@5 falls by {short(min(falls))} to {short(max(falls))}; of {len(pairs)} pairs of "
        f"methods {len(turned)} change their order{which}."
    )


def _count(one: Table, key: str) -> str:
    rows = one.against(key)
    lost = [row for row, claim in rows.items() if not claim.holds]
    return f"{len(rows) - len(lost)} of {len(rows)}" + (f" (not {code(lost)})" if lost else "")


def _sweep(found: Experiments, part: str) -> Iterator[str]:
    one = found.sweep(part)
    if one is None:
        yield "Not measured yet."
        return
    shown = f"{GREEK[part]}: ours with the band of one more seed, and the paper's numbers"
    yield f"![{shown}](images/{charts.picture(one.name)})\n"
    words = {True: "As claimed", False: "Not as claimed", None: "Cannot tell"}
    for claim in one.claims:
        text = _in_greek(claim.text, part)
        yield f"- {words[claim.holds]}. {text[0].upper()}{text[1:]}"
    pairs = [pair for row in grids(one.document)[0].rows.values() for pair in row if pair.verdict]
    within, near = (sum(pair.verdict == word for pair in pairs) for word in GOOD)
    yield f"- {within} of {len(pairs)} printed numbers lie in our band, {near} more within .01 of ours."
    if part == "beta":
        yield from _negatives(one)


def _negatives(one: Table) -> Iterator[str]:
    """Hot and false share at the published β, over the run and in its first epoch, beside the paper's."""
    shares = ("hot_share", "false_share")
    hot, false = (cell("beta", setting="0.01", metric=name).value for name in shares)
    ours = [short(one.mean("0.01", f"{name}{when}")) for when in ("", "_first_epoch") for name in shares]
    yield (
        f"- Hot and false share of the negatives at β = .01: ours {ours[0]} and {ours[1]} over the run, {ours[2]} and "
        f"{ours[3]} in the first epoch; the paper has {short(hot)} and {short(false)}. What was tried to explain it: "
        "[claims.md](claims.md#the-negatives-behind-the-β-table)."
    )


def _in_greek(text: str, part: str) -> str:
    return text.replace("ohr@", "OHR@").replace(f" {part}", f" {GREEK[part]}")


def missed(found: Experiments) -> set[str]:
    """Rows of the paper that do not come out as printed or near it; each has its reason on the page."""
    rows = [(one, row) for one in found.overall() for row in one.papers()]
    return {papers_row(row) or "" for one, row in rows if one.verdict(row) not in ("yes", "near")}


def _mse(found: Experiments) -> str:
    ranges = []
    for one in found.overall():
        (grid,) = grids(one.document, "errors")
        pairs = [row[grid.columns.index("mse")] for row in grid.rows.values()]
        gaps = [pair.mean - pair.cell.value for pair in pairs if pair.mean is not None and pair.cell]
        ranges.append(f"{signed(min(gaps))} to {signed(max(gaps))} ({one.where})")
    return f"Our reading of the paper's MSE differs from print by {listed(ranges)}."


def _costs(found: Experiments) -> str:
    rows = []
    for one in found.tables.values():
        seconds = sum(row["seconds"] / row.get("trained_together", 1) for row in one.entries.values())
        used = Counter(row["hardware"] for row in one.entries.values())
        words = shlex.split(next(iter(one.entries.values()))["command"])
        for option in ("--methods", "--values"):
            if option in words:
                del words[words.index(option) : words.index(option) + 2]
        sizes = f"{len(one.entries)} × {one.identity['seeds']}"
        rows.append([f"`{shlex.join(words[2:])}`", sizes, ", ".join(used), f"{seconds / 60:.0f} min"])
    return table(["`evenhand reproduce` …", "rows × seeds", "hardware", "training in all"], rows)


def _claim_rows(found: Experiments) -> Iterator[list[str]]:
    """One line per claim that training decides: the claim, its verdict, what was measured, where the evidence is."""
    tables, link = [*found.overall(), *found.overall("honest")], "[evidence](reproduction.md#what-auc-ns-beats)"
    for key, word in zip(SHOWN, ("higher precision@5", "higher NDCG@5", "lower OHR@5"), strict=True):
        counts = "; ".join(f"{one.where}: {_count(one, key)}" for one in tables)
        held = [claim.holds for one in tables for claim in one.against(key).values()]
        yield [f"AUC-NS has a {word} than each of nine baselines", _said(held, "over most"), counts, link]
    gaps, held = [], list[bool | None]()
    for one in tables:
        both = [one.against(key)["dns"] for key in (SHOWN[0], SHOWN[2])]
        held += [claim.holds for claim in both]
        texts = [f"**{signed(c.gap or 0)}**" if c.holds else signed(c.gap or 0) for c in both]
        gaps.append(f"{one.where}: {' / '.join(texts)}")
    measured = f"precision@5 / OHR@5, bold if better beyond chance: {'; '.join(gaps)}"
    yield ["It beats DNS, also with the same pool of five", _said(held), measured, link]
    for part, claim in (
        ("alpha", "Precision over α is an inverted U"),
        ("beta", "Precision over β is an inverted U"),
        ("gamma", "Longer lists want a larger γ"),
    ):
        yield [claim, *_swept(found, part), f"[evidence](reproduction.md#{GREEK[part]})"]
    claim = "A larger β samples more hot and more false negatives, in the printed shares"
    yield [claim, *_shares(found), "[evidence](#the-negatives-behind-the-β-table)"]


def _said(held: list[bool | None], partly: str = "in part") -> str:
    word = "cannot tell" if None in held else "yes" if all(held) else partly if any(held) else "no"
    return f"**{word}**"


def _swept(found: Experiments, part: str) -> tuple[str, str]:
    one = found.sweep(part)
    claims = [claim for claim in (one.claims if one else ()) if "precision" in claim.text]
    return _said([claim.holds for claim in claims]), " ".join(_in_greek(claim.text, part) for claim in claims)


def _shares(found: Experiments) -> tuple[str, str]:
    """Whether both shares rise with β, and how many of the printed ones are ours."""
    one = found.sweep("beta")
    assert one is not None
    (grid,) = grids(one.document)
    message, rising, near = [], [], []
    for name in ("hot", "false"):
        pairs = [row[grid.columns.index(f"{name}_share")] for row in grid.rows.values()]
        means = [pair.mean or 0.0 for pair in pairs]
        rising.append(means[-1] > means[0])
        near += [pair.verdict in GOOD for pair in pairs]
        message.append(f"{name} from {short(means[0])} to {short(means[-1])}")
    said = "**yes**" if all(rising + near) else "**in part**" if any(rising) else "**no**"
    sizes = f"{sum(near)} of {len(near)} printed shares are near ours"
    return said, f"ours, from the smallest to the largest β: {', '.join(message)}; {sizes}"


def _first_table(found: Experiments) -> str:
    """README's first table: four ways to choose negatives, the honest protocol, top 10."""
    one = found.overall("honest")[0]
    keys = ("precision@10", "recall@10", "ndcg@10", "ohr@10", "ocr@10", "uhr@10")
    heads = ["precision ↑", "recall ↑", "NDCG ↑", "over-recommended hits (OHR) ↓"]
    heads += ["over-recommended cold (OCR) ↓", "missed hits (UHR) ↓"]
    names = {"rns": "random", "pns": "by popularity", "dns": "dynamic", "auc-ns": "AUC-optimal"}
    best = {
        key: (max if n < 3 else min)(FIRST, key=lambda row, k=key: one.mean(row, k) or 0) for n, key in enumerate(keys)
    }
    rows = []
    for row in FIRST:
        numbers = [spread(one.entries[row]["metrics"][key]) + "*" * (best[key] == row) for key in keys]
        rows.append([f"{names[row]} (`{row}`)", *numbers])
    claim = one.against("ndcg@5")["dns"]
    assert not claim.holds, "README says that AUC-NS and DNS do not differ beyond chance"
    hardware = listed(list(dict.fromkeys(one.entries[row]["hardware"] for row in FIRST)))
    command = "evenhand reproduce overall --protocol honest --methods rns,pns,dns,auc-ns --seeds 10 --data-dir FOLDER"
    message = paragraph(
        "MovieLens-100K, the split of the paper's authors, matrix factorisation, honest protocol, top 10,",
        f"{one.identity['seeds']} seeds, {hardware} (`{command} --out results`);",
        "± is the standard deviation over seeds, * the best:",
    )
    return f"{message}\n\n{table(['negatives', *heads], rows)}"


def _in_short(found: Experiments) -> str:
    """README's sentence on the paper's tables."""
    mf, *_ = found.overall()
    ml_1m = found.overall(dataset="ml-1m")[0]

    def both(one: Table, row: str, key: str = "precision@5") -> str:
        (pair,) = one.pairs(row, (key,))
        assert pair.mean is not None
        assert pair.cell is not None
        return f"{pair.mean:.3f} (paper {pair.cell.value:.3f})".replace("0.", ".")

    ohr = [f"{mf.mean(row, 'ohr@5'):.3f}".removeprefix("0") for row in ("auc-ns", "dns", "rns")]
    gap = mf.against("precision@5")["dns"]
    assert not gap.holds, "README says that AUC-NS and DNS do not differ beyond chance"
    return paragraph(
        "On ML-100K with the paper's split, settings and protocol, MF, ten seeds: precision@5",
        f"{both(mf, 'auc-ns')} for AUC-NS, {both(mf, 'dns')} for DNS with the same pool of five, {both(mf, 'rns')} for",
        f"random negatives; OHR@5 {ohr[0]}, {ohr[1]} and {ohr[2]}. On ML-1M AUC-NS has {both(ml_1m, 'auc-ns')}.",
        f"Most of the gain over random negatives comes from the pool; what AUC-NS adds to it ({signed(gap.gap or 0)}",
        "on ML-100K) is within the uncertainty.",
    )


def _mse_table(found: Experiments) -> str:
    """docs/results.md: the paper's MSE beside our reading of it."""
    rows = []
    tables = found.overall(dataset="ml-100k")
    for row in ("rns", "fairstatic", "pns", "dns:candidates=2", "dns", "auc-ns"):
        line = [f"`{row}`"]
        for one in tables:
            printed = cells("errors", "ml-100k", one.identity["encoder"], papers_row(row), metric="mse")[0]
            line += [short(printed.value), spread(one.entries[row]["metrics"]["mse"])]
        rows.append(line)
    return table(["method", *(f"{one.where}, {who}" for one in tables for who in ("paper", "ours"))], rows)
