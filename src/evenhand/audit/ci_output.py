"""What a CI system reads: JUnit XML, and annotations on a GitHub run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from evenhand.audit.gates import Judged
from evenhand.audit.result import Audit
from evenhand.utils.text import visible


def junit(judged: Sequence[Judged]) -> str:
    """One test case for each gate and system; signs that XML may not hold are spelled out."""
    judged = [
        replace(one, gate=_xml(one.gate), system=one.system and _xml(one.system), sentence=_xml(one.sentence))
        for one in judged
    ]
    failures = sum(one.failed for one in judged)
    root = Element("testsuites", tests=str(len(judged)), failures=str(failures))
    suite = SubElement(
        root, "testsuite", name="evenhand audit", tests=str(len(judged)), failures=str(failures), errors="0"
    )
    for one in judged:
        name = one.gate if one.system is None else f"{one.gate} ({one.system})"
        case = SubElement(suite, "testcase", classname="evenhand.audit", name=name)
        if one.failed:
            SubElement(case, "failure", message=one.sentence).text = one.sentence
        else:
            SubElement(case, "system-out").text = one.sentence
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def github_lines(audit: Audit, judged: Sequence[Judged]) -> list[str]:
    """Workflow commands: an error for each failed gate, a warning for each change for the worse."""
    lines = [_command("error", one.sentence) for one in judged if one.failed]
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
