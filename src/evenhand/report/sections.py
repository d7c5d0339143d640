"""The parts of the page under its header. Each returns HTML, or nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.audit.result import Audit, Finding
from evenhand.metrics.catalogue import HISTORY
from evenhand.report.draw import patch, symbol
from evenhand.report.example_users import examples
from evenhand.report.figure import Figure
from evenhand.report.html_text import count, escape, isolated, number, tied
from evenhand.report.labels import in_order, meaning, short
from evenhand.report.shell import details, section
from evenhand.report.tables import change_table, contrast_table, full_table, main_table, plain_table
from evenhand.report.training_charts import training_figures
from evenhand.report.training_story import Spread, TrainingStory


def findings(audit: Audit) -> str:
    found = audit.findings
    if not found:
        return ""
    wanted = "<i>Wanted</i> is what the user has in the test data. " if audit.confusion else ""
    hint = (
        f"{wanted}<i>Hot</i> items are the popular ones, <i>cold</i> items all others. "
        "Brackets hold 95 % intervals: how far other users could move a number."
    )
    items = "".join(f"<li><p>{escape(tied(one.sentence))}</p>{_certainty(one)}</li>" for one in found)
    return section("findings", "What was found", f'<p class="hint">{hint}</p><ol class="findings">{items}</ol>')


def _certainty(finding: Finding) -> str:
    if finding.certain is None:
        return ""
    kind, sign, words = ("open", "○", "within the uncertainty")
    if finding.certain:
        kind, sign, words = ("certain", "●", "exceeds the uncertainty")
    return f'<p class="verdict {kind}"><span aria-hidden="true">{sign}</span> {words}</p>'


def numbers(audit: Audit) -> str:
    """The table of the headline k, and behind it every other number."""
    table = main_table(audit)
    if not table:
        return ""
    hint = (
        '<p class="hint">Small figures are 95 % intervals over users. ★ marks the best value, '
        '↑ more is better, ↓ less is better. <span class="on-screen">Press a heading to sort.</span></p>'
    )
    more = details("Every metric at every list length", full_table(audit))
    contrasts = contrast_table(audit)
    if contrasts:
        told = "<p>Paired on the same users, with 95 % intervals; p values are corrected for their number.</p>"
        more += details(f"Every paired difference at {audit.k}", told + contrasts)
    return section("numbers", f"The numbers, at {count(audit.k, 'recommendation')}", hint + table + more)


def changes(audit: Audit) -> str:
    table = change_table(audit)
    return section("changes", "Since the earlier audit", table) if table else ""


def charts(key: str, title: str, figures: Sequence[Figure], audit: Audit, opening: str = "") -> str:
    drawn = "".join(_figure(figure, audit) for figure in figures)
    inside = opening + (f'<div class="figures">{drawn}</div>' if drawn else "")
    return section(key, title, inside) if inside else ""


def _figure(figure: Figure, audit: Audit) -> str:
    patches = [f"<li>{patch(colour)}{escape(words)}</li>" for colour, words in figure.patches]
    systems = [f"<li>{symbol(audit.systems.index(name))}{isolated(name)}</li>" for name in figure.systems]
    title, key = escape(figure.title), escape(f"figure-{figure.key}")
    table = plain_table(f"Numbers: {figure.title}", figure.header, figure.rows)
    summary = f'Numbers<span class="quiet"> behind “{title}”</span>'
    return (
        f'<figure id="{key}"><h3>{title}</h3><ul class="legend">{"".join(patches + systems)}</ul>'
        f"{''.join(figure.drawings)}<figcaption>{escape(figure.caption)}</figcaption>"
        f"{details(summary, table)}</figure>"
    )


def training(audit: Audit, story: TrainingStory) -> str:
    """The spread over seeds, then curves by epoch."""
    spreads = [spread for spread in story.spreads if spread.k == audit.k]
    figures = training_figures(story, audit.systems)
    return charts("training", "How they were trained", figures, audit, _over_seeds(spreads, audit.k, story))


def _over_seeds(spreads: Sequence[Spread], k: int, story: TrainingStory) -> str:
    metrics = [m for m in HISTORY if spreads and all(m in spread.metrics for spread in spreads)]
    if not metrics:
        return ""
    header = ("System", *(f"{short(m)}@{k}" for m in metrics))
    rows = [(spread.name, *(_mean(spread, m) for m in metrics)) for spread in spreads]
    told = (
        "Everything above speaks of each contender’s best seed, as its model was saved. "
        f"These are means over {count(story.seeds, 'seed')}"
    )
    told += ", ± their standard deviation." if story.seeds > 1 else "."
    if story.protocol == "paper":
        told += " Every measure of accuracy is taken at its own best test epoch, as in the paper."
    return f'<p class="hint">{told}</p>{plain_table("Spread over seeds", header, rows)}'


def _mean(spread: Spread, metric: str) -> str:
    found = spread.metrics[metric]
    return number(found.mean, 4) + ("" if found.std is None else f" ± {number(found.std, 4)}")


def users(audit: Audit) -> str:
    shown = examples(audit)
    if not shown:
        return ""
    marks = "✓ is a hit, ✗ a miss. " if audit.confusion else ""
    hint = f"{marks}<i>Hot</i> items are the popular ones, <i>cold</i> items all others."
    return section("examples", "A few users", f'<p class="hint">{hint}</p>{shown}')


def notes(audit: Audit) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in audit.notes)
    return section("notes", "Notes", f'<ul class="notes">{items}</ul>') if items else ""


def words(audit: Audit) -> str:
    """What each metric means."""
    metrics = in_order(metric for row in audit.rows for metric in row.metrics)
    entries = "".join(
        f"<div><dt>{escape(short(m))}</dt><dd>{escape(meaning(m))}</dd></div>" for m in metrics if meaning(m)
    )
    if not entries:
        return ""
    inside = details("What each metric means", f'<dl class="words">{entries}</dl>')
    return section("words", "Words", inside)
