"""What every page is made of around its sections: style, script, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

import evenhand
from evenhand.report.html_text import escape

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
_FOOTER = (
    f"<footer>Made with evenhand {escape(evenhand.__version__)}. "
    "This file holds everything it shows and loads nothing.</footer>"
)


def document(title: str, parts: Sequence[str]) -> str:
    """The whole file: its sections in order, the empty ones left out."""
    style, script = _asset("style.css"), _asset("script.js")
    policy = (
        f"default-src 'none'; style-src '{_fingerprint(style)}'; script-src '{_fingerprint(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    body = "\n".join(part for part in (*parts, _FOOTER) if part)
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


def section(key: str, title: str, inside: str) -> str:
    heading = f'<h2 id="{key}-title">{title}</h2>'
    return f'<section id="{key}" aria-labelledby="{key}-title">{heading}{inside}</section>'


def details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


def _asset(name: str) -> str:
    return files("evenhand.report").joinpath(name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    """The browser runs and applies exactly this text and no other."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
