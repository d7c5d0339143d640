"""The page: header, findings, table, charts, examples, notes, in one file that needs nothing else."""

from __future__ import annotations

from evenhand.audit.result import Audit
from evenhand.report import sections
from evenhand.report.accuracy_charts import slice_figures, tradeoff_figure
from evenhand.report.confusion_chart import confusion_figure
from evenhand.report.exposure_charts import exposure_figure, lorenz_figure
from evenhand.report.html_text import clean, escape, isolated, listing
from evenhand.report.shell import document
from evenhand.report.training_story import TrainingStory

PROTOCOLS = {
    "honest": "epochs were chosen on validation, and the test part was looked at once.",
    "paper": "epochs were chosen on the test part itself, as in the paper, so accuracy is flattered. "
    "The numbers below are of each contender’s saved model, from its best epoch by precision; "
    "the table over seeds, further down, takes every measure of accuracy at its own best epoch.",
}
FACTS = {
    "users": "users",
    "items": "items",
    "interactions": "train interactions",
    "test_interactions": "test interactions",
    "judged_users": "users judged",
}


def page(audit: Audit, training: TrainingStory | None = None) -> str:
    """The whole document."""
    title = f"{listing([clean(name, 40) for name in audit.systems[:3]])}: recommendation audit"
    return document(title, _parts(audit, training))


def _parts(audit: Audit, training: TrainingStory | None) -> list[str]:
    """The sections in order; what there is nothing to say of is empty, and left out."""
    drawn = (exposure_figure(audit), confusion_figure(audit), tradeoff_figure(audit), lorenz_figure(audit))
    return [
        _header(audit, training),
        sections.findings(audit),
        sections.numbers(audit),
        sections.changes(audit),
        sections.charts("charts", "Where the recommendations go", [f for f in drawn if f], audit),
        sections.charts("slices", "Who is served how well", slice_figures(audit), audit),
        sections.training(audit, training) if training else "",
        sections.users(audit),
        sections.notes(audit),
        sections.words(audit),
    ]


def _header(audit: Audit, training: TrainingStory | None) -> str:
    names = [isolated(name) for name in audit.systems]
    heading = listing(names) if len(names) <= 3 else f"{len(names)} recommenders compared"
    protocol = ""
    if training:
        told = PROTOCOLS.get(training.protocol, "")
        protocol = f'<p class="protocol">Protocol <b>{escape(training.protocol)}</b>: {told}</p>'
    facts = "".join(f"<div><dt>{words}</dt><dd>{value}</dd></div>" for words, value in _facts(audit))
    return (
        f'<header><p class="eyebrow">Recommendation audit</p><h1>{heading}</h1>{protocol}'
        f'<dl class="facts">{facts}</dl></header>'
    )


def _facts(audit: Audit) -> list[tuple[str, str]]:
    known = [(words, audit.data.get(key)) for key, words in FACTS.items()]
    facts = [(words, f"{value:,}") for words, value in known if isinstance(value, int) and value]
    hot, rule = audit.data.get("hot_items"), audit.data.get("hot_rule")
    if isinstance(hot, int):
        facts.append((f"hot items: {escape(rule)}" if rule else "hot items", f"{hot:,}"))
    return facts
