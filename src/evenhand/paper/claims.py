"""What finished results say of the paper's claims, each with the test it rests on.

AUC-NS against every other row: a paired t test over seeds, Holm's adjustment over all rows of one metric and
k, and the bootstrap over users that was made when the rows were trained. Sweeps: seeds alone.
The values of users that it needs lie beside the results, of which only the intervals are part.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from evenhand.experiments.results import Document
from evenhand.experiments.verdict import paired
from evenhand.metrics.evaluate import UserMetrics
from evenhand.metrics.statistics import Interval, compare_metric, holm, paired_over_seeds
from evenhand.paper.published import cells
from evenhand.paper.tables import title
from evenhand.utils.atomic import atomic_file

LEVEL = 0.05
REFERENCE = "auc-ns"
"""Every other row is compared with this one."""
WANTED = {"precision": 1, "ndcg": 1, "ohr": -1}
"""The metrics that the paper's claims are about, and the direction that it claims for its method."""
_UNREADABLE = (OSError, ValueError, LookupError, EOFError, RuntimeError, BadZipFile, zlib.error)
"""What a damaged file may raise: numpy and zipfile raise many kinds of errors."""
Runs = dict[int, list[UserMetrics]]
"""k → one per seed."""
_PAPERS = {cell.method for cell in cells("performance")} - {REFERENCE}


@dataclass(frozen=True)
class Claim:
    """A question, its answer, and the line that says both."""

    what: str
    """Which experiment."""
    holds: bool | None
    """None where the results cannot tell."""
    text: str
    metric: str = ""
    """As `ohr@5`; empty for a sweep."""
    other: str = ""
    """Whom AUC-NS is compared with; empty where the claim is about all of them, or about a sweep."""
    gap: float | None = None
    """AUC-NS − the other."""


def claims(documents: Mapping[str, Document]) -> list[Claim]:
    """Every answer that result files give, by file; see `results.documents`."""
    readers = {"overall": _against_all, "alpha": _over_alpha, "beta": _inverted_u, "gamma": _range_against_k}
    return [claim for document in documents.values() for claim in readers[document["identity"]["part"]](document)]


def _against_all(document: Document) -> Iterator[Claim]:
    entries = document["entries"]
    others = [label for label in entries if label != REFERENCE and not label.startswith(f"{REFERENCE}:")]
    if REFERENCE not in entries or not others:
        return
    for metric in WANTED:
        for k in document["identity"]["ks"]:
            found = list(_one_metric(document, others, metric, k))
            yield _summed_up(found, document, metric, k)
            yield from found


def _summed_up(found: list[Claim], document: Document, metric: str, k: int) -> Claim:
    """How many of the paper's baselines AUC-NS beats, and how many rows that the paper does not have."""
    word = "higher" if WANTED[metric] > 0 else "lower"
    rows = {claim.other: claim.holds for claim in found}
    counted = []
    for whose, mine in (("the paper's baselines", _PAPERS), ("the other rows", set(rows) - _PAPERS)):
        asked = [label for label in rows if label in mine]
        kept = [label for label in asked if not rows[label]]
        but = f" (not {', '.join(kept)})" if kept and len(kept) < len(asked) else ""
        if asked:
            counted.append(f"{len(asked) - len(kept)} of {len(asked)} of {whose}{but}")
    known = all(holds is not None for holds in rows.values())
    holds = all(rows[label] for label in rows if label in _PAPERS) if known else None
    text = f"{metric}@{k}: {REFERENCE} is {word}, beyond chance, than {' and '.join(counted)}."
    return Claim(title(document), holds, text, f"{metric}@{k}")


def _one_metric(document: Document, others: list[str], metric: str, k: int) -> Iterator[Claim]:
    entries, key = document["entries"], f"{metric}@{k}"
    tested = _tested([(entries[REFERENCE], entries[label]) for label in others], key)
    users = {(line["name"], line["k"], line["metric"]): line for line in document["over_users"]}
    seeds = document["identity"]["seeds"]
    for label, (test, p) in zip(others, tested, strict=True):
        gap = _mean(entries[REFERENCE], key) - _mean(entries[label], key)
        line = users.get((label, k, metric))
        sides = [side for side in (_side(test, p), _side_of_users(line)) if side is not None]
        wanted = WANTED[metric]
        holds = None if not sides else all(side == wanted for side in sides)
        word = {1: "higher", -1: "lower"}.get(sides[0]) if len(set(sides)) == 1 else None
        verdict = "no test" if not sides else f"{word} beyond chance" if word else "within the uncertainty"
        reasons = [] if test is None else [f"over {seeds} seeds {_span(test.low, test.high)}, Holm p {_p(p)}"]
        reasons += [] if line is None else [f"over users {_span(line['low'], line['high'])}"]
        text = f"{key}, {REFERENCE} − {label}: {_signed(gap)} ({'; '.join(reasons) or 'one seed'}): {verdict}."
        yield Claim(title(document), holds, text, key, label, None if math.isnan(gap) else gap)


def _over_alpha(document: Document) -> Iterator[Claim]:
    """Precision is said to rise and fall, OHR to be level up to the best α and to rise beyond it.

    It rises where the largest α has more than the one with the least, and more than the smallest.
    """
    yield from _inverted_u(document, {"precision@5": 1})
    entries, key = document["entries"], "ohr@5"
    values = sorted(entries, key=float)
    if len(values) < 3:
        return
    least, first, last = _best(entries, key, -1), values[0], values[-1]
    tested = _tested([(entries[last], entries[other]) for other in (least, first)], key)
    known = all(test is not None for test, _ in tested)
    risen = all(_side(test, p) == 1 for test, p in tested)
    shown = dict.fromkeys((first, least, last))
    heights = ", ".join(f"{value} {_mean(entries[value], key):.4f}" for value in shown)
    shape = f": a rise at the end (Holm p {_p(max(p for _, p in tested))} at most)" if risen else ": no rise at the end"
    text = f"{key} over alpha: {heights}{shape if known else ''}."
    yield Claim(title(document), risen if known else None, text)


_BOTH = {"precision@5": 1, "ohr@5": -1}


def _inverted_u(document: Document, metrics: Mapping[str, int] = _BOTH) -> Iterator[Claim]:
    """Precision is said to rise and fall, OHR to fall and rise: the best lies inside, and both ends are worse there.

    That is tested over seeds; the best is picked on the same seeds, which flatters it a little.
    """
    entries, part = document["entries"], document["identity"]["part"]
    values = sorted(entries, key=float)
    if len(values) < 3:
        return
    for key, sign in metrics.items():
        best = _best(entries, key, sign)
        ends = [value for value in (values[0], values[-1]) if value != best]
        tested = _tested([(entries[best], entries[end]) for end in ends], key)
        known = all(test is not None for test, _ in tested)
        worse = [_side(test, p) == sign for test, p in tested]
        holds = (len(ends) == 2 and all(worse)) if known else None
        said = [f"worse, Holm p {_p(p)}" if is_ else "no worse" for is_, (_, p) in zip(worse, tested, strict=True)]
        compared = "; ".join(
            f"{end} with {_mean(entries[end], key):.4f} ({how})" for end, how in zip(ends, said, strict=True)
        )
        name = "inverted U" if sign > 0 else "U"
        shape = "" if holds is None else f": {'an' if sign > 0 else 'a'} {name}" if holds else f": no {name}"
        top = f"best at {best} ({_mean(entries[best], key):.4f})"
        text = f"{key} over {part}: {top}, ends: {compared}{shape}."
        yield Claim(title(document), holds, text)


def _range_against_k(document: Document) -> Iterator[Claim]:
    """Whether longer lists want a larger γ: the best γ of each k, and whether the first is worse there."""
    entries = document["entries"]
    values = sorted(entries, key=float)
    if len(values) < 2:
        return
    ks = document["identity"]["ks"]
    best = {k: _best(entries, f"precision@{k}") for k in ks}
    short = best[ks[0]]
    for k in ks[1:]:
        key = f"precision@{k}"
        test = over_seeds(entries[best[k]], entries[short], key)
        larger = float(best[k]) > float(short)
        holds = None if test is None else larger and _side(test, test.p) == 1
        gap = _mean(entries[best[k]], key) - _mean(entries[short], key)
        span = "" if test is None else f" ({_span(test.low, test.high)} over seeds)"
        text = (
            f"{key}: best gamma {best[k]}, that of top {ks[0]} is {short}; "
            f"the former has {_signed(gap)}{span}: "
            f"{'no test' if holds is None else 'a larger gamma for longer lists' if holds else 'not shown'}."
        )
        yield Claim(title(document), holds, text)


def _tested(rows: Sequence[tuple[dict[str, Any], dict[str, Any]]], key: str) -> list[tuple[Interval | None, float]]:
    """The paired test of each two rows over seeds, and its p after Holm's adjustment."""
    tests = [over_seeds(mine, other, key) for mine, other in rows]
    return list(zip(tests, holm([np.nan if test is None else test.p for test in tests]), strict=True))


def over_seeds(mine: dict[str, Any], other: dict[str, Any], key: str) -> Interval | None:
    sides = [entry["metrics"][key]["values"] for entry in (mine, other)]
    if any(value is None for side in sides for value in side):
        return None
    a, b = paired(*sides)
    return paired_over_seeds(np.array(a), np.array(b))


def _best(entries: dict[str, Any], key: str, sign: int = 1) -> str:
    return max(sorted(entries, key=float), key=lambda value: sign * _mean(entries[value], key))


def _mean(entry: dict[str, Any], key: str) -> float:
    found = entry["metrics"][key]["mean"]
    return float("nan") if found is None else float(found)


def _side(test: Interval | None, p: float) -> int | None:
    """1 or −1: which way a difference goes beyond chance; 0 if it does not; None without a test."""
    if test is None:
        return None
    return 0 if p > LEVEL else 1 if test.difference > 0 else -1


def _side_of_users(line: dict[str, Any] | None) -> int | None:
    if line is None:
        return None
    return 1 if line["low"] > 0 else -1 if line["high"] < 0 else 0


def _span(low: float, high: float) -> str:
    return f"{_signed(low)} to {_signed(high)}"


def _signed(number: float) -> str:
    if math.isnan(number):
        return "undefined"
    return f"{number:+.4f}".replace("-", "−")


def _p(p: float) -> str:
    return "< .0001" if p < 1e-4 else f"{p:.4f}".removeprefix("0")


def store(folder: Path, label: str, runs: Runs) -> None:
    """Keep what the claims need of these users."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {
        f"{k}/{seed}/{name}": array
        for k, each in runs.items()
        for seed, users in enumerate(each)
        for name, array in _compared_only(users).arrays().items()
    }
    with atomic_file(folder / _file_name(label)) as partial, partial.open("wb") as sink:
        np.savez_compressed(sink, **arrays)


def load(folder: Path, label: str) -> Runs | None:
    """What `store` wrote; None where there is nothing to be read."""
    try:
        with np.load(folder / _file_name(label), allow_pickle=False) as stored:
            found: dict[tuple[int, int], dict[str, np.ndarray]] = {}
            for key in stored.files:
                k, seed, name = key.split("/")
                found.setdefault((int(k), int(seed)), {})[name] = stored[key]
        runs: Runs = {}
        for (k, _), arrays in sorted(found.items()):
            runs.setdefault(k, []).append(UserMetrics.from_arrays(k, arrays))
    except _UNREADABLE:
        return None
    return runs


def differences(folder: Path, labels: Sequence[str]) -> Iterator[tuple[str, str, int, Interval]]:
    """(row, metric, k, the reference minus that row over users); rows without stored users are left out."""
    reference = load(folder, REFERENCE)
    for label in labels:
        other = None if label == REFERENCE else load(folder, label)
        if reference is None or other is None:
            continue
        for k, runs in reference.items():
            for metric in WANTED:
                mine, theirs = paired(runs, other[k])
                found = compare_metric(mine, theirs, metric).users
                if found is not None:
                    yield label, metric, k, found


def _compared_only(users: UserMetrics) -> UserMetrics:
    values = {name: array for name, array in users.values.items() if name in WANTED}
    sums = {name: array for name, array in users.sums.items() if name.partition(".")[0] in WANTED}
    return UserMetrics(users.k, users.users, values, sums)


def _file_name(label: str) -> str:
    """Labels hold characters that file names may not."""
    return f"{hashlib.sha256(label.encode()).hexdigest()[:16]}.npz"
