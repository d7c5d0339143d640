"""The compact tables: ours beside the paper's, and what AUC-NS beats."""

from __future__ import annotations

from collections.abc import Iterator

from evenhand.paper.reproduce.claims import Claim
from evenhand.paper.reproduce.people import REFERENCE
from evenhand.paper.reproduce.table import NEAR, short
from reproduction.files import SHOWN, Answers, Results, Table, number, table, upper

HOW = f"""Ours / paper, under the paper's protocol, which picks the best test epoch. Reproduced is **yes**
if in all three metrics our next seed may have the printed number (95 % interval for one more seed),
**near** if all lie within {short(NEAR).rstrip("0")} of it, else **no**. A number with ! cannot be right,
or contradicts another ([claims.md](claims.md)).
"""


def summary(results: Results) -> Iterator[str]:
    yield "## Ours beside the paper's\n"
    yield HOW
    for one in results.tables():
        seeds = one.identity["seeds"]
        kept, asked = one.reproduced()
        yield f"### {one.where}, {seeds} seeds: {len(kept)} of {len(asked)} rows reproduced or near\n"
        rows = [[f"`{label}`", *_numbers(one, label), one.verdict(label)] for label in one.papers()]
        rows += [[f"`{label}`", *_numbers(one, label), ""] for label in one.others()]
        yield table(["method", *map(upper, SHOWN), "reproduced"], rows)


def _numbers(one: Table, label: str) -> list[str]:
    texts = [pair.texts() for pair in one.pairs(label)]
    return [f"{ours} / {paper}" if paper != "–" else ours for ours, paper, _ in texts]


def answers(results: Results, claims: Answers) -> Iterator[str]:
    """The claims about the large tables, in one table, and every difference behind them."""
    yield "## What AUC-NS beats\n"
    yield "The paper claims higher accuracy and a lower OHR than all nine baselines. These AUC-NS beats"
    yield "beyond chance: by a paired t test over seeds, Holm-corrected over all rows, and by a bootstrap"
    yield "over users.\n"
    tables = [*results.tables(), *results.tables("honest")]
    yield table(
        ["table", "protocol", *map(upper, SHOWN)],
        [[one.where, one.identity["protocol"], *_counts(one, claims)] for one in tables],
    )


def _counts(one: Table, claims: Answers) -> Iterator[str]:
    """7 of 9 (not `dns`, `bc-loss`), among the paper's own rows."""
    for key in SHOWN:
        rows = against(one, claims, key)
        kept = [f"`{label}`" for label, claim in rows.items() if not claim.holds]
        but = f" (not {', '.join(kept)})" if kept else ""
        yield f"{len(rows) - len(kept)} of {len(rows)}{but}" if rows else "–"


def against(one: Table, claims: Answers, key: str) -> dict[str, Claim]:
    """AUC-NS against each of the paper's other rows."""
    found = {claim.other: claim for claim in claims[one.name] if claim.metric == key}
    rows = [label for label in one.papers() if label != REFERENCE and not set(":@") & set(label)]
    return {label: found[label] for label in rows if label in found}


def differences(claims: list[Claim]) -> str:
    """AUC-NS minus every other row, in every metric and k."""
    claims = [claim for claim in claims if claim.metric]
    if not claims:
        return ""
    metrics = list(dict.fromkeys(claim.metric for claim in claims if claim.other))
    found = {(claim.other, claim.metric): claim for claim in claims}
    others = dict.fromkeys(claim.other for claim in claims if claim.other)
    rows = [[f"`{other}`", *(_gap(found[other, metric]) for metric in metrics)] for other in others]
    head = "AUC-NS − the other row; bold where it is better beyond chance over seeds (Holm) and over users:\n\n"
    return head + table(["against", *metrics], rows)


def _gap(claim: Claim) -> str:
    if claim.gap is None:
        return "–"
    text = f"{claim.gap:+.4f}".replace("-", "−").replace("0.", ".", 1)
    return f"**{text}**" if claim.holds else text


def order(one: Table, key: str = "precision@5") -> list[str]:
    """The rows, best first."""
    known = [label for label in one.entries if one.mean(label, key) is not None]
    return sorted(known, key=lambda label: -(one.mean(label, key) or 0.0))


def protocols(results: Results, claims: Answers) -> Iterator[str]:
    """What of ML-100K remains when nothing is chosen on test."""
    yield "## Both protocols, ML-100K\n"
    both = [
        (paper, honest)
        for paper in results.tables(dataset="ml-100k")
        for honest in results.tables("honest", "ml-100k")
        if paper.identity["encoder"] == honest.identity["encoder"]
    ]
    if not both:
        yield "Not measured yet: there is no table under the honest protocol.\n"
        return
    yield "The honest protocol trains on nine tenths of train, stops on the last tenth, looks at test"
    yield "once, and calls items hot by train counts. So numbers fall for two reasons: less data, and no"
    yield "choice on test.\n"
    for paper, honest in both:
        yield f"### {paper.where}\n"
        yield from _side_by_side(paper, honest)
        yield from _what_remains(paper, honest, claims)


def _side_by_side(paper: Table, honest: Table) -> Iterator[str]:
    before, after = order(paper), order(honest)
    shared = [label for label in before if label in after]
    before, after = ([label for label in side if label in shared] for side in (before, after))
    rows = []
    for label in shared:
        values = [f"{number(paper.mean(label, k))} → {number(honest.mean(label, k))}" for k in SHOWN]
        rows.append([f"`{label}`", *values, f"{1 + before.index(label)} → {1 + after.index(label)}"])
    yield table(["method", *(f"{upper(k)}, paper → honest" for k in SHOWN), "place in precision@5"], rows)
    pairs = [(a, b) for n, a in enumerate(before) for b in before[n + 1 :]]
    turned = [(a, b) for a, b in pairs if after.index(a) > after.index(b)]
    named = ", ".join(f"`{b}` above `{a}`" for a, b in turned[:6])
    more = ", …" if len(turned) > 6 else ""
    told = f" ({named}{more})" if turned else ""
    yield f"Of {len(pairs)} pairs of methods {len(turned)} change their order in precision@5{told}.\n"


def _what_remains(paper: Table, honest: Table, claims: Answers) -> Iterator[str]:
    for key in SHOWN:
        was, now = (
            {label for label, claim in against(one, claims, key).items() if claim.holds} for one in (paper, honest)
        )
        shared = set(against(paper, claims, key)) & set(against(honest, claims, key))
        both = sorted(was & now)
        lost, won = (sorted(f"`{name}`" for name in side & shared) for side in (was - now, now - was))
        news = [f"no longer {', '.join(lost)}"] if lost else []
        news += [f"now also {', '.join(won)}"] if won else []
        told = f": {'; '.join(news)}" if news else ""
        yield f"- {upper(key)}: AUC-NS beats {len(both)} of {len(shared)} baselines under both{told}."
    yield ""
