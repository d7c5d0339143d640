"""An audit as files: one JSON document, and back, and what a CI system reads (JUnit XML, annotations on a GitHub run).

`--json` prints the document, `--save` keeps it and `--baseline` reads it. A file is refused early if it cannot be
written, and appears whole or not at all.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evenhand.audit.gates import GateResult
from evenhand.audit.result import (
    Audit,
    Change,
    Confusion,
    Contrast,
    Estimate,
    Example,
    Exposure,
    Finding,
    Shown,
    SliceRow,
    SystemRow,
)
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError
from evenhand.utils.text import json_text, one_line, visible

FORMAT = 1


def to_json(audit: Audit) -> dict[str, Any]:
    """Plain values; an undefined number is null. `rows` are as in `compare` and `evaluate`."""
    document = {
        "evenhand_audit": FORMAT,
        "rows": [
            {
                "name": row.name,
                "encoder": None,
                "method": None,
                "k": row.k,
                "metrics": {name: _metric(found) for name, found in row.metrics.items()} | {"mse": None},
            }
            for row in audit.rows
        ],
        "systems": list(audit.systems),
        "ks": list(audit.ks),
        "k": audit.k,
        "data": dict(audit.data),
        "notes": list(audit.notes),
        "demand": {name: list(shares) for name, shares in audit.demand.items()},
    }
    for name in ("findings", "contrasts", "slices", "exposure", "confusion", "examples", "changes"):
        document[name] = [asdict(one) for one in getattr(audit, name)]
    plain: dict[str, Any] = _plain(document)
    return plain


def from_json(document: Mapping[str, Any]) -> Audit:
    """What `to_json` wrote."""
    if document.get("evenhand_audit") != FORMAT:
        raise InputError("this is not the JSON of an audit; write one with `evenhand audit --save`.")
    try:
        found = _audit(document)
        if not _fits(found, Audit):
            raise TypeError("a value of the wrong type")
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise InputError(f"the JSON of the audit is not whole ({one_line(problem)}); write it again.") from None
    return found


def _audit(document: Mapping[str, Any]) -> Audit:
    return Audit(
        systems=tuple(document["systems"]),
        ks=tuple(document["ks"]),
        k=document["k"],
        data=document["data"],
        notes=tuple(document["notes"]),
        findings=tuple(Finding(**one) for one in document["findings"]),
        rows=tuple(
            SystemRow(
                row["name"],
                row["k"],
                {
                    name: Estimate(_number(found["mean"]), found["low"], found["high"])
                    for name, found in row["metrics"].items()
                    if found is not None
                },
            )
            for row in document["rows"]
        ),
        contrasts=tuple(
            Contrast(**one | {"difference": _estimate(one["difference"]), "p": _number(one["p"])})
            for one in document["contrasts"]
        ),
        slices=tuple(
            SliceRow(**one | {"metrics": {name: _estimate(e) for name, e in one["metrics"].items()}})
            for one in document["slices"]
        ),
        demand={name: tuple(shares) for name, shares in document["demand"].items()},
        exposure=tuple(
            Exposure(one["name"], one["k"], tuple(one["share"]), tuple(tuple(point) for point in one["lorenz"]))
            for one in document["exposure"]
        ),
        confusion=tuple(Confusion(**one) for one in document["confusion"]),
        examples=tuple(_example(one) for one in document["examples"]),
        changes=tuple(
            Change(**one | {"before": _estimate(one["before"]), "after": _estimate(one["after"])})
            for one in document["changes"]
        ),
    )


def read_audit(path: Path) -> Audit:
    """An audit from a file that `--save` or `--json` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}.") from problem
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; give a file written with `evenhand audit --save`.") from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is not the JSON of an audit; write one with `evenhand audit --save`.")
    return from_json(document)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value, with all that is in it, is of the type that its dataclass states.

    >>> _fits(Estimate(0.5, None, None), Estimate), _fits(Estimate("0.5", None, None), Estimate)
    (True, False)
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is UnionType:
        return any(_fits(value, one) for one in inside)
    if origin is tuple:
        kinds = inside[:1] * len(value) if inside[-1] is Ellipsis else inside
        return len(kinds) == len(value) and all(map(_fits, value, kinds))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(one, inside[1]) for one in value.values())
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return all(_fits(getattr(value, one.name), hints[one.name]) for one in fields(kind))
    if kind in (int, float):
        allowed = (int, float) if kind is float else int
        # In JSON a whole number may have any number of digits; as a float it may not.
        return isinstance(value, allowed) and not isinstance(value, bool) and not abs(value) > sys.float_info.max
    return isinstance(value, kind)


def _metric(found: Estimate) -> dict[str, Any]:
    return {
        "mean": found.value,
        "std": None,
        "values": [found.value],
        "low": found.low,
        "high": found.high,
    }


def _estimate(found: Mapping[str, Any]) -> Estimate:
    return Estimate(_number(found["value"]), found["low"], found["high"])


def _example(one: Mapping[str, Any]) -> Example:
    def shown(items: list[dict[str, Any]]) -> tuple[Shown, ...]:
        return tuple(Shown(**item) for item in items)

    lists = {name: shown(items) for name, items in one["lists"].items()}
    sizes = {name: one.get(name) for name in ("n_history", "n_wanted")}
    return Example(one["user"], one["why"], shown(one["history"]), shown(one["wanted"]), lists, **sizes)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_target(path: str | None, force: bool) -> None:
    """Before any work is done."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file.")
    if target.exists() and not force:
        raise InputError(f"{target} exists already; choose another name or use --force.")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write to the folder {target.parent}.")


def save_audit(audit: Audit, path: str | Path) -> None:
    write_text(Path(path), json_text(to_json(audit)) + "\n")


def save_junit(results: Sequence[GateResult], path: str | Path) -> None:
    write_text(Path(path), junit(results))


def write_text(path: Path, text: str) -> None:
    try:
        with atomic_file(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or problem}.") from problem


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
