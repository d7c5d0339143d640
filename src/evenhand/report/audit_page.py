"""The page of an audit, and of a comparison, which is an audit of its methods with the story of their training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from markupsafe import Markup

from evenhand.audit.result import Audit, Contrast, Finding, SystemRow
from evenhand.audit.run_audit import audit as run_audit
from evenhand.data.splits import Split
from evenhand.data.write import write_text
from evenhand.experiments.compare import CompareResult, Row
from evenhand.experiments.verdict import ACCURACY, Answer
from evenhand.metrics.catalogue import HISTORY
from evenhand.report.audit_charts import (
    confusion_figure,
    exposure_figure,
    lorenz_figure,
    slice_figures,
    tradeoff_figure,
)
from evenhand.report.render import (
    Cell,
    Column,
    Origin,
    Table,
    clean,
    described,
    in_order,
    interval,
    isolated,
    listing,
    main_groups,
    measured,
    number,
    render,
    titled,
)
from evenhand.report.training_charts import TrainingStory, training_figures

MOST_CONTRASTS = 120
FACTS = {
    "users": "users",
    "items": "items",
    "interactions": "train interactions",
    "test_interactions": "test interactions",
    "judged_users": "users evaluated",
}


def write_report(
    audit: Audit, path: Path, *, training: TrainingStory | None = None, origin: Origin | None = None
) -> None:
    """Write the page, whole or not at all; `origin` says in its header what it was made of."""
    write_text(path, audit_page(audit, training, origin))


def write_comparison_report(
    result: CompareResult,
    lists: Mapping[str, pa.Table],
    split: Split,
    path: Path,
    titles: pa.Table | None = None,
    origin: Origin | None = None,
) -> None:
    """Audit the lists of every method's best seed against the split they were evaluated on, and write the page.

    `titles` is a table of item and title.
    """
    found = run_audit(
        lists,
        split.train,
        split.test if len(split.test) else None,
        validation=split.validation,
        k=result.ks,
        hot=result.hot,
        items_file=titles,
        title=None if titles is None else "title",
    )
    notes = (
        f"The data was split {result.description}.",
        "The lists are those of each method’s best seed.",
        *found.notes,
        *(note for note in result.notes if note not in found.notes),
    )
    found = replace(found, findings=(Finding(result.sentence, None), *found.findings), notes=notes)
    write_text(path, audit_page(found, TrainingStory.of(result), origin, result.answers))


def audit_page(
    audit: Audit,
    training: TrainingStory | None = None,
    origin: Origin | None = None,
    answers: Mapping[str, Answer] | None = None,
) -> str:
    """The whole document; what there is nothing to say of is left out."""
    drawn = (exposure_figure(audit), confusion_figure(audit), tradeoff_figure(audit), lorenz_figure(audit))
    heading: object = f"{len(audit.systems)} recommenders compared"
    if len(audit.systems) <= 3:
        heading = Markup(listing([isolated(name) for name in audit.systems]))
    metrics = in_order(metric for row in audit.rows for metric in row.metrics)
    contrasts = [c for c in audit.contrasts if c.k == audit.k]
    return render(
        "audit.html",
        title=f"{listing([clean(name, 40) for name in audit.systems[:3]])}: recommendation audit",
        heading=heading,
        facts=_facts(audit),
        origin=origin,
        audit=audit,
        training=training,
        answer_table=_answer_table(answers) if answers and len(answers) > 1 else None,
        answer_metric=titled(ACCURACY, audit.k),
        main_table=main_table(audit),
        full_table=_full_table(audit, metrics),
        contrast_table=_contrast_table(contrasts),
        contrasts_left_out=len(contrasts) - MOST_CONTRASTS,
        change_table=_change_table(audit),
        charts=[
            ("charts", "Where the recommendations go", [figure for figure in drawn if figure]),
            ("slices", "Who is served how well", slice_figures(audit)),
        ],
        seed_table=_seed_table([s for s in training.spreads if s.k == audit.k] if training else (), audit.k),
        training_figures=training_figures(training, audit.systems) if training else (),
        words=[(described(m).title, described(m).meaning) for m in metrics if described(m).meaning],
    )


def _facts(audit: Audit) -> list[tuple[str, str]]:
    known = [(words, audit.data.get(key)) for key, words in FACTS.items()]
    facts = [(words, f"{value:,}") for words, value in known if isinstance(value, int) and value]
    hot, rule = audit.data.get("hot_items"), audit.data.get("hot_rule")
    if isinstance(hot, int):
        facts.append((f"hot items: {rule}" if rule else "hot items", f"{hot:,}"))
    return facts


def main_table(audit: Audit) -> Table | None:
    """Every system at the headline k with the metrics that matter first; None without any."""
    rows = [row for row in audit.rows if row.k == audit.k]
    groups = main_groups(metric for row in rows for metric in row.metrics)
    if not groups:
        return None
    metrics = [metric for _, names in groups for metric in names]
    firsts = {names[0] for _, names in groups}
    return Table(
        f"Metrics of every system at {audit.k} recommendations",
        [Column("System"), *(_column(metric, metric in firsts) for metric in metrics)],
        [(row.name, *cells) for row, cells in _cells(rows, metrics)],
        [(title, len(names)) for title, names in groups],
        sortable=True,
    )


def _answer_table(answers: Mapping[str, Answer]) -> Table:
    """What each test says of each method: accuracy with its interval, the choice for the aim marked."""
    first = next(iter(answers.values()))
    rows: list[tuple[str | Cell, ...]] = [
        (label, *(measured(one.values[label][ACCURACY], best=label == one.best) for one in answers.values()))
        for label in first.values
    ]
    columns = [Column("System")]
    for one in answers.values():
        others = f"; no worse beyond the uncertainty: {', '.join(one.level)}" if one.level else ""
        chosen = f"chosen on {one.chosen_on}: {one.best}{others}"
        columns.append(Column(one.title, chosen, higher_is_better=True))
    return Table("What each test says", columns, rows, sortable=True)


def _full_table(audit: Audit, metrics: Sequence[str]) -> Table:
    by_k = [_cells([row for row in audit.rows if row.k == k], metrics, digits=4) for k in audit.ks]
    return Table(
        "Every metric at every list length",
        [Column("System"), Column("k"), *map(_column, metrics)],
        [(row.name, Cell(row.k, row.k), *cells) for found in by_k for row, cells in found],
        sortable=True,
    )


def _column(metric: str, begins_group: bool = False) -> Column:
    known = described(metric)
    return Column(known.title, known.meaning, known.higher_is_better, begins_group)


def _cells(
    rows: Sequence[SystemRow], metrics: Sequence[str], digits: int = 3
) -> list[tuple[SystemRow, list[Cell | str]]]:
    """The rows, which are compared with each other, and their cells."""
    best = {metric: best_value(rows, metric) for metric in metrics}
    return [(row, [_cell(row, metric, best[metric], digits) for metric in metrics]) for row in rows]


def _cell(row: SystemRow, metric: str, best: float | None, digits: int) -> Cell:
    estimate = row.metrics.get(metric)
    if estimate is None or math.isnan(estimate.value):
        return Cell(number(None), math.nan)
    if _undefined(row, metric):
        why = "none wanted" if metric.startswith("u") else "none shown"
        return Cell(number(estimate.value, digits), float(estimate.value), why)
    return measured(estimate, digits, best=estimate.value == best)


def best_value(rows: Sequence[SystemRow], metric: str) -> float | None:
    """The best of a column; None where there is nothing to be better than, or no way is better."""
    higher = described(metric).higher_is_better
    found = [row.metrics[metric].value for row in rows if metric in row.metrics and not _undefined(row, metric)]
    values = {value for value in found if not math.isnan(value)}
    if higher is None or len(values) < 2:
        return None
    return max(values) if higher else min(values)


def _undefined(row: SystemRow, metric: str) -> bool:
    """Whether the number is 0 for lack of any denominator, such as OCR where no cold item is shown."""
    defined = row.metrics.get(f"{metric}_defined")
    return defined is not None and math.isnan(defined.value)


def _contrast_table(contrasts: Sequence[Contrast]) -> Table:
    """Paired differences, the main metrics first."""
    main = [m for _, names in main_groups(c.metric for c in contrasts) for m in names]
    held = sorted(contrasts, key=lambda c: main.index(c.metric) if c.metric in main else len(main))
    rows = [
        (
            titled(c.metric, c.k),
            Cell(Markup(f"{isolated(c.a)} − {isolated(c.b)}"), prose=True),
            Cell(number(c.difference.value, 4), float(c.difference.value), interval(c.difference, 4)),
            Cell("< 0.001" if c.p < 0.001 else number(c.p), float(c.p)),
            Cell(f"{'beyond' if c.beyond_uncertainty else 'within'} the uncertainty", prose=True),
        )
        for c in held[:MOST_CONTRASTS]
    ]
    columns = ("Metric", "Difference", "Value", "p", "Verdict")
    return Table("Paired differences between systems", columns, rows, sortable=True)


def _change_table(audit: Audit) -> Table:
    """What moved against an earlier audit at the headline k, beyond the uncertainty first."""
    held = sorted((c for c in audit.changes if c.k == audit.k), key=lambda c: not c.beyond_uncertainty)
    ways = {True: "worse", False: "better", None: "changed"}
    rows = [
        (
            c.name,
            titled(c.metric, c.k),
            number(c.before.value, 4),
            number(c.after.value, 4),
            f"{ways[c.worse]}, beyond the uncertainty" if c.beyond_uncertainty else "within the uncertainty",
        )
        for c in held[:MOST_CONTRASTS]
    ]
    return Table("Changes", ("System", "Metric", "Before", "Now", "Verdict"), rows)


def _seed_table(spreads: Sequence[Row], k: int) -> Table:
    """Means over seeds of what all have been measured by."""
    metrics = [m for m in HISTORY if all(m in spread.metrics for spread in spreads)]
    rows = []
    for spread in spreads if metrics else ():
        found = [spread[m] for m in metrics]
        cells = (number(one.mean, 4) + ("" if one.std is None else f" ± {number(one.std, 4)}") for one in found)
        rows.append((spread.name, *cells))
    return Table("Spread over seeds", ("System", *(titled(m, k) for m in metrics)), rows)
