"""What a notebook shows of a log, a comparison, a search and an audit: small, whole, and harmless."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.audit.result import Finding
from evenhand.data.interactions import Interactions
from run_cli import one_thread, small_log
from sample_audit import bare_audit, sample_audit
from sample_search import bare_search, sample_search

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


class Page(HTMLParser):
    """The tags of a piece of HTML, and the texts of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.cells: list[str] = []
        self._inside = False
        self.feed(text)
        assert len(text) < 20_000

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
        self._inside = tag in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


PLAIN = {"p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


def test_a_log_shows_its_size_and_first_pairs() -> None:
    text = small_log()._repr_html_()
    page = Page(text)
    assert page.tags <= PLAIN
    assert page.cells[:3] == ["user", "item", "timestamp"]
    assert len(page.cells) == 3 * 6
    assert f"{len(small_log()) - 5:,} more" in text
    hostile = Interactions.from_pairs([0], [0], item_ids=pa.array([HOSTILE]), notes=(HOSTILE,))
    page = Page(hostile._repr_html_())
    assert page.tags <= PLAIN
    assert page.cells[-1] == r"<script>alert(1)</script>\u202e\x1b[31m"
    assert Interactions.from_pairs([], [])._repr_html_().startswith("<p><b>Interactions(0 users")


def test_a_comparison_shows_its_verdict_and_one_table() -> None:
    with one_thread():
        found = eh.compare(small_log().split(), ["popular", "itemknn"], k=(5, 10), progress=False)
    text = found._repr_html_()
    page = Page(text)
    assert page.tags <= PLAIN
    assert page.cells[:2] == ["top 10", "NDCG ↑"]
    ndcg = found.row("itemknn", 10)["ndcg"].mean
    assert page.cells[page.cells.index("itemknn") + 1] == f"{ndcg:.4f}"
    assert found.protocol in text
    assert Page(replace(found, sentence=HOSTILE, notes=(HOSTILE,))._repr_html_()).tags <= PLAIN


@pytest.mark.parametrize("made", [sample_search, bare_search])
def test_a_search_shows_its_choice_and_best_trials(made: object) -> None:
    assert callable(made)
    found = made()
    page = Page(found._repr_html_())
    assert page.tags <= PLAIN
    assert page.cells[0] == "trial"
    assert page.cells.count("trial") == 1
    best = found.best(1)[0]
    assert str(best.number) in page.cells
    assert f"{best.value:.4f}" in page.cells
    assert Page(replace(found, notes=(HOSTILE,))._repr_html_()).tags <= PLAIN


@pytest.mark.parametrize("made", [sample_audit, bare_audit])
def test_an_audit_shows_its_findings_and_one_table(made: object) -> None:
    assert callable(made)
    found = made()
    page = Page(found._repr_html_())
    assert page.tags <= PLAIN
    assert page.cells[0] == f"top {found.k}"
    assert set(found.systems) <= set(page.cells)
    hostile = replace(found, findings=(Finding(HOSTILE, None),), systems=(HOSTILE,))._repr_html_()
    assert Page(hostile).tags <= PLAIN
    assert "&lt;script&gt;" in hostile
