"""The table that opens docs/claims.md: one line a claim, its verdict, and where the evidence is.

What training has to decide is read from the results; the rest was decided by the scripts that the page names.
"""

from __future__ import annotations

from collections.abc import Iterator

from evenhand.paper.reproduce.claims import Claim
from evenhand.paper.reproduce.table import grids, short
from reproduction.files import GOOD, SHOWN, Answers, Results, Table, named, signed, table
from reproduction.summary import against
from reproduction.sweeps import in_greek

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
PAGE = "reproduction.md"
OPEN = ("not measured yet", "")
SETTLED = (
    (
        "OHR falls in the paper's own tables, on all three data sets",
        "no",
        "lower than with random negatives in all 12 MovieLens columns, higher in 5 of 6 of Yahoo!-R3",
        "#in-the-papers-own-words",
    ),
    (
        "The printed cells fit together",
        "not all",
        "76 of 1,749 cannot be right, or contradict another",
        "#cells-that-cannot-be-right",
    ),
    (
        "Theorem 1: the rule picks the negative that most raises the partial AUC",
        "at γ = 1",
        "below it the printed rule lacks an indicator, and misses the best of five in up to nine of ten draws",
        "#theorem-1-the-rule-is-optimal",
    ),
    (
        "Proposition 1: bias is MSE less a constant",
        "no",
        "MSE = bias + variance + noise holds, but the variance is no constant",
        "#propositions-1-and-2-bias-is-mse-less-a-constant-and-about-fpr--fnr",
    ),
    (
        "Proposition 2: bias is about FPR + FNR",
        "no",
        ".096 against .936 in a simulated world; the weights are missing",
        "#propositions-1-and-2-bias-is-mse-less-a-constant-and-about-fpr--fnr",
    ),
    (
        "P(TN given x) is a probability",
        "its order only",
        "where it says .88, .72 are true negatives (reliability curve); a constant has a better Brier score",
        "#is-ptnx-calibrated",
    ),
    (
        "The cost is linear in the catalogue, as that of random negatives",
        "half",
        "exact ranks are linear; random negatives are not, nor is a rank from 64 draws",
        "#complexity-linear-in-the-catalogue-as-random-negative-sampling",
    ),
)


def verdicts(results: Results, answers: Answers) -> str:
    """The block between the marks in docs/claims.md."""
    lines = _lines(results, answers)
    rows = [[claim, f"**{said}**", why, f"[evidence]({link})"] for claim, said, why, link in lines]
    return f"{BEGIN}\n{table(['claim', 'holds', 'measured', ''], rows)}{END}"


def placed(page: str, block: str) -> str:
    """The page with its block replaced."""
    before, rest = page.split(BEGIN)
    return before + block + rest.split(END)[1]


def _lines(results: Results, answers: Answers) -> Iterator[tuple[str, str, str, str]]:
    tables = [*results.tables(), *results.tables("honest")]
    for key, word in zip(SHOWN, ("higher precision@5", "higher NDCG@5", "lower OHR@5"), strict=True):
        found = _against_all(tables, answers, key)
        yield f"AUC-NS has a {word} than each of nine baselines", *found, f"{PAGE}#what-auc-ns-beats"
    yield (
        "It beats DNS, also with the same pool of five",
        *_against_dns(tables, answers),
        f"{PAGE}#what-auc-ns-beats",
    )
    yield "Precision over α is an inverted U", *_sweep(results, answers, "alpha"), f"{PAGE}#α"
    yield "Precision over β is an inverted U", *_sweep(results, answers, "beta"), f"{PAGE}#β"
    yield (
        "A larger β samples more hot and more false negatives, in the printed shares",
        *_shares(results),
        "#the-negatives-behind-the-β-table",
    )
    yield "Longer lists want a larger γ", *_sweep(results, answers, "gamma"), f"{PAGE}#γ"
    yield from SETTLED


def _against_all(tables: list[Table], answers: Answers, key: str) -> tuple[str, str]:
    told, all_of_them = [], True
    for one in tables:
        rows = against(one, answers, key)
        lost = [label for label, claim in rows.items() if not claim.holds]
        all_of_them = all_of_them and not lost
        but = f", not {named(lost)}" if lost else ""
        told.append(f"{len(rows) - len(lost)} of {len(rows)}{but} ({_name(one)})")
    if not told:
        return OPEN
    return "yes" if all_of_them else "over most", "; ".join(told)


def _against_dns(tables: list[Table], answers: Answers) -> tuple[str, str]:
    told, held = [], []
    for one in tables:
        found = [against(one, answers, key).get("dns") for key in (SHOWN[0], SHOWN[2])]
        gaps = []
        for claim in (claim for claim in found if claim is not None and claim.gap is not None):
            held.append(claim.holds)
            text = signed(claim.gap or 0.0)
            gaps.append(f"**{text}**" if claim.holds else text)
        told += [f"{' / '.join(gaps)} ({_name(one)})"] if gaps else []
    if not told:
        return OPEN
    said = "yes" if all(held) else "in part" if any(held) else "no"
    return said, f"precision@5 / OHR@5, bold if better beyond chance: {'; '.join(told)}"


def _name(one: Table) -> str:
    return one.where if one.identity["protocol"] == "paper" else f"{one.where}, honest"


def _sweep(results: Results, answers: Answers, part: str) -> tuple[str, str]:
    name = next((name for name, one in results.found.items() if one["identity"]["part"] == part), None)
    found: list[Claim] = [claim for claim in answers.get(name or "", []) if "precision" in claim.text]
    if not found:
        return OPEN
    held = [claim.holds for claim in found]
    said = "yes" if all(held) else "cannot tell" if None in held else "in part" if any(held) else "no"
    return said, " ".join(in_greek(claim.text, part) for claim in found)


def _shares(results: Results) -> tuple[str, str]:
    """Whether both shares rise with β, and how many of the printed ones are ours."""
    document = results.sweep("beta")
    if document is None:
        return OPEN
    (grid,) = grids(document)
    told, rising, near = [], [], []
    for name in ("hot", "false"):
        pairs = [row[grid.columns.index(f"{name}_share")] for row in grid.rows.values()]
        means = [pair.mean for pair in pairs if pair.mean is not None]
        if len(means) < 2:
            return OPEN
        rising.append(means[-1] > means[0])
        near += [pair.verdict in GOOD for pair in pairs]
        told.append(f"{name} from {short(means[0])} to {short(means[-1])}")
    said = "yes" if all(rising + near) else "in part" if any(rising) else "no"
    sizes = f"{sum(near)} of {len(near)} printed shares are near ours"
    return said, f"ours, from the smallest to the largest β: {', '.join(told)}; {sizes}"
