"""The page of a search on two metrics as a file: it says what was picked and what that costs, and is safe."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.experiments.search_result import Verdict, parse_goals
from evenhand.report.search_page import search_page, write_search_page
from evenhand.utils.errors import InputError
from sample_search import bare_search, sample_search

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">&amp; \u2028\u202e\x00\ud800'


def text_of(document: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", document).split())


def test_it_opens_with_what_was_searched_picked_and_what_that_costs() -> None:
    document = search_page(sample_search(), data="logs/ratings.csv", protocol="honest")
    found = text_of(document[document.index('<section id="findings"') :])
    assert found.startswith(
        "What was found 8 trials of bc-loss, measured on validation by NDCG@10 ↑ and OHR@10 ↓: 4 of"
    )
    assert "Picked (knee): trial 3, with NDCG@10 0.3950 and OHR@10 0.6500." in found
    assert "Against the most accurate, trial 2, it is better by 0.0300 in OHR@10 and worse by 0.0050 in" in found
    assert "Against the defaults, trial 1, it is better by 0.0250 in NDCG@10 and by 0.0100 in OHR@10." in found
    assert "ratings.csv" in document
    assert "logs/" not in document


def test_every_trial_is_in_a_table_and_the_front_in_one_of_its_own() -> None:
    document = search_page(sample_search(), data="demo", protocol="honest")
    front, every = re.findall(r"<table class=\"sortable\">.*?</table>", document, re.DOTALL)
    assert re.findall(r'<th scope="row" data-value="(\d+)"', front) == ["2", "3", "4", "5", "1"]
    assert re.findall(r'<th scope="row" data-value="(\d+)"', every) == [*"12345678"]
    assert "failed: the loss became infinite" in every
    assert every.count('data-value=""') == 2
    assert "0.3830\u2009–\u20090.4070" in front
    assert document.count("evenhand train DATA --method ") == 1


def test_the_chart_has_words_in_its_place_and_leaves_out_what_is_far_away() -> None:
    document = search_page(sample_search(), data="demo", protocol="honest")
    (label,) = re.findall(r'<svg class="chart" role="img" aria-label="([^"]*)"', document)
    assert label.startswith("NDCG@10 against OHR@10 of 7 trials. On the front: trial 2: NDCG@10 0.4000")
    tips = re.findall(r'data-tip="trial (\d+):', document)
    assert sorted(tips) == ["1", "2", "3", "3", "4", "5", "6"]  # the pick lies over its point of the front
    assert "1 trial far from the front lies outside." in document


def test_one_trial_makes_a_page() -> None:
    result = bare_search()
    assert result.sentences()[-1] == "These are the defaults."
    document = search_page(result, data="demo", protocol="paper")
    assert "one of them beats or equals all others" in document
    assert "95 % interval </span>" not in document


def test_defaults_that_failed_are_not_drawn() -> None:
    whole = sample_search()
    broken = replace(whole.trials[0], verdict=Verdict((0.0, 1.0), (), "it broke"))
    result = replace(whole, trials=(broken, *whole.trials[1:]))
    document = search_page(result, data="demo", protocol="honest")
    assert 'data-tip="trial 1:' not in document
    assert "the defaults: trial 1" not in document
    assert not any("defaults" in sentence for sentence in result.sentences())


def test_two_metrics_that_rise_are_drawn_as_they_were_named() -> None:
    result = replace(sample_search(), goals=parse_goals("recall@5,ndcg@10"))
    result = replace(result, picked=result.front[0], pick="most-accurate")
    assert "Better is up (Recall@5) and right (NDCG@10)." in search_page(result, data="x", protocol="honest")
    result = replace(result, goals=parse_goals("ucr@5,ohr@10"))
    assert "Better is down (UCR@5) and left (OHR@10)." in search_page(result, data="x", protocol="honest")


def test_intervals_stay_within_what_a_share_can_be() -> None:
    whole = sample_search()
    wide = replace(whole.trials[0], verdict=Verdict((0.01, 0.995), (0.03, 0.02)))
    result = replace(whole, trials=(wide,), picked=wide)
    document = search_page(result, data="x", protocol="honest")
    assert "0.0000\u2009–\u20090.0400" in document
    assert "0.9750\u2009–\u20091.0000" in document


def test_hostile_texts_are_text() -> None:
    result = replace(sample_search(label=f"bc-loss{HOSTILE}", problem=HOSTILE), notes=(HOSTILE,))
    document = search_page(result, data=HOSTILE.replace("/", ""), protocol=HOSTILE)
    assert document.count("<script") == 1
    assert "<img" not in document
    assert not set("\x00\ud800") & set(document)
    assert document.count("&lt;img src=x") >= 4


def test_the_file_is_whole_and_small_and_a_bad_place_is_a_sentence(tmp_path: Path) -> None:
    write_search_page(sample_search(), tmp_path / "front.html", data="demo", protocol="honest")
    assert 10_000 < (tmp_path / "front.html").stat().st_size < 100_000
    with pytest.raises(InputError, match="cannot write"):
        write_search_page(sample_search(), tmp_path / "no" / "front.html", data="demo", protocol="honest")
    assert [path.name for path in tmp_path.iterdir()] == ["front.html"]


def test_examples_in_the_code_are_right() -> None:
    for name in ("report.search_page", "experiments.search_result", "experiments.search_space"):
        failed, tried = doctest.testmod(importlib.import_module(f"evenhand.{name}"))
        assert (failed, tried > 0) == (0, True)
