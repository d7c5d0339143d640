"""The report of an audit: one HTML file that needs nothing else.

Charts are drawn when the file is written, as SVG that takes its colours from the page's style. So the page
needs no charting script: it is small, opens from disk under a strict content policy, follows light and
dark, prints, and a short script of its own adds sorting and tips.
"""

from __future__ import annotations

import os
from pathlib import Path

from evenhand.audit.result import Audit
from evenhand.audit.story import TrainingStory
from evenhand.errors import InputError


def write_report(audit: Audit, path: Path, *, training: TrainingStory | None = None) -> None:
    """Write the report to a file, whole or not at all."""
    from evenhand.audit.report.page import page

    document = page(audit, training)
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(document, encoding="utf-8", newline="\n")
        os.replace(partial, path)
    except OSError as problem:
        partial.unlink(missing_ok=True)
        raise InputError(f"cannot write {path}: {problem.strerror or problem}.") from problem
