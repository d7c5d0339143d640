"""The scoreboard's pages: published rows beside ours, marks, failures, and names that mean no good."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evenhand.report.scoreboard_page import scoreboard_markdown, scoreboard_page, scoreboard_rows
from in_browser import opening
from made_scoreboard import STRANGE, made_scoreboard


def test_published_rows_stand_beside_ours_by_accuracy(tmp_path: Path) -> None:
    text = scoreboard_markdown(made_scoreboard(tmp_path))
    section = text.split("## Amazon-Electronic\n")[1].split("\n## ")[0]
    names = re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE)
    assert names[2:5] == ["`ease`", "LightGCN, SL@20", "MF, SL@20"]
    assert "| `ease` | **.0900 / .0600** | .400, .40 (2.5) | 2, 0.5 | **.0450 / .0150** |" in section
    assert "| MF, PSL-relu | .0838 / .0541 |  |  | .0257 / .0159† |  |  | `psl`, `psl-shift` |" in section
    assert "- failed: `als`, shift: there is not enough memory for it." in section
    assert "| Amazon-Electronic | iid | `ease` | .0900 / .0600 | LightGCN, SL@20 | .0903 / .0591 | +1.5 % |" in text
    assert "In the suite and not measured here: Gowalla (iid), Gowalla (shift), Yelp2018 (iid)" in text
    assert "**†**: hyperparameters or epochs were chosen on the test part." in text


def test_a_name_cannot_break_the_pages(tmp_path: Path) -> None:
    board = made_scoreboard(tmp_path)
    assert "<img" not in scoreboard_markdown(board)
    assert "<img" not in scoreboard_page(board)
    rows = [row for row in scoreboard_rows(board) if row[0] == STRANGE]
    assert [row[2:5] for row in rows] == [("popular", ".3300", ".3000")]


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_on_a_phone_and_on_a_desk(browser: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(scoreboard_page(made_scoreboard(tmp_path)), encoding="utf-8")
    with opening(browser, {"page": path}) as open_one:
        page = open_one("page", width=width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#glance tbody tr").count() == 3
        table = page.locator("#test-0 table")
        names = [text.split("\n")[0] for text in table.locator("tbody th").all_inner_texts()]
        assert names[:2] == ["ease", "LightGCN, SL@20"]
        assert names[-1] == "popular"
        # What is wider than the page scrolls in a box of its own, which the last column can be reached in.
        box = page.locator("#test-0 .scroll")
        box.evaluate("one => one.scrollLeft = one.scrollWidth")
        last = table.locator("thead th").last.bounding_box()
        assert last["x"] + last["width"] <= width
        table.locator("thead button").nth(2).click()
        table.locator("thead button").nth(2).click()
        assert table.locator("tbody th").first.inner_text().split("\n")[0] in ("ease", "popular")
