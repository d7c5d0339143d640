"""The report of a comparison: an audit of every contender's best seed, with the story of the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from evenhand.audit.result import Finding
from evenhand.audit.run_audit import audit
from evenhand.data.splits import Split
from evenhand.experiments.compare import CompareResult
from evenhand.report import write_report
from evenhand.report.training_story import TrainingStory


def write_comparison_report(
    result: CompareResult,
    lists: Mapping[str, pa.Table],
    split: Split,
    path: Path,
    titles: pa.Table | None = None,
) -> None:
    """Audit the lists by contender against the split that they were judged on, and write the report.

    `titles` is a table of item and title.
    """
    found = audit(
        lists,
        split.train,
        split.test if len(split.test) else None,
        k=result.ks,
        hot=result.hot,
        items_file=titles,
        title=None if titles is None else "title",
    )
    found = replace(
        found,
        findings=(Finding(result.sentence, None), *found.findings),
        notes=(
            f"The data was split {result.description}.",
            "The lists are those of each contender’s best seed.",
            *found.notes,
            *(note for note in result.notes if note not in found.notes),
        ),
    )
    write_report(found, path, training=TrainingStory.of(result))
