"""The page of a search in a real browser: it opens from disk, draws, sorts, and can be used by everyone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.report.search_page import write_search_page
from in_browser import HOSTILE, Open, opening, serious_barriers
from sample_search import bare_search, sample_search


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "whole": sample_search(),
        "bare": bare_search(),
        "hostile": replace(sample_search(f"bc-loss{HOSTILE}", HOSTILE), notes=(HOSTILE,)),
    }
    for name, result in made.items():
        write_search_page(result, folder / f"{name}.html", data="ratings.csv", protocol="honest")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def open_page(browser: Any, pages: dict[str, Path]) -> Iterator[Open]:
    with opening(browser, pages) as open_one:
        yield open_one


def order(page: Any) -> list[str]:
    rows = page.locator("#numbers > .scroll tbody th")
    return [text.split("\n")[0] for text in rows.all_inner_texts()]


def test_the_chart_draws_and_a_tip_tells_what_the_pointer_is_on(open_page: Open) -> None:
    page = open_page()
    box = page.locator("#figure-front svg.chart").bounding_box()
    assert box["width"] > 300
    assert box["height"] > 200
    page.locator("#figure-front [data-tip]").last.hover()
    assert page.locator("#tip").inner_text() == "trial 3: NDCG@10 0.3950, OHR@10 0.6500"


def test_colours_follow_the_scheme(open_page: Open) -> None:
    fills = {}
    for scheme in ("light", "dark"):
        fills[scheme] = open_page(scheme=scheme).evaluate(
            """() => [...document.querySelectorAll("#figure-front [data-tip]")]
                 .map((mark) => getComputedStyle(mark).fill)"""
        )
        assert not {"none", "rgb(0, 0, 0)"} & set(fills[scheme])
    assert set(fills["light"]).isdisjoint(fills["dark"])


def test_the_front_sorts_by_number_and_by_metric(open_page: Open) -> None:
    page = open_page()
    assert order(page) == ["2", "3", "4", "5", "1"]
    page.locator("#numbers > .scroll th", has_text="Trial").get_by_role("button").click()
    assert order(page) == ["5", "4", "3", "2", "1"]
    page.locator("#numbers > .scroll th", has_text="OHR@10").get_by_role("button").click()
    assert order(page) == ["2", "1", "3", "4", "5"]
    assert page.locator("#said").inner_text() == "Sorted by OHR@10, highest first."


def test_a_failed_trial_sorts_last_both_ways(open_page: Open) -> None:
    page = open_page()
    page.locator("summary", has_text="Every trial").click()
    button = page.locator("#numbers details th", has_text="OHR@10").get_by_role("button")
    for _ in range(2):
        button.click()
        assert page.locator("#numbers details tbody th").last.inner_text().startswith("8")


def test_hostile_texts_do_nothing(open_page: Open) -> None:
    page = open_page("hostile")
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#notes").inner_text()


@pytest.mark.parametrize("name", ["whole", "bare", "hostile"])
def test_no_sideways_scrolling_on_a_phone(open_page: Open, name: str) -> None:
    page = open_page(name, width=360)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier_for_anyone(open_page: Open, scheme: str) -> None:
    assert serious_barriers(open_page(scheme=scheme)) == []
