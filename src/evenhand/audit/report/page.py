"""The page: header, findings, table, charts, examples, notes, in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

import evenhand
from evenhand.audit.report import sections
from evenhand.audit.report.accuracy_charts import slice_figures, tradeoff_figure
from evenhand.audit.report.confusion_chart import confusion_figure
from evenhand.audit.report.exposure_charts import exposure_figure, lorenz_figure
from evenhand.audit.report.text import clean, escape, isolated, listing
from evenhand.audit.result import Audit
from evenhand.audit.story import TrainingStory

PROTOCOLS = {
    "honest": "epochs were chosen on validation, and the test part was looked at once.",
    "paper": "epochs were chosen on the test part itself, as in the paper, so accuracy is flattered.",
}
FACTS = {
    "users": "users",
    "items": "items",
    "interactions": "train interactions",
    "test_interactions": "test interactions",
    "judged_users": "users judged",
}
HATCHES = (
    '<svg class="defs" aria-hidden="true" width="0" height="0"><defs>'
    + "".join(
        f'<pattern id="{heat}-error" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="6" height="6" fill="var(--{heat}-pale)"/>'
        f'<rect width="2.4" height="6" fill="var(--{heat})"/></pattern>'
        for heat in ("hot", "cold")
    )
    + "</defs></svg>"
)
"""Fills for errors: told from hits by their texture, not by colour alone."""


def page(audit: Audit, training: TrainingStory | None = None) -> str:
    """The whole document."""
    style, script = _asset("style.css"), _asset("script.js")
    policy = (
        f"default-src 'none'; style-src '{_fingerprint(style)}'; script-src '{_fingerprint(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"{listing([clean(name, 40) for name in audit.systems[:3]])}: recommendation audit"
    body = "\n".join(part for part in _parts(audit, training) if part)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{HATCHES}
<main>
{body}
</main>
<div id="tip" aria-hidden="true" hidden></div>
<div id="said" class="quiet" role="status"></div>
<script>{script}</script>
</body>
</html>
"""


def _parts(audit: Audit, training: TrainingStory | None) -> list[str]:
    """The sections in order; what there is nothing to say of is empty, and left out."""
    drawn = (exposure_figure(audit), confusion_figure(audit), tradeoff_figure(audit), lorenz_figure(audit))
    return [
        _header(audit, training),
        sections.findings(audit.findings),
        sections.numbers(audit),
        sections.changes(audit),
        sections.charts("charts", "Where the recommendations go", [f for f in drawn if f], audit),
        sections.charts("slices", "Who is served how well", slice_figures(audit), audit),
        sections.training(audit, training) if training else "",
        sections.users(audit),
        sections.notes(audit),
        sections.words(audit),
        f"<footer>Made with evenhand {escape(evenhand.__version__)}. "
        "This file holds everything it shows and loads nothing.</footer>",
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


def _asset(name: str) -> str:
    return files("evenhand.audit.report").joinpath(name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    """The browser runs and applies exactly this text and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
