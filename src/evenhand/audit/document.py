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
from typing import Any, cast, get_args, get_origin, get_type_hints
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evenhand.audit.gates import GateResult
from evenhand.audit.result import Audit, Estimate
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
    if document.get("evenhand_audit") != FORMAT:
        raise InputError("this is not the JSON of an audit; write one with `evenhand audit --save`.")
    try:
        rows = [
            {
                "name": row["name"],
                "k": row["k"],
                "metrics": {name: _value(m) for name, m in row["metrics"].items() if m is not None},
            }
            for row in document["rows"]
        ]
        found: Audit = _built({one.name: document[one.name] for one in fields(Audit)} | {"rows": rows}, Audit)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise InputError(f"the JSON of the audit is not whole ({one_line(problem)}); write it again.") from None
    return found


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


def _built(value: Any, kind: Any) -> Any:
    """A value out of JSON, with all that is in it, as the type that a dataclass states; null as a number is NaN.

    >>> _built({"value": 0.5, "low": None, "high": None}, Estimate)
    Estimate(value=0.5, low=None, high=None)
    """
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is UnionType:  # with None
        return None if value is None else _built(value, inside[0])
    if origin is tuple and isinstance(value, list):
        kinds = inside[:1] * len(value) if inside[-1] is Ellipsis else inside
        return tuple(_built(one, of) for one, of in zip(value, kinds, strict=True))
    if origin is Mapping and isinstance(value, Mapping):
        return {name: _built(one, inside[1]) for name, one in value.items()}
    if is_dataclass(kind) and isinstance(value, Mapping):
        hints, made = get_type_hints(kind), cast("Any", kind)
        return made(**{name: _built(one, hints[name]) for name, one in value.items()})
    if kind is float and value is None:
        return math.nan
    allowed = (int, float) if kind is float else kind
    fits = origin is None and isinstance(value, allowed) and isinstance(value, bool) == (kind is bool)
    # In JSON a whole number may have any number of digits; as a float it may not.
    if not fits or (kind in (int, float) and abs(value) > sys.float_info.max):
        raise TypeError("a value of the wrong type")
    return value


def _metric(found: Estimate) -> dict[str, Any]:
    return {"mean": found.value, "std": None, "values": [found.value], "low": found.low, "high": found.high}


def _value(metric: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": metric["mean"], "low": metric["low"], "high": metric["high"]}


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
