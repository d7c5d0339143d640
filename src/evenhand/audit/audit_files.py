"""The files that an audit leaves behind, and what a CI system reads: JUnit XML, annotations on a GitHub run.

A file is refused early if it cannot be written, and appears whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evenhand.audit.document import to_json
from evenhand.audit.gates import GateResult
from evenhand.audit.result import Audit
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError
from evenhand.utils.text import json_text, visible


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
