"""The report of an audit: one HTML file that needs nothing else.

Charts are drawn when the file is written, as SVG that takes its colours from the page's style. So the page
needs no charting script: it is small, opens from disk under a strict content policy, follows light and
dark, prints, and a short script of its own adds sorting and tips.
"""

from __future__ import annotations

from pathlib import Path

from evenhand.audit.result import Audit
from evenhand.report.training_story import TrainingStory


def write_report(audit: Audit, path: Path, *, training: TrainingStory | None = None) -> None:
    """Write the report to a file, whole or not at all."""
    from evenhand.audit.audit_files import write_text
    from evenhand.report.page import page

    write_text(path, page(audit, training))
