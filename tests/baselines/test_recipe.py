"""The recipe: any budget ends in time with a usable model, nothing finished is lost, test is never looked at."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.baselines import EASE, Popular, blend, recipe
from evenhand.baselines.base import Baseline
from evenhand.baselines.recipe import Recipe
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.splits import held_out_share
from evenhand.methods import made_by, recipe_text, seconds_of
from evenhand.models.blend_model import BlendModel
from evenhand.models.folder import load
from evenhand.training.method import RunOptions
from evenhand.utils import progress
from evenhand.utils.errors import InputError
from run_cli import evenhand, small_log, write_log

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def parts() -> tuple[Interactions, Interactions]:
    return held_out_share(simulate_log(80, 60, 1500, seed=1), 0.2)


class Clock:
    """Time that passes only when something is fitted."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> tuple[Clock, list[str]]:
    """A clock on which every fit takes ten seconds, and the labels of what was fitted."""
    clock, fitted = Clock(), []
    real = recipe.fit_part

    def fit_part(part, *more):  # type: ignore[no-untyped-def]
        clock.now += 10
        fitted.append(part.label)
        return real(Popular() if part.side_by_side else part, *more)

    monkeypatch.setattr(recipe, "clock", clock)
    monkeypatch.setattr(recipe, "fit_part", fit_part)
    return clock, fitted


@pytest.mark.parametrize("budget", [1, 15, 40, 100, 200])
def test_every_budget_ends_in_time_with_a_usable_model(
    budget: float, timed: tuple[Clock, list[str]], parts: tuple[Interactions, Interactions]
) -> None:
    clock, fitted = timed
    model, final = Recipe(budget=budget).settle(*parts, 0, CPU)
    assert model.recommend(k=5).num_rows > 0
    # One part is fitted whatever the budget says; beyond it, what refitting takes is kept free.
    assert clock.now <= max(10, budget)
    assert clock.now + 10 * len(final.parts) <= max(20, budget + 10)
    assert len(fitted) == len(model.info["tried"])


def test_compiling_does_not_use_the_budget_up(
    parts: tuple[Interactions, Interactions], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real, fitted = Clock(), recipe.fit_part, []
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock))

    def fit_part(part, *more):  # type: ignore[no-untyped-def]
        with progress.compiling():
            clock.now += 500
        clock.now += 10
        fitted.append(part.label)
        return real(Popular() if part.side_by_side else part, *more)

    monkeypatch.setattr(recipe, "fit_part", fit_part)
    Recipe(budget=100).settle(*parts, 0, CPU)
    assert 3 < len(fitted) < 10


def test_it_never_ends_below_its_best_part(parts: tuple[Interactions, Interactions]) -> None:
    rest, held = parts
    model, _ = Recipe(budget=3).settle(rest, held, 0, CPU)
    best = max(one["ndcg"] for one in model.info["tried"])
    found = eh.evaluate(model.recommend(k=20), eh.given_split(rest, held), k=(20,)).at(20).metrics
    assert found["ndcg"].mean >= best - 1e-6


def test_what_is_finished_is_not_fitted_again(
    timed: tuple[Clock, list[str]], parts: tuple[Interactions, Interactions], tmp_path: Path
) -> None:
    _, fitted = timed
    one = Recipe(budget=200)
    first, _ = one.settle(*parts, 0, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    done = list(fitted)
    again, _ = one.settle(*parts, 0, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    assert fitted[: len(done)] == done
    assert not set(fitted[len(done) :]) & set(done)
    more, _ = Recipe(budget=1000).settle(*parts, 0, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    assert len(more.info["tried"]) >= len(first.info["tried"])
    assert [o["part"] for o in again.info["tried"]][: len(done)] == [o["part"] for o in first.info["tried"]]


def test_parts_of_other_data_or_of_another_seed_are_not_taken_up(
    timed: tuple[Clock, list[str]], parts: tuple[Interactions, Interactions], tmp_path: Path
) -> None:
    _, fitted = timed
    Recipe(budget=40).settle(*parts, 0, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    first = len(fitted)
    Recipe(budget=40).settle(*parts, 1, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    other = held_out_share(simulate_log(80, 60, 1500, seed=9), 0.2)
    Recipe(budget=40).settle(*other, 0, CPU, RunOptions(checkpoints=tmp_path / "kept"))
    assert fitted == 3 * fitted[:first]


def test_a_part_that_does_not_fit_is_left_out(
    parts: tuple[Interactions, Interactions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: Baseline, *args: object) -> None:
        raise InputError("too large")

    monkeypatch.setattr(EASE, "fit_pairs", refuses)
    model, _ = Recipe(budget=2).settle(*parts, 0, CPU)
    assert not any("ease" in one["part"] for one in model.info["tried"])


def test_without_validation_the_chosen_parts_know_every_pair(parts: tuple[Interactions, Interactions]) -> None:
    log = parts[0].union(parts[1])
    model = Recipe(budget=2).fit_pairs(log)
    assert isinstance(model, BlendModel)
    assert model.known is log
    for part in model.parts:
        assert len(part.known) == len(log)


def test_a_refit_and_an_update_search_nothing_again(
    parts: tuple[Interactions, Interactions], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    split = eh.given_split(parts[0], parts[1], validation=0.2)
    one = Recipe(budget=2)
    fit = one.fit(split, seeds=1, k=5, device="cpu")
    monkeypatch.setattr(recipe.Search, "run", lambda self: pytest.fail("searched again"))
    final = one.refit(fit, split, device="cpu")
    assert [part.info["method"] for part in final.parts] == [part.info["method"] for part in fit.model.parts]
    final.save(tmp_path / "m")
    again = made_by(load(tmp_path / "m"))
    assert again.shares == fit.model.weights
    newer = simulate_log(80, 60, 1600, seed=2)
    assert len(again.update(load(tmp_path / "m"), newer, device="cpu").model.known) > len(final.known)


@pytest.mark.parametrize("aim", ["items", "log"])
def test_validation_is_drawn_for_the_aim(
    aim: str, parts: tuple[Interactions, Interactions], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    real = blend.held_out_share

    def held_out(pairs, share, how):  # type: ignore[no-untyped-def]
        drawn.append(how)
        return real(pairs, share, how)

    monkeypatch.setattr(blend, "held_out_share", held_out)
    Recipe(budget=1, aim=aim).fit_pairs(parts[0])
    assert drawn == [recipe.AIMS[aim]]


def test_the_goal_exposure_keeps_hits_within_the_limit(parts: tuple[Interactions, Interactions]) -> None:
    rest, held = parts
    slots = []
    for goal in ("accuracy", "exposure"):
        model, _ = Recipe(budget=4, goal=goal).settle(rest, held, 0, CPU)
        items = model.recommend(k=20)["item"].to_pylist()
        head = set(rest.item_ids.take(np.argsort(-rest.popularity, kind="stable")[:6]).to_pylist())
        slots.append(np.mean([item in head for item in items]))
    assert slots[1] <= slots[0]


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400)])
def test_budgets_are_read_as_times(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "ten", "-3s", "0", "nan", "1e99h"])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 90s, 10m or 1h"):
        recipe_text("best", text)


def test_train_without_a_method_is_the_recipe(tmp_path: Path) -> None:
    data = write_log(small_log(), tmp_path / "log.csv")
    ended = evenhand("train", data, "--budget", "2s", "--out", tmp_path / "m", "--for", "exposure")
    assert ended.code == 0, ended.err
    assert "What was tried" in ended.out
    model = load(tmp_path / "m")
    assert model.info["goal"] == "exposure"
    pairs = {tuple(line.split(",")[:2]) for line in data.read_text().splitlines()[1:]}
    shown = model.recommend(k=5)
    assert not pairs & set(zip(map(str, shown["user"].to_pylist()), map(str, shown["item"].to_pylist()), strict=True))
    for asked, reported in (
        (("--method", "ease", "--budget", "3s"), "--budget belongs to a recipe"),
        (("--budget", "soon"), "such as 90s, 10m or 1h"),
        (("--aim", "items", "--budget", "0"), "such as 90s"),
        (("--aim", "all"), "aim"),
    ):
        refused = evenhand("train", data, *asked, "--out", tmp_path / "x")
        assert refused.code == 2
        assert reported in refused.err
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("how", "aim"), [("random", "log"), ("popularity-shift", "items"), ("time", "next")])
def test_its_aim_is_that_of_the_validation_part(how: str, aim: str) -> None:
    log = eh.simulate(n_users=300, n_items=200, n_interactions=6000, seed=2).log
    log = replace(log, timestamps=np.random.default_rng(0).random(len(log)) * 1e6 + 10)
    split = log.split(how=how)
    assert split.validation is not None
    assert recipe.aim_of(split.train, split.validation) == aim
    model, _ = Recipe(budget=0.1).settle(split.train, split.validation, 0, CPU)
    assert model.info["aim"] == aim
