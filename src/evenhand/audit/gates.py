"""What keeps bias from creeping back: gates, and what has changed since an earlier audit by more than chance.

A gate is a condition that an audit must not meet, such as `ohr@10>0.60` or `mine.ndcg@10<other.ndcg@10`. It is written
by hand into a CI file, so a mistake in it is reported with its place, before any work is done. What came of the gates
is written as CI systems read it: JUnit XML, and annotations on a GitHub run.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evenhand.audit.result import Audit, Change, SystemRow
from evenhand.data.write import write_text
from evenhand.metrics.catalogue import HEADLINE, METRICS
from evenhand.metrics.statistics import Estimate
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import visible

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARISON = re.compile(r"<=|>=|<|>")
_QUANTITY = re.compile(
    r"(?:(?P<factor>[0-9.]+)\s*\*\s*)?(?:(?P<system>.+)\.)?(?P<metric>[A-Za-z0-9_]+)@(?P<k>[0-9]{1,9})"
)


@dataclass(frozen=True)
class Quantity:
    """A number, or a metric at some k of a named system; of every system where none is named."""

    number: float | None = None
    metric: str = ""
    k: int = 0
    system: str | None = None
    factor: float = 1.0
    """`0.9*live.ndcg@10` is a tenth less than live has."""


@dataclass(frozen=True)
class Gate:
    """`left comparison right`: the audit fails where this holds."""

    text: str
    left: Quantity
    comparison: str
    right: Quantity


@dataclass(frozen=True)
class GateResult:
    """One gate for one system, or for the systems it names."""

    gate: str
    system: str | None
    """None where the gate names its systems itself."""
    failed: bool
    sentence: str


def parse_gate(text: str) -> Gate:
    """Read an expression; what cannot be read is reported with its column, from 1.

    >>> parse_gate("mine.ndcg@10 < 0.4").left
    Quantity(number=None, metric='ndcg', k=10, system='mine', factor=1.0)
    """
    found = list(_COMPARISON.finditer(text))
    if not found:
        raise _unreadable(text, len(text), "a comparison (<, <=, > or >=) is missing")
    if len(found) > 1:
        raise _unreadable(text, found[1].start(), "there is a second comparison")
    left = _quantity(text, 0, found[0].start())
    right = _quantity(text, found[0].end(), len(text))
    if left.number is not None and right.number is not None:
        raise _unreadable(text, 0, "two numbers are compared, and no metric")
    return Gate(text.strip(), left, found[0].group(), right)


def _quantity(text: str, begin: int, end: int) -> Quantity:
    part = text[begin:end]
    word = part.strip()
    place = begin + len(part) - len(part.lstrip())
    if not word:
        raise _unreadable(text, min(begin, len(text)), "a metric such as ohr@10 or a number is missing")
    try:
        return Quantity(number=float(word))
    except ValueError:
        pass
    found = _QUANTITY.fullmatch(word)
    if found is None:
        raise _unreadable(text, place, f"'{word}' is neither a number nor a metric with its k, such as ohr@10")
    metric = found["metric"].lower()
    if metric not in METRICS:
        raise unknown("metric", found["metric"], METRICS)
    try:
        factor = float(found["factor"] or 1)
    except ValueError:
        raise _unreadable(text, place, f"'{found['factor']}' is no number to multiply with") from None
    return Quantity(None, metric, int(found["k"]), found["system"], factor)


def _unreadable(text: str, place: int, why: str) -> InputError:
    return InputError(f"cannot read the gate '{text}' at column {place + 1}: {why}.")


def check_gates(gates: Sequence[Gate], ks: Sequence[int], has_test: bool) -> None:
    """Refuse, before any work, what could not be evaluated afterwards."""
    for gate in gates:
        for side in (gate.left, gate.right):
            if side.number is not None:
                continue
            if side.k not in ks:
                known = ", ".join(map(str, ks))
                raise InputError(f"the gate '{gate.text}' asks for k = {side.k}; the audit has {known} (--k).")
            if METRICS[side.metric].needs_test and not has_test:
                raise InputError(f"the gate '{gate.text}' needs what users wanted: give a test file (--test).")


def evaluate_gates(gates: Sequence[Gate], audit: Audit) -> list[GateResult]:
    """Every gate, for every system where it names none."""
    found = []
    for gate in gates:
        named = [side.system for side in (gate.left, gate.right) if side.system is not None]
        for name in named:
            if name not in audit.systems:
                raise unknown("system", name, audit.systems)
        open_sides = any(side.number is None and side.system is None for side in (gate.left, gate.right))
        for system in audit.systems if open_sides else [None]:
            found.append(_evaluate(gate, audit, system))
    return found


def _evaluate(gate: Gate, audit: Audit, system: str | None) -> GateResult:
    left, right = (_value(side, audit, system) for side in (gate.left, gate.right))
    words = [_words(side, value, system) for side, value in ((gate.left, left), (gate.right, right))]
    if math.isnan(left) or math.isnan(right):
        sentence = f"{gate.text} cannot be evaluated: {words[0]}, {words[1]}."
        return GateResult(gate.text, system, True, sentence)
    failed = _COMPARE[gate.comparison](left, right)
    verb = "holds" if failed else "does not hold"
    values = ", ".join(word for word, side in zip(words, (gate.left, gate.right), strict=True) if side.number is None)
    return GateResult(gate.text, system, failed, f"{gate.text} {verb}: {values}.")


def _value(side: Quantity, audit: Audit, system: str | None) -> float:
    if side.number is not None:
        return side.number
    return side.factor * audit.row(side.system or str(system), side.k).metrics[side.metric].value


def _words(side: Quantity, value: float, system: str | None) -> str:
    if side.number is not None:
        return f"{side.number:g}"
    shown = "undefined" if math.isnan(value) else f"{value:.4f}"
    times = "" if side.factor == 1 else f"{side.factor:g} times "
    return f"{times}{side.metric}@{side.k} of {side.system or system} is {shown}"


def against(audit: Audit, earlier: Audit) -> Audit:
    """The audit with its changes, and with notes on what the two do not share."""
    before = {(row.name, row.k): row.metrics for row in earlier.rows}
    changes = [
        _change(row, metric, before[row.name, row.k])
        for row in audit.rows
        if (row.name, row.k) in before
        for metric in row.metrics
        if metric in before[row.name, row.k]
    ]
    beyond = sum(change.beyond_uncertainty for change in changes)
    notes = _unlike(audit, earlier)
    if changes:
        notes.append(f"{beyond:,} of {len(changes):,} metrics differ from the baseline beyond the uncertainty.")
    return replace(audit, changes=tuple(changes), notes=(*audit.notes, *notes))


def _change(row: SystemRow, metric: str, earlier: Mapping[str, Estimate]) -> Change:
    before, after = earlier[metric], row.metrics[metric]
    moved = after.value - before.value
    half = math.hypot(_half(before), _half(after))
    beyond = not math.isnan(moved) and not math.isnan(half) and abs(moved) > half
    better = METRICS[metric].higher_is_better if metric in METRICS else None
    worse = None if better is None or not moved or math.isnan(moved) else (moved < 0) == better
    if worse and _asked_for(metric, earlier, row.metrics):
        worse = None
    return Change(row.name, row.k, metric, before, after, beyond, worse)


def _asked_for(metric: str, before: Mapping[str, Estimate], after: Mapping[str, Estimate]) -> bool:
    """Whether a rise is only what showing more of the long tail brings, as a re-ranking is asked to.

    More lists then hold a cold item, and in the paper's average a list without any counted as an OCR of 0: what
    speaks is the pooled rate. And exposure may stray from demand to either side; only towards hits it is worse.
    """

    def rose(name: str) -> bool:
        return name in before and name in after and after[name].value > before[name].value

    if metric in METRICS and METRICS[metric].average == "paper":
        return rose("aplt") and not rose(f"{metric}_pooled")
    return metric in (HEADLINE, "js_distance") and rose("aplt")


def _half(estimate: Estimate) -> float:
    """Half the width of the interval; of one that the metric's range cuts off, the longer side."""
    if estimate.low is None or estimate.high is None:
        return math.nan
    return max(estimate.value - estimate.low, estimate.high - estimate.value)


def _unlike(audit: Audit, earlier: Audit) -> list[str]:
    notes = []
    for what, mine, theirs in (("systems", audit.systems, earlier.systems), ("list lengths", audit.ks, earlier.ks)):
        if set(mine) != set(theirs):
            shared = [one for one in mine if one in theirs]
            common = ", ".join(map(str, shared)) if shared else "nothing"
            notes.append(f"The baseline has other {what} ({', '.join(map(str, theirs))}); {common} can be compared.")
    if audit.data.get("hot_rule") != earlier.data.get("hot_rule"):
        notes.append(f"The baseline has another hot rule: {earlier.data.get('hot_rule')}.")
    if (audit.data.get("test_interactions") is None) != (earlier.data.get("test_interactions") is None):
        notes.append("Of this audit and its baseline only one has a test part, so only exposure is compared.")
    return notes


def save_junit(results: Sequence[GateResult], path: str | Path) -> None:
    write_text(Path(path), junit(results))


def junit(results: Sequence[GateResult]) -> str:
    """One test case for each gate and system; signs that XML may not hold are spelled out."""
    results = [
        replace(one, gate=_xml(one.gate), system=one.system and _xml(one.system), sentence=_xml(one.sentence))
        for one in results
    ]
    failures = sum(one.failed for one in results)
    root = Element("testsuites", tests=str(len(results)), failures=str(failures))
    suite = SubElement(
        root, "testsuite", name="evenhand audit", tests=str(len(results)), failures=str(failures), errors="0"
    )
    for one in results:
        name = one.gate if one.system is None else f"{one.gate} ({one.system})"
        case = SubElement(suite, "testcase", classname="evenhand.audit", name=name)
        if one.failed:
            SubElement(case, "failure", message=one.sentence).text = one.sentence
        else:
            SubElement(case, "system-out").text = one.sentence
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def github_lines(audit: Audit, results: Sequence[GateResult]) -> list[str]:
    """Workflow commands: an error for each failed gate, a warning for each change for the worse."""
    lines = [_command("error", one.sentence) for one in results if one.failed]
    for change in audit.changes:
        if change.beyond_uncertainty and change.worse:
            text = (
                f"{change.metric}@{change.k} of {change.name} went from {change.before.value:.4f} "
                f"to {change.after.value:.4f}, beyond the uncertainty."
            )
            lines.append(_command("warning", text))
    return [*lines, *(_command("notice", finding.sentence) for finding in audit.findings)]


def _xml(text: str) -> str:
    return visible(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def _command(level: str, text: str) -> str:
    for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(sign, code)
    return f"::{level} title=evenhand audit::{visible(text)}"
