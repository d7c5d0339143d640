"""The paper's claims against the paper's own cells, as the tables of docs/claims.md.

.venv/bin/python benchmarks/claims/printed_tables.py
"""

from __future__ import annotations

from statistics import median

from evenhand.methods import METHODS
from evenhand.paper.published import all_cells, better_than, hot_error_beyond_error, standings

METRICS = ("precision", "recall", "f1", "ndcg", "ohr", "ocr", "uhr", "ucr")


def places() -> None:
    print("| metric | best | second | third or worse | the columns that are not best |\n|---|---|---|---|---|")
    for metric in METRICS:
        found = standings(metric)
        rest = [s for s in found if s.place > 1]
        named = ", ".join(f"{s.dataset} {s.encoder} top {s.k} ({s.best})" for s in rest)
        worse = sum(s.place > 2 for s in found)
        print(
            f"| {metric} | {sum(s.place == 1 for s in found)} | {sum(s.place == 2 for s in found)} | {worse} "
            f"| {named if len(rest) < 4 else f'{len(rest)} of 18'} |"
        )


def lower_hot_rate() -> None:
    print("\n| against | OHR lower | ML-100K, ML-1M | Yahoo!-R3 | worst difference |\n|---|---|---|---|---|")
    for other in METHODS:
        if other == "auc-ns":
            continue
        found = better_than(other, "ohr")
        films = [one for one in found if one[0] != "yahoo-r3"]
        yahoo = [one for one in found if one[0] == "yahoo-r3"]
        wins = [f"{sum(one[3] > 0 for one in part)} of {len(part)}" for part in (found, films, yahoo)]
        worst = min(found, key=lambda one: one[3])
        print(f"| `{other}` | {' | '.join(wins)} | {worst[3]:+.4f} ({worst[0]} {worst[1]} top {worst[2]}) |")


def main() -> None:
    places()
    lower_hot_rate()
    print("\n| method | median of abs(OHR - (1 - precision)) | largest |\n|---|---|---|")
    for method in METHODS:
        gaps = [abs(one[3]) for one in hot_error_beyond_error(method)]
        print(f"| `{method}` | {median(gaps):.4f} | {max(gaps):.4f} |")
    reasons = [reason.split(":")[0] for c in all_cells() for reason in c.errata.split("; ") if reason]
    print("\nerrata:", {rule: reasons.count(rule) for rule in sorted(set(reasons))})
    print(f"cells {len(all_cells())}, with errata {sum(bool(c.errata) for c in all_cells())}")


if __name__ == "__main__":
    main()
