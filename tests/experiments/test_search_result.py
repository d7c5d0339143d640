"""A search on two metrics: the front and its picks against plain loops, and the search as for one metric."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import evenhand as eh
from evenhand.data.splits import Split
from evenhand.experiments.search_result import (
    PICKS,
    Point,
    Trial,
    Verdict,
    accurate_first,
    front_of,
    front_trials,
    knee_of,
    parse_goals,
    picked_of,
    picked_trial,
)
from evenhand.experiments.search_space import Choice
from evenhand.experiments.study import Study
from evenhand.experiments.tune import TrialEvaluator, TuneResult, tune, tuning_split
from evenhand.methods import parse
from evenhand.metrics.catalogue import METRICS
from evenhand.metrics.statistics import t_quantile
from evenhand.report import search_page
from evenhand.training import Settings, trained
from evenhand.training.method import Method
from evenhand.utils.errors import InputError, RunError, StoppedError
from run_cli import evenhand, small_log, write_log

SETTINGS = Settings(epochs=2, batch=256)
TINY = ("--epochs", "2", "--dim", "8", "--batch", "256")
BOTH = "ndcg@10,ohr@10"

coordinates = st.integers(0, 20)
clouds = st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=40)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def split() -> Split:
    return small_log().split(test=0.2, validation=0.1)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(small_log(), tmp_path_factory.mktemp("log") / "log.csv")


@pytest.fixture
def ridge(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """Trials that cost nothing: alpha trades the first metric for the second, beta off 0.1 harms both."""
    tried: list[Method] = []

    def verdict(setup: Method) -> Verdict:
        p = setup.parameters()
        harm = 0.2 * min(1, abs(np.log10(p["beta"]) + 1))
        along = 2 * (p["alpha"] - 0.5)
        return Verdict((float(0.4 + 0.4 * np.sqrt(along) - harm), float(0.2 + 0.4 * along**2 + harm)))

    def verdicts(evaluator: TrialEvaluator, setups: Sequence[Method]) -> list[Verdict]:
        tried.extend(setups)
        return [verdict(setup) for setup in setups]

    monkeypatch.setattr(TrialEvaluator, "evaluated", verdicts)
    return tried


def outcomes(result: TuneResult) -> list[tuple[dict[str, Any], Verdict]]:
    return [(dict(trial.parameters), trial.verdict) for trial in result.trials]


def trials_of(*values: tuple[float, float] | None) -> list[Trial]:
    """Trials with these values; None is one that failed, with the worst there is."""
    verdicts = [Verdict((0.0, 1.0), (), "it broke") if v is None else Verdict(v) for v in values]
    return [Trial(number, {}, verdict, 1.0) for number, verdict in enumerate(verdicts, start=1)]


# the front


def beats(one: Point, other: Point) -> bool:
    return one != other and one[0] >= other[0] and one[1] >= other[1]


@given(clouds)
def test_the_front_is_what_no_point_beats_each_once(points: list[Point]) -> None:
    plain = [
        place
        for place, point in enumerate(points)
        if not any(beats(other, point) for other in points) and point not in points[:place]
    ]
    found = front_of(points)
    assert sorted(found) == plain
    ways = [points[place] for place in found]
    assert ways == sorted(ways, key=lambda p: (-p[0], p[1]))


@given(clouds)
def test_the_knee_is_the_point_farthest_out_from_the_line_between_the_ends(points: list[Point]) -> None:
    front = [points[place] for place in front_of(points)]
    (a, b), (c, d) = front[0], front[-1]

    def distance(point: Point) -> Fraction:
        """Twice the signed area of the triangle with both ends, in units of the front's own range."""
        if len(front) == 1:
            return Fraction(0)
        (x0, y0), (x1, y1), (x, y) = (
            (Fraction(int(px - c), int(a - c)), Fraction(int(py - b), int(d - b))) for px, py in ((a, b), (c, d), point)
        )
        return (x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)

    farthest = max(distance(point) for point in front)
    assert farthest >= 0
    assert front[knee_of(front)] == max(point for point in front if distance(point) == farthest)


@given(clouds, st.integers(-8, 8), st.integers(-8, 8))
def test_the_picks_do_not_depend_on_the_units(points: list[Point], wide: int, high: int) -> None:
    scaled = [(x * 2.0**wide, y * 2.0**high) for x, y in points]
    assert front_of(scaled) == front_of(points)
    front, other = ([each[place] for place in front_of(points)] for each in (points, scaled))
    for pick in PICKS:
        assert picked_of(front, pick) == picked_of(other, pick)


@pytest.mark.parametrize(
    ("front", "knee"),
    [
        ([(0.4, 0.3)], 0),
        ([(0.4, 0.1), (0.3, 0.2)], 0),  # both are ends: the most accurate
        ([(0.4, 0.1), (0.31, 0.11), (0.3, 0.2)], 0),  # bent the wrong way: no point lies out
        ([(0.4, 0.1), (0.39, 0.19), (0.3, 0.2)], 1),
    ],
)
def test_small_fronts_have_a_knee_too(front: list[Point], knee: int) -> None:
    assert knee_of(front) == knee


def test_a_failed_trial_is_never_on_the_front_even_where_it_could_not_be_beaten() -> None:
    goals = parse_goals("recall@5,ndcg@10")
    failed = Trial(1, {}, Verdict((0.0, 1.0), (), "it broke"), 1.0)
    fine = Trial(2, {}, Verdict((0.3, 0.2)), 1.0)
    assert front_trials([failed, fine], goals) == (fine,)
    assert picked_trial([failed, fine], goals, "least-biased") is fine


def test_ends_go_by_what_rises_and_what_falls_not_by_the_order_of_the_names() -> None:
    values = [(0.3, 0.5), (0.4, 0.7), (0.2, 0.4), (0.38, 0.55), None]
    straight, turned = trials_of(*values), trials_of(*(v and (v[1], v[0]) for v in values))
    for pick, number in (("most-accurate", 2), ("least-biased", 3), ("knee", 4)):
        assert picked_trial(straight, parse_goals("ndcg@10,ohr@10"), pick).number == number  # type: ignore[arg-type]
        assert picked_trial(turned, parse_goals("ohr@10,ndcg@10"), pick).number == number  # type: ignore[arg-type]
    assert accurate_first(parse_goals("recall@10,ndcg@10")) == (0, 1)
    assert accurate_first(parse_goals("ucr@10,ohr@10")) == (0, 1)


# what is asked for


def test_any_two_different_metrics_are_a_pair() -> None:
    sought = [name for name, one in METRICS.items() if one.higher_is_better is not None and name != "popularity_lift"]
    assert {"mrr", "gini", "coverage", "exposure_gap", "items_for_half"} < set(sought)
    for name in sought:
        if name != "ndcg":
            first, second = parse_goals(["ndcg@10", f"{name}@10"])
            assert (first.rises, second.name) == (True, name)
    assert [goal.k for goal in parse_goals("ndcg@5,ndcg@20")] == [5, 20]
    assert parse_goals("ndcg@10 , ohr@10")[1].text == "ohr@10"


WRONG = [
    ("ndcg@10,ndcg@10", "named twice"),
    ("ndcg@10,ndcg@010", "named twice"),
    ("precision@5,fpr@5", "fpr = 1 − precision"),
    ("fnr@20,recall@20", "fnr = 1 − recall"),
    ("ndcg@1,precision@1", "a hit or none"),
    ("fpr@1,ndcg@1", "a hit or none"),
    ("ndcg@10,ohr@10,ucr@10", "one metric or two"),
    ("ndcg@10,hotness@10", "unknown metric of a search 'hotness'"),
    ("ndcg@10,", "unknown metric"),
    ("ndcg@10,ohr", "name@k"),
    ("ndcg@10,ohr@0", "name@k"),
]


@pytest.mark.parametrize(("metric", "sentence"), WRONG)
def test_a_pair_that_is_none_is_refused(metric: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_goals(metric)


def test_lengths_beyond_the_catalogue_are_one_length(split: Split) -> None:
    parse_goals("ndcg@100,ndcg@200")
    with pytest.raises(InputError, match="the catalogue has 80 items"):
        tune(split, "ease", trials=1, metric="ndcg@100,ndcg@200")
    with pytest.raises(InputError, match="one metric or two"):
        tune(split, "ease", trials=1, metric=())


# the search


def test_both_values_are_those_that_an_evaluation_of_validation_finds(split: Split) -> None:
    assert split.validation is not None
    metrics = ("ndcg@10", "ohr@10", "ucr_defined@5", "ocr_pooled@20")
    found = {name: tune(split, "ease", trials=1, metric=("recall@7", name)).picked for name in metrics[1:]}
    found["ndcg@10"] = tune(split, "ease", trials=1, metric=("ndcg@10", "ohr@5")).picked
    lists = eh.EASE().fit_pairs(split.train).recommend(k=20)
    seen = Split(split.train, None, split.validation, "validation in the place of test")
    for text in metrics:
        name, _, k = text.partition("@")
        value = found[text].verdict.values[text != "ndcg@10"]
        assert value == pytest.approx(eh.evaluate(lists, seen, k=int(k)).at(int(k)).metrics[name].mean)


def test_margins_are_the_intervals_of_means_over_users(split: Split) -> None:
    trial = tune(split, "ease", trials=1, metric="precision@5,ohr@10").picked
    lists = eh.EASE().fit_pairs(split.train).recommend(k=10)
    assert split.validation is not None
    seen = Split(split.train, None, split.validation, "validation in the place of test")
    users = eh.evaluate(lists, seen, k=5).at(5).per_seed[0].per_user("precision")
    margin = t_quantile(0.975, len(users) - 1) * users.std(ddof=1) / np.sqrt(len(users))
    assert trial.verdict.margins[0] == pytest.approx(margin)


def test_the_first_trial_has_the_defaults_and_the_pick_is_on_the_front(split: Split, ridge: list[Method]) -> None:
    result = tune(split, trials=30, metric=("ndcg@10", "ohr@10"))
    assert result.trials[0].parameters["alpha"] == 0.75
    assert result.pick == "knee"
    assert result.picked in result.front
    assert result.chosen.parameters()["alpha"] == result.picked.parameters["alpha"]
    ends = [tune(split, trials=30, metric=BOTH, pick=pick) for pick in ("most-accurate", "least-biased")]
    assert ends[0].value == max(trial.value for trial in result.trials)
    assert ends[1].picked.verdict.values[1] == min(trial.verdict.values[1] for trial in result.trials)
    assert [outcomes(end) for end in ends] == [outcomes(result)] * 2  # a pick chooses, it does not search


def test_the_search_gets_nearer_to_what_can_be_had(split: Split, ridge: list[Method]) -> None:
    """Off the ridge every trial is dominated, and at random one in ten lies as near to it."""
    result = tune(split, trials=60, metric=BOTH)
    off = [abs(np.log10(trial.parameters["beta"]) + 1) for trial in result.trials]
    assert np.median(off[40:]) < 0.5 * np.median(off[:10])
    assert len(result.front) >= 5
    spread = [trial.parameters["alpha"] for trial in result.front]
    assert max(spread) - min(spread) > 0.25


def stopped(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: int) -> Callable[[], None]:
    """Interrupt the call of a function after so many; returns what undoes it."""
    before, calls = getattr(owner, name), []

    def call(*given: Any, **named: Any) -> Any:
        calls.append(given)
        if len(calls) > after:
            raise KeyboardInterrupt
        return before(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return lambda: monkeypatch.setattr(owner, name, before)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize(
    ("owner", "name", "after"), [(TrialEvaluator, "evaluated", 3), (Study, "_ask", 14), (Study, "tell", 17)]
)
def test_an_interrupted_search_ends_like_one_that_was_not(
    split: Split, tmp_path: Path, ridge: list[Method], monkeypatch: pytest.MonkeyPatch,
    owner: type, name: str, after: int, at_once: int,
) -> None:  # fmt: skip
    def search(storage: Path | None = None) -> TuneResult:
        return tune(split, trials=22, metric=BOTH, side_by_side=at_once, storage=storage)

    whole = search()
    ridge.clear()
    again = stopped(monkeypatch, owner, name, after)
    with pytest.raises(StoppedError, match="run the same command again"):
        search(tmp_path / "trials.log")
    again()
    second = search(tmp_path / "trials.log")
    assert outcomes(second) == outcomes(whole)
    assert [t.number for t in (second.picked, *second.front)] == [t.number for t in (whole.picked, *whole.front)]
    assert len(ridge) <= 22 + at_once


def test_a_folder_of_other_metrics_is_refused(split: Split, tmp_path: Path, ridge: list[Method]) -> None:
    journal = tmp_path / "trials.log"
    first = tune(split, trials=3, metric=BOTH, storage=journal)
    for other in ("ndcg@10", "ndcg@10,ohr@5", "ohr@10,ndcg@10"):
        with pytest.raises(InputError, match="differs in metric"):
            tune(split, trials=3, metric=other, storage=journal)
    end = tune(split, trials=3, metric=BOTH, pick="least-biased", storage=journal)  # the same trials
    assert outcomes(end) == outcomes(first)
    assert len(ridge) == 3


def test_trials_side_by_side_have_the_values_they_have_alone(split: Split) -> None:
    alone, beside = (
        tune(split, "rns", trials=6, seeds=2, settings=SETTINGS, metric="recall@7,ohr@10", side_by_side=n)
        for n in (1, 6)
    )
    assert outcomes(alone) == outcomes(beside)
    assert len({trial.verdict for trial in alone.trials}) > 1


def test_one_that_cannot_be_trained_is_a_trial_with_a_reason_and_without_values(split: Split) -> None:
    lr = {"lr": Choice((0.01, 1e30))}
    result = tune(split, "rns", trials=4, settings=SETTINGS, ranges=lr, seed=3, metric=BOTH)
    failed = [trial for trial in result.trials if trial.parameters["lr"] > 1]
    assert failed
    assert all("the loss became" in str(trial.problem) for trial in failed)
    assert not {trial.number for trial in failed} & {trial.number for trial in result.front}
    row = result.table().to_pylist()[failed[0].number - 1]
    assert (row["ndcg@10"], row["ohr@10"], row["front"]) == (None, None, False)
    with pytest.raises(RunError, match="no trial"):
        tune(split, "rns", trials=1, settings=SETTINGS, fixed={"lr": 1e30}, metric=BOTH)


def test_an_undefined_value_is_a_reason_too(split: Split) -> None:
    evaluator = TrialEvaluator(tuning_split(split), (0,), "ndcg@5,ocr_defined@5", "cpu")
    vars(evaluator.conditions)["hot_items"] = np.ones(split.n_items, dtype=bool)  # no cold item, so none is shown
    (verdict,) = evaluator.verdicts([parse("ease")])
    assert verdict.problem == "ocr_defined@5 is undefined: there is no user to measure it on"


# the command line


def test_tune_writes_the_front_and_goes_on_with_more_trials(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    command = ("tune", log, "--method", "rns", *TINY, "--out", out, "--metric", BOTH)
    first = evenhand(*command, "--trials", 3)
    assert (first.code, first.err) == (0, "")
    assert "ndcg@10 ↑" in first.out
    assert "ohr@10 ↓" in first.out
    assert "picked (knee)" in first.out
    second = evenhand(*command, "--trials", 5, "--pick", "least-biased", "--json")
    assert (second.code, second.err) == (0, "")
    found, best = second.document, json.loads((out / "best.json").read_text())
    rows = pq.read_table(out / "trials.parquet").to_pylist()
    assert len(rows) == found["trials"] == 5
    assert [row["values"]["ohr@10"] for row in found["rows"]] == [row["ohr@10"] for row in rows]
    assert found["picked"] == min(rows, key=lambda row: (row["ohr@10"], -row["ndcg@10"]))["trial"]
    assert [row["trial"] for row in rows if row["picked"]] == [found["picked"]]
    assert {one["trial"] for one in found["front"]} == {row["trial"] for row in rows if row["front"]}
    assert best["front"] == found["front"]
    assert best["values"] == found["values"]
    assert "least-biased" in (out / "front.html").read_text(encoding="utf-8")
    assert "value" not in best


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("method", ["dns", "ease", "als"])
def test_the_model_is_that_of_the_picked_setup(log: Path, tmp_path: Path, method: str, refit: bool) -> None:
    folder, after = tmp_path / "model", ["--refit"] if refit else []
    tiny = TINY if method == "dns" else ()
    options = ("--range", "factors=2..8") if method == "als" else ()
    ended = evenhand(
        "tune", log, "--method", method, *tiny, *options, "--trials", 3, "--out", tmp_path / "search",
        "--metric", BOTH, "--pick", "most-accurate", "--model", folder, "--json", *after,
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    model, found = eh.load(folder), ended.document
    flags = [str(word) for pair in found["flags"].items() for word in pair]
    again = evenhand(
        "train", log, "--method", found["method"], *flags, "--seeds", 1, "--out", tmp_path / "again",
        "--json", *(after or ["--no-refit"]),
    )  # fmt: skip
    assert (again.code, again.err) == (0, "")
    assert model.recommend(k=5) == eh.load(tmp_path / "again").recommend(k=5)
    assert len(model.known) == len(small_log() if refit else small_log().split().consumed)
    assert found["model"]["refitted"] == refit
    rows, same = found["model"]["rows"], again.document["rows"]
    assert [row["metrics"] for row in rows] == [row["metrics"] for row in same]
    assert model.info["search"] == {"metric": BOTH, "pick": "most-accurate", "trial": found["picked"]}


def test_one_metric_makes_a_model_as_well(log: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "search", tmp_path / "search" / "model"
    ended = evenhand("tune", log, "--method", "ease", "--trials", 2, "--out", out, "--model", folder)
    assert (ended.code, ended.err) == (0, "")
    assert f"Model written to {folder}/." in ended.out
    assert not (out / "front.html").exists()
    assert len(eh.load(folder).recommend(k=3)) == 3 * 60


def test_a_stop_while_the_model_is_trained_costs_no_trial(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = (
        "tune", log, "--method", "rns", *TINY, "--trials", 2, "--metric", BOTH, "--out", tmp_path / "search",
        "--model", tmp_path / "model",
    )  # fmt: skip
    again = stopped(monkeypatch, trained, "train", 2)
    ended = evenhand(*command)
    assert (ended.code, "run the same command again" in ended.err) == (130, True)
    assert not (tmp_path / "model").exists()
    again()
    monkeypatch.setattr(TrialEvaluator, "evaluated", lambda *given: pytest.fail("a finished trial was trained again"))
    assert evenhand(*command).code == 0
    assert eh.load(tmp_path / "model").info["search"]["metric"] == BOTH


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *((("--metric", metric), sentence) for metric, sentence in WRONG),
        (("--metric", "ndcg@100,ndcg@200"), "the catalogue has 80 items"),
        (("--metric", BOTH, "--pick", "knees"), "did you mean 'knee'"),
        (("--pick", "knee"), "nothing to pick from with one metric"),
        (("--metric", BOTH, "--refit"), "--model"),
        (("--metric", BOTH, "--model", "{tmp}/out"), "holds the folder of the search"),
        (("--metric", BOTH, "--model", "{tmp}"), "holds the folder of the search"),
        (("--metric", BOTH, "--model", "{tmp}/full"), "already holds files"),
        (("--metric", BOTH, "--model", "{tmp}/full/letter.txt"), "is a file"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(
    log: Path, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    given = [option.replace("{tmp}", str(tmp_path)) for option in options]
    ended = evenhand("tune", log, "--out", tmp_path / "out", "--method", "ease", "--trials", 1, *given)
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "full" / "letter.txt").read_text() == "mine"


def test_a_page_that_cannot_be_made_costs_the_page_alone(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_page, "front_figure", lambda result: 1 / 0)
    ended = evenhand("tune", log, "--method", "ease", "--trials", 2, "--metric", BOTH, "--out", tmp_path / "s")
    assert (ended.code, ended.err) == (
        0,
        "note: no report was written: ZeroDivisionError: division by zero\n",
    )
    assert sorted(path.name for path in (tmp_path / "s").iterdir() if path.suffix != ".log") == [
        "best.json",
        "trials.parquet",
    ]
    assert "front.html" not in ended.out
