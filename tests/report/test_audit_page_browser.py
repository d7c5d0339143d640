"""The report in a real browser: it opens from disk, draws, sorts, prints, and can be used by everyone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from evenhand.audit.result import Finding
from evenhand.report import Origin, write_report
from in_browser import HOSTILE, Open, opening, serious_barriers, wait_until
from sample_audit import bare_audit, sample_audit, sample_story

INJECTED = """
<script>window.owned = "a script"</script>
<script src="http://127.0.0.1/x.js"></script>
<img src="http://127.0.0.1/x" onerror="window.owned = 'an image'">
<iframe src="http://127.0.0.1/"></iframe>
<style>body { display: none }</style>
<p style="position: fixed; inset: 0">styled</p>
<button id="handler" onclick="window.owned = 'a handler'">trap</button>
<a id="link" href="javascript:window.owned = 'a link'">link</a>
<form action="http://127.0.0.1/"><button id="form">send</button></form>
"""
"""What a page must not obey even if it came into it."""
TURNED = "in order \u200f\u2067\u2069\u202emlp"


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    hostile = (f"a{HOSTILE}", f"b{HOSTILE}")
    made = {
        "whole": (sample_audit(), sample_story()),
        "bare": (bare_audit(), None),
        "hostile": (replace(sample_audit(hostile, title=HOSTILE), notes=(HOSTILE,)), sample_story(hostile)),
    }
    made["turned"] = (replace(bare_audit(), findings=(Finding(TURNED, None),), notes=(TURNED,)), None)
    origin = Origin.of(
        ["audit", "--train", HOSTILE, "--recs", f"a=/home/me/{HOSTILE}"], {HOSTILE: f"/home/me/{HOSTILE}"}
    )
    for name, (audit, story) in made.items():
        write_report(audit, folder / f"{name}.html", training=story, origin=origin)
    words = [
        "audit",
        "--train",
        "/data/me/train.csv",
        "--recs",
        "mine=/data/me/lists.parquet",
        "--out",
        "../report.html",
    ]
    dated = Origin.of(words, {"train": "/data/me/train.csv", "test": None, "mine": "lists.parquet"})
    dated = replace(dated, made=datetime(2026, 9, 1, 14, 3, tzinfo=UTC))
    write_report(bare_audit(), folder / "dated.html", origin=dated)
    whole = (folder / "whole.html").read_text(encoding="utf-8")
    (folder / "injected.html").write_text(whole.replace("<header>", f"<header>{INJECTED}"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in (*made, "dated", "injected")}


@pytest.fixture
def open_report(browser: Any, reports: dict[str, Path]) -> Iterator[Open]:
    with opening(browser, reports) as open_one:
        yield open_one


def names_in_order(page: Any) -> list[str]:
    return page.locator("#numbers > .scroll tbody th").all_inner_texts()


@pytest.mark.parametrize(("name", "charts"), [("whole", 11), ("bare", 2), ("hostile", 11)])
def test_opens_from_disk_and_every_chart_draws(open_report: Open, name: str, charts: int) -> None:
    page = open_report(name)
    drawn = page.evaluate(
        """() => [...document.querySelectorAll("svg.chart")].map((svg) => {
            const marks = [...svg.querySelectorAll("[data-tip]")].map((mark) => mark.getBBox());
            return {width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
                    marks: marks.filter((box) => box.width + box.height > 0).length};
        })"""
    )
    assert len(drawn) == charts
    for chart in drawn:
        assert chart["width"] > 300
        assert chart["height"] > 80
        assert chart["marks"] > 0


def test_colours_reach_the_charts(open_report: Open) -> None:
    fills = {}
    for scheme in ("light", "dark"):
        page = open_report(scheme=scheme)
        fills[scheme] = page.evaluate(
            """() => [...document.querySelectorAll("#figure-exposure [data-tip]")]
                 .map((mark) => getComputedStyle(mark).fill)"""
        )
        assert not {"none", "rgb(0, 0, 0)"} & set(fills[scheme])
    assert set(fills["light"]).isdisjoint(fills["dark"])


def test_hostile_texts_do_nothing(open_report: Open) -> None:
    page = open_report("hostile")
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#notes").inner_text()
    assert HOSTILE in page.locator("#examples").inner_text()
    assert "onerror=" in page.locator(".origin code").inner_text()
    assert "/home/me" not in page.content()


def test_the_policy_stops_scripts_that_are_not_the_pages_own(browser: Any, reports: dict[str, Path]) -> None:
    """Were escaping to fail somewhere, nothing would run, load, restyle or submit."""
    context = browser.new_context()
    page = context.new_page()
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: asked.append(request.failure))
    page.add_init_script(
        """window.refused = [];
           addEventListener("securitypolicyviolation", (found) => window.refused.push(found.effectiveDirective))"""
    )
    page.goto(reports["injected"].as_uri())
    page.locator("#numbers > .scroll th", has_text="OHR").get_by_role("button").click()
    assert page.locator("#said").inner_text() == "Sorted by OHR (pooled), highest first."  # its own script runs
    for trap in ("handler", "link", "form"):
        page.evaluate("id => document.getElementById(id).click()", trap)
    wait_until(page, "() => window.refused.includes('form-action')")
    assert set(page.evaluate("window.refused")) == {
        "script-src-elem",
        "script-src-attr",
        "style-src-elem",
        "style-src-attr",
        "img-src",
        "frame-src",
        "form-action",
    }
    assert page.evaluate("window.owned") is None
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    assert set(asked) == {"csp", reports["injected"].as_uri()}
    context.close()


def test_marks_of_direction_cannot_turn_words_around(open_report: Open) -> None:
    page = open_report("turned")
    lines = page.evaluate(
        """() => [...document.querySelectorAll("#findings li p:first-child, #notes li")].map((line) => {
            const text = line.firstChild, range = document.createRange(), left = (n) => {
                range.setStart(text, n); range.setEnd(text, n + 1); return range.getBoundingClientRect().left;
            };
            return [-3, -2, -1].map((n) => left(text.length + n));
        })"""
    )
    assert lines
    assert all(first < middle < last for first, middle, last in lines)


def test_the_header_says_when_from_what_and_how_it_was_made(open_report: Open) -> None:
    lines = open_report("dated").locator(".origin").inner_text().split("\n")
    assert lines == [
        "Date",
        "2026-09-01 14:03 UTC",
        "Files",
        "train: train.csv, mine: lists.parquet",
        "Command",
        "evenhand audit --train train.csv --recs mine=lists.parquet --out report.html",
    ]


@pytest.mark.parametrize(("width", "wider"), [(390, True), (1280, False)])
def test_a_table_that_is_wider_than_the_page_says_so(open_report: Open, width: int, wider: bool) -> None:
    page = open_report(width=width)
    box = page.locator("#numbers > .scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth") is wider
    hint = """box => { const hint = getComputedStyle(box, "::before"); return hint.display + " " + hint.content; }"""
    assert ("scroll it sideways" in box.evaluate(hint)) is wider
    page.set_viewport_size({"width": 1670 - width, "height": 800})
    wait_until(
        page, "wide => document.querySelector('#numbers > .scroll').classList.contains('wide') === wide", not wider
    )


def test_the_table_sorts_by_click_and_back(open_report: Open) -> None:
    page = open_report()
    assert names_in_order(page) == ["ease", "auc-ns"]
    head = page.locator("#numbers > .scroll th", has_text="OHR")
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert names_in_order(page) == ["ease", "auc-ns"]  # 0.660, 0.638
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert names_in_order(page) == ["auc-ns", "ease"]
    assert page.locator("#said").inner_text() == "Sorted by OHR (pooled), lowest first."


def test_the_keyboard_reaches_and_sorts_the_table(open_report: Open) -> None:
    page = open_report()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").startswith("NDCG"):
            break
    else:
        pytest.fail("twenty tabs do not reach the column NDCG")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert names_in_order(page) == ["auc-ns", "ease"]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_missing_values_sort_last_both_ways(open_report: Open) -> None:
    page = open_report()
    page.evaluate("""() => { const cell = document.querySelector("#numbers tbody tr td"); cell.dataset.value = ""; }""")
    button = page.locator("#numbers > .scroll th", has_text="NDCG").get_by_role("button")
    for _ in range(2):
        button.click()
        assert names_in_order(page)[-1] == "ease"


def test_a_tip_tells_what_the_pointer_is_on(open_report: Open) -> None:
    page = open_report()
    page.locator("#figure-tradeoff [data-tip]").first.hover()
    assert page.locator("#tip").inner_text() == "ease: NDCG@10 0.342, OHR 0.660"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


@pytest.mark.parametrize("name", ["whole", "bare", "hostile"])
def test_no_sideways_scrolling_on_a_phone(open_report: Open, name: str) -> None:
    page = open_report(name, width=360)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.locator("#numbers > .scroll").get_attribute("tabindex") == "0"


def test_print_is_light_and_has_no_screen_furniture(open_report: Open) -> None:
    page = open_report(scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(background) != dark
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 27, 24)"
    assert page.get_by_text("Press a heading to sort.").is_hidden()
    assert len(page.pdf(format="A4")) > 10_000


def test_works_without_scripts(browser: Any, reports: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(reports["whole"].as_uri())
    assert page.locator("svg.chart").count() == 11
    assert page.locator("svg.chart").first.bounding_box()["height"] > 80
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_no_serious_barrier_for_anyone(open_report: Open, scheme: str, width: int) -> None:
    assert serious_barriers(open_report(width=width, scheme=scheme)) == []
