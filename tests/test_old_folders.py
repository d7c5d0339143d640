"""Models, unfinished runs, searches and audits of earlier days: read, or refused in one sentence with a way out.

tests/fixtures/<day> was made by `python -m checks.old_folders` with the code of that day.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from checks.old_folders import AUDIT, RUN, SEARCH

import evenhand as eh
from evenhand.models.folder import TABLES
from run_cli import Ended, evenhand

DAYS = sorted((Path(__file__).parent / "fixtures").glob("20*"))
MODELS = [file.parent for day in DAYS for file in sorted(day.glob("*/config.json"))]


def named(folder: Path) -> str:
    return "/".join(folder.parts[-2:])


def one_sentence(ended: Ended, *ways_out: str) -> bool:
    """Refused, and told what to do."""
    message = ended.err.removesuffix("\n")
    return (ended.code, ended.out) == (2, "") and "\n" not in message and any(way in message for way in ways_out)


def test_every_kind_of_model_is_there() -> None:
    kinds = {json.loads((folder / "config.json").read_text())["kind"] for folder in MODELS}
    assert kinds == {"vectors", "blend", *TABLES}
    assert len(DAYS) >= 2


@pytest.mark.parametrize("folder", MODELS, ids=named)
def test_a_model_gives_the_lists_that_it_gave(folder: Path, tmp_path: Path) -> None:
    model = eh.load(folder)
    wanted = json.loads((folder / "lists.json").read_text())["recommendations"]
    for found in (model, _saved_again(model, tmp_path / "again")):
        rows = found.recommend(k=3).to_pylist()
        assert [(r["user"], r["item"], r["rank"]) for r in rows] == [(r["user"], r["item"], r["rank"]) for r in wanted]
        assert [r["score"] for r in rows] == pytest.approx([r["score"] for r in wanted], rel=1e-5, abs=1e-6)
    if model.info["method"] != "popular":
        assert len(model.similar(0, k=2)) == 2


def _saved_again(model: eh.Model, folder: Path) -> eh.Model:
    model.save(folder)
    return eh.load(folder)


@pytest.mark.parametrize("folder", MODELS, ids=named)
def test_a_model_is_updated_or_says_why_not(folder: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.csv"
    newer.write_text("user,item\nu0,new\nnobody,new\nnobody,1\nu1,23\n")
    with torch.random.fork_rng():
        ended = evenhand("update", folder, newer, "--out", tmp_path / "model", "--device", "cpu", "--quiet")
    assert ended.code == 0 or one_sentence(ended, "train"), ended.err
    assert ended.code or "new" in map(str, eh.load(tmp_path / "model").known.item_ids.to_pylist())


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_an_unfinished_run_goes_on_or_says_how_to_start_over(
    day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = _in_a_copy(day, tmp_path, monkeypatch, f"{RUN} --resume --quiet")
    assert ended.code == 0 or one_sentence(ended, "start over with --force"), ended.err


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_a_search_goes_on_or_says_where_else_to(day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _in_a_copy(day, tmp_path, monkeypatch, SEARCH)
    assert ended.code == 0 or one_sentence(ended, "another folder"), ended.err


@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_an_audit_is_compared_with(day: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _in_a_copy(day, tmp_path, monkeypatch, AUDIT.replace("--save", "--baseline"))
    assert ended.code == 0 or one_sentence(ended, "--save"), ended.err


def _in_a_copy(day: Path, place: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> Ended:
    shutil.copytree(day, place / "copy")
    monkeypatch.chdir(place / "copy")
    return evenhand(*command.split())
