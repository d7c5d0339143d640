"""Pages from templates: values stay text whatever they hold, and no page tells where its files lay."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow as pa
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from evenhand.data.write import write_table
from evenhand.report.render import Cell, Column, Origin, Table, _environment, render, without_folder
from run_cli import evenhand, small_log, write_log


def rendered(source: str, **values: object) -> str:
    return _environment().from_string(source).render(values)


def test_values_are_cleaned_and_escaped_and_ready_html_is_not() -> None:
    assert rendered("{{ x }}", x='<b a="1">\x00\u202e\ud800') == "&lt;b a=&#34;1&#34;&gt;\ufffd\ufffd\ufffd"
    assert rendered("{{ x }}", x=Markup("<b>")) == "<b>"
    assert rendered("{{ x|name }}", x="<i>") == "<bdi>&lt;i&gt;</bdi>"


def test_a_value_that_was_forgotten_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="forgotten"):
        rendered("{{ forgotten }}")
    with pytest.raises(UndefinedError):
        render("search.html")


def test_a_further_page_fills_two_blocks_and_has_the_rest() -> None:
    blocks = "{% block title %}Scores{% endblock %}{% block heading %}{{ heading }}{% endblock %}"
    page = rendered('{% extends "base.html" %}' + blocks, heading="A & B")
    assert "<h1>A &amp; B</h1>" in page
    assert "Content-Security-Policy" in page
    assert 'class="facts"' not in page
    assert 'class="origin"' not in page


def table(made: Table) -> str:
    return rendered('{% import "parts.html" as parts %}{{ parts.table(made) }}', made=made)


def test_a_table_holds_what_sorting_needs() -> None:
    row = (
        "a",
        Cell("–", math.nan),
        Cell("∞", math.inf),
        Cell("1", 1.0, best=True),
        Cell("0.5", 0.5, "0.4 – 0.6", True),
    )
    html = table(Table("t", ("Name", "w", "x", "y", "z"), [row], sortable=True))
    assert re.findall(r'data-value="([^"]*)"', html) == ["", "Infinity", "1.0", "0.5"]
    assert html.count("<button") == 5
    assert "<b>1</b>" in html
    assert '<small><span class="quiet">95 % interval </span>0.4 – 0.6</small>' in html
    assert "<button" not in table(Table("t", ("Name",), [("a",)]))


def test_a_heading_says_its_meaning_and_which_way_is_better() -> None:
    html = table(Table("t", ["Name", Column("OHR", 'a "rate"', False, True)], [("a", "1")], [("Bias", 1)]))
    assert '<th scope="col" class="first" title="a &#34;rate&#34;"><bdi>OHR</bdi>' in html
    assert ", lower is better" in html
    assert '<th scope="colgroup" colspan="1">Bias</th>' in html
    assert '<td class="first"><bdi>1</bdi></td>' in html


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--train", "--train"),
        ("ohr@10>0.6", "ohr@10>0.6"),
        ("/home/me/a.csv", "a.csv"),
        ("../my data/a.csv", "a.csv"),
        ("runs/x/", "x"),
        (r"C:\Users\me\a.csv", "a.csv"),
        ("mine=/home/me/a=b/c.csv", "mine=c.csv"),
        ("--out=/home/me/r.html", "--out=r.html"),
        ("/home/me/x=/y.csv", "y.csv"),
        ("postgresql://me:secret@host/studies", "studies"),
        ("mysql://me:secret@host", "host"),
        ("s3://bucket/logs/a.parquet", "a.parquet"),
        ("/home/me/a\nb/c.csv", "c.csv"),
    ],
)
def test_of_a_path_only_the_last_name_is_shown(word: str, shown: str) -> None:
    assert without_folder(word) == shown


def test_a_command_can_be_pasted() -> None:
    origin = Origin.of(["audit", "--fail-if", "ohr@10>0.6"], {"train": "/x/a b.csv", "test": None})
    assert origin.command == "evenhand audit --fail-if 'ohr@10>0.6'"
    assert origin.files == (("train", "a b.csv"),)


def test_no_page_tells_of_folders(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    titles = pa.table({"item": ["0", "1"], "title": ["First", "Second"]})
    write_table(titles, tmp_path / "items.csv")
    lists = pa.table({"user": ["0", "1"], "item": ["3", "4"], "rank": [1, 1]})
    write_table(lists, tmp_path / "lists.csv")
    target = tmp_path / "r.html"
    ended = evenhand(
        *("audit", "--train", log, "--recs", f"mine={tmp_path / 'lists.csv'}", "--k", "1", "--out", target),
        *("--items-file", tmp_path / "items.csv", "--title", "title"),
    )
    assert ended.code == 0, ended.err
    page = target.read_text(encoding="utf-8")
    assert str(tmp_path) not in page
    assert "evenhand audit --train log.csv --recs mine=lists.csv --k 1 --out r.html --items-file items.csv" in page
    for name in ("log.csv", "lists.csv", "items.csv"):
        assert f"<b><bdi>{name}</bdi></b>" in page
