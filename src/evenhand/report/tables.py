"""Tables of a page: sortable by click and key, intervals kept quiet, the best marked by more than colour."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evenhand.audit.result import Audit, Contrast, SystemRow
from evenhand.report.html_text import count, escape, interval, isolated, number
from evenhand.report.labels import higher_is_better, in_order, main_groups, meaning, short

MOST_CONTRASTS = 120


def main_table(audit: Audit) -> str:
    """Every system at the headline k with the metrics that matter first."""
    rows = [row for row in audit.rows if row.k == audit.k]
    groups = main_groups(metric for row in rows for metric in row.metrics)
    if not groups:
        return ""
    heads = "".join(f'<th scope="colgroup" colspan="{len(names)}">{title}</th>' for title, names in groups)
    metrics = [metric for _, names in groups for metric in names]
    firsts = {names[0] for _, names in groups}
    columns = "".join(_metric_head(metric, metric in firsts) for metric in metrics)
    return scrolling(
        f"Metrics of every system at {audit.k} recommendations",
        f'<table class="sortable"><thead><tr class="groups"><td></td>{heads}</tr>'
        f"<tr>{_head('System')}{columns}</tr></thead>"
        f"<tbody>{_bodies(rows, metrics, firsts)}</tbody></table>",
    )


def full_table(audit: Audit) -> str:
    """Every metric of every system at every k."""
    metrics = in_order(metric for row in audit.rows for metric in row.metrics)
    columns = "".join(_metric_head(metric) for metric in metrics)
    bodies = "".join(
        _bodies([row for row in audit.rows if row.k == k], metrics, set(), with_k=True, digits=4) for k in audit.ks
    )
    return scrolling(
        "Every metric at every list length",
        f'<table class="sortable"><thead><tr>{_head("System")}{_head("k")}{columns}</tr></thead>'
        f"<tbody>{bodies}</tbody></table>",
    )


def _bodies(
    rows: Sequence[SystemRow], metrics: Sequence[str], firsts: set[str], with_k: bool = False, digits: int = 3
) -> str:
    best = {metric: best_value(rows, metric) for metric in metrics}
    made = []
    for row in rows:
        cells = "".join(_cell(row, metric, best[metric], metric in firsts, digits) for metric in metrics)
        k = f'<td data-value="{row.k}">{row.k}</td>' if with_k else ""
        made.append(f'<tr><th scope="row">{isolated(row.name)}</th>{k}{cells}</tr>')
    return "".join(made)


def _cell(row: SystemRow, metric: str, best: float | None, first: bool, digits: int) -> str:
    estimate = row.metrics.get(metric)
    opening = '<td class="first"' if first else "<td"
    if estimate is None or math.isnan(estimate.value):
        return f'{opening} data-value=""><span class="none">{number(None)}</span></td>'
    is_best = estimate.value == best and not _silent(row, metric)
    mark = '<span class="star" aria-hidden="true">★</span><span class="quiet">best </span>' if is_best else ""
    shown = f"<b>{number(estimate.value, digits)}</b>" if is_best else number(estimate.value, digits)
    between = interval(estimate, digits)
    below = f'<small><span class="quiet">95 % interval </span>{between}</small>' if between else ""
    if _silent(row, metric):
        below = f"<small>{'none wanted' if metric.startswith('u') else 'none shown'}</small>"
    return f'{opening} data-value="{_sortable(estimate.value)}">{mark}{shown}{below}</td>'


def _sortable(value: float) -> str:
    """A number as the page's script reads it; undefined ones are empty, and sort last."""
    return "" if math.isnan(value) else repr(float(value)).replace("inf", "Infinity")


def best_value(rows: Sequence[SystemRow], metric: str) -> float | None:
    """The best of a column; None where there is nothing to be better than, or no way is better."""
    higher = higher_is_better(metric)
    found = [row.metrics[metric].value for row in rows if metric in row.metrics and not _silent(row, metric)]
    values = {value for value in found if not math.isnan(value)}
    if higher is None or len(values) < 2:
        return None
    return max(values) if higher else min(values)


def _silent(row: SystemRow, metric: str) -> bool:
    """Whether the number is 0 for lack of any denominator, such as OCR where no cold item is shown."""
    defined = row.metrics.get(f"{metric}_defined")
    return defined is not None and math.isnan(defined.value)


def _metric_head(metric: str, first: bool = False) -> str:
    higher = higher_is_better(metric)
    arrow, spoken = (
        ("", "") if higher is None else ("↑", ", higher is better") if higher else ("↓", ", lower is better")
    )
    return _head(short(metric), meaning(metric), arrow, spoken, "first" if first else "")


def _head(text: str, told: str = "", arrow: str = "", spoken: str = "", css: str = "") -> str:
    hint = f' title="{escape(told)}"' if told else ""
    kind = f' class="{css}"' if css else ""
    way = f'<span aria-hidden="true">&#8202;{arrow}</span><span class="quiet">{spoken}</span>' if arrow else ""
    return f'<th scope="col"{kind}{hint}><button type="button">{escape(text)}{way}</button></th>'


def contrast_table(audit: Audit) -> str:
    """Paired differences at the headline k, the main metrics first."""
    main = [m for _, names in main_groups(c.metric for c in audit.contrasts) for m in names]
    held = [c for c in audit.contrasts if c.k == audit.k]
    held.sort(key=lambda c: main.index(c.metric) if c.metric in main else len(main))
    if not held:
        return ""
    rest = len(held) - MOST_CONTRASTS
    more = f"<p>{count(rest, 'further difference')} left out here.</p>" if rest > 0 else ""
    heads = "".join(_head(text) for text in ("Metric", "Difference", "Value", "p"))
    body = "".join(_contrast(c) for c in held[:MOST_CONTRASTS])
    return (
        scrolling(
            "Paired differences between systems",
            f'<table class="sortable"><thead><tr>{heads}<th scope="col">Verdict</th></tr></thead>'
            f"<tbody>{body}</tbody></table>",
        )
        + more
    )


def _contrast(c: Contrast) -> str:
    p = "&lt; 0.001" if c.p < 0.001 else number(c.p)
    word = "beyond the uncertainty" if c.beyond_uncertainty else "within the uncertainty"
    return (
        f'<tr><th scope="row">{escape(short(c.metric))}@{c.k}</th>'
        f'<td class="text">{isolated(c.a)} − {isolated(c.b)}</td>'
        f'<td data-value="{_sortable(c.difference.value)}">{number(c.difference.value, 4)}'
        f"<small>{interval(c.difference, 4)}</small></td>"
        f'<td data-value="{_sortable(c.p)}">{p}</td><td class="text">{word}</td></tr>'
    )


def change_table(audit: Audit) -> str:
    """What moved against an earlier audit at the headline k, beyond the uncertainty first."""
    held = sorted((c for c in audit.changes if c.k == audit.k), key=lambda c: not c.beyond_uncertainty)
    rows = [
        (
            c.name,
            f"{short(c.metric)}@{c.k}",
            number(c.before.value, 4),
            number(c.after.value, 4),
            _moved(c.worse) if c.beyond_uncertainty else "within the uncertainty",
        )
        for c in held[:MOST_CONTRASTS]
    ]
    return plain_table("Changes", ("System", "Metric", "Before", "Now", "Verdict"), rows) if rows else ""


def _moved(worse: bool | None) -> str:
    return {True: "worse", False: "better", None: "changed"}[worse] + ", beyond the uncertainty"


def plain_table(name: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Texts in columns, for the numbers behind a chart."""
    heads = "".join(f'<th scope="col">{isolated(text)}</th>' for text in header)
    body = "".join(
        f'<tr><th scope="row">{isolated(row[0])}</th>'
        + "".join(f"<td>{isolated(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return scrolling(name, f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>")


def scrolling(name: str, inside: str) -> str:
    """A box that scrolls by itself where the table is wider than the page, by finger and by key."""
    return f'<div class="scroll" role="region" aria-label="{escape(name)}" tabindex="0">{inside}</div>'
