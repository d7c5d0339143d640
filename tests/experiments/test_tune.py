"""A search: it starts at the defaults, never sees the test part, and loses no finished trial."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import ENCODERS, MF
from evenhand.experiments.compare import compare
from evenhand.experiments.search_result import Verdict
from evenhand.experiments.search_space import FIXED, RANGES, Choice, Range, parse_range, search_space
from evenhand.experiments.tune import TrialEvaluator, TuneResult, tune, tuning_split
from evenhand.methods import BASELINES, METHODS, parse
from evenhand.samplers import AUCSampler
from evenhand.training import Settings, train
from evenhand.training.method import Conditions, Method, own_fields
from evenhand.utils.errors import InputError, RunError, StoppedError
from run_cli import evenhand, small_log, write_log

SETTINGS = Settings(epochs=2, batch=256)
TINY = ("--epochs", "2", "--dim", "8", "--batch", "256")
PARTS = {
    *(part for m in METHODS.values() for part in (m.sampler, m.objective)),
    *(part for kind in BASELINES.values() for part in kind.parts),
    *ENCODERS.values(),
    Settings,
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits, and a forked process must not need it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def split() -> Split:
    return small_log().split(test=0.2, validation=0.1)


@pytest.fixture
def hill(monkeypatch: pytest.MonkeyPatch) -> list[Method]:
    """Trials that cost nothing: best where beta is 0.1 and alpha is 0.9. Holds what was tried."""
    tried: list[Method] = []

    def height(setup: Method) -> float:
        values = setup.parameters()
        return float(np.exp(-((np.log10(values["beta"]) + 1) ** 2) - 4 * (values["alpha"] - 0.9) ** 2))

    def heights(evaluator: TrialEvaluator, setups: Sequence[Method]) -> list[Verdict]:
        tried.extend(setups)
        return [Verdict((height(setup),)) for setup in setups]

    monkeypatch.setattr(TrialEvaluator, "evaluated", heights)
    return tried


def trials_of(result: TuneResult) -> list[tuple[dict[str, Any], Verdict]]:
    return [(dict(trial.parameters), trial.verdict) for trial in result.trials]


# ranges


@pytest.mark.parametrize("part", sorted(PARTS, key=lambda part: part.__name__))
def test_every_parameter_has_a_range_or_a_reason_not_to(part: Any) -> None:
    searched, left = RANGES[part], FIXED.get(part, {})
    assert {*searched, *left} == {f.name for f in own_fields(part)}
    assert not {*searched} & {*left}


def filled(text: str, encoder: str = "mf", protocol: Any = "honest", settings: Settings | None = None) -> Any:
    """A method with what it leaves to the protocol and the data."""
    return parse(text, encoder, settings).under(Conditions.of(small_log().split(), protocol=protocol)).closed()


@pytest.mark.parametrize("name", [*METHODS, *BASELINES])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_defaults_lie_in_their_ranges(name: str, encoder: str) -> None:
    setup = filled(name, encoder)
    ranges = {key: span for part in setup.components().values() for key, span in RANGES[type(part)].items()}
    for key in search_space(setup):
        assert ranges[key].nearest(setup.parameters()[key]) == setup.parameters()[key]
        assert ranges[key].including(setup.parameters()[key]) == ranges[key]


def test_of_the_two_forms_of_l2_both_are_searched_unless_one_is_asked_for() -> None:
    def searched(*of: Any, **how: Any) -> set[str]:
        return {*search_space(filled(*of, **how))} & {"l2", "weight_decay"}

    assert searched("rns") == {"l2", "weight_decay"}
    assert (
        {*search_space(filled("rns"), {"l2": 0.1})} == {*search_space(filled("rns"), {"weight_decay": 0.1})} == {"lr"}
    )
    assert {*search_space(filled("rns"), ranges={"l2": Range(0.1, 0.2)})} == {"lr", "l2"}
    assert searched("rns", protocol="paper") == {"weight_decay"}
    assert searched("rns", settings=Settings(weight_decay=1e-5)) == {"weight_decay"}
    assert searched("bc-loss") == set()
    assert searched("ease") == {"l2"}
    coupled = filled("rns").having({"weight_decay": 0.1}).settings
    assert (coupled.l2, coupled.weight_decay) == (0.0, 0.1)


@pytest.mark.parametrize("name", METHODS)
def test_names_are_unambiguous_within_a_setup(name: str) -> None:
    parts = parse(name, "lightgcn").components().values()
    assert sum(len(own_fields(part)) for part in parts) == len(parse(name, "lightgcn").parameters())


def test_what_is_given_is_not_searched() -> None:
    setup = filled("auc-ns:alpha=0.75:candidates=3")
    assert [*search_space(setup, {"lr": 0.1})] == ["beta", "gamma", "l2", "weight_decay"]
    assert [*search_space(setup, {"lr": 0.1}, {"dim": Range(8, 64, integer=True)})][-1] == "dim"
    assert not search_space(parse("popular"))


def test_a_range_is_widened_to_where_the_search_starts() -> None:
    space = search_space(parse("rns", settings=Settings(lr=0.5)))
    assert space["lr"] == Range(3e-4, 0.5, log=True)


def test_ranges_as_text() -> None:
    setup = parse("bc-loss")
    assert parse_range("weight-decay=1e-5..1e-3:log", setup) == ("weight_decay", Range(1e-5, 1e-3, log=True))
    assert parse_range("warm_up=1..5", setup) == ("warm_up", Range(1, 5, integer=True))
    assert parse_range("final=inner,cosine", setup) == ("final", Choice(("inner", "cosine")))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alpha=0.9..0.6", "from a number up to a larger one, not 0.9..0.6"),
        ("alpha=0.9..nan", "from a number up to a larger one"),
        ("alpah=0.6..0.9", "did you mean 'alpha'"),
        ("alpha=0.2..0.9", r"must lie in \[0.5, 1\]"),
        ("alpha=low..high", "ends of a range are numbers"),
        ("alpha", "key=low..high"),
        ("lr=0..0.1:log", "starts above 0"),
        ("candidates=1.5..3", "whole ends"),
        ("milestones=1..3", "not a number"),
        ("ecdf=exact", "two or more different values"),
    ],
)
def test_a_contradictory_range_is_refused(text: str, sentence: str) -> None:
    setup = parse("auc-ns")
    with pytest.raises(InputError, match=sentence):
        search_space(setup, None, dict([parse_range(text, setup)]))


# the search


def test_the_first_trial_has_the_defaults_and_the_value_is_that_of_validation(split: Split) -> None:
    result = tune(split, "auc-ns", trials=3, settings=SETTINGS, seeds=2)
    defaults = {
        "alpha": 0.75,
        "beta": 0.01,
        "gamma": 0.006,
        "candidates": 5,
        "lr": 0.001,
        "l2": 0.01,
        "weight_decay": 0.0,
    }
    assert result.trials[0].parameters == defaults
    plain = train(split, MF(), AUCSampler(), 2, SETTINGS)
    assert plain.validation is not None
    assert result.trials[0].value == pytest.approx(np.mean(plain.validation), rel=1e-6)
    assert result.value == max(trial.value for trial in result.trials)
    best = train(split, MF(), parse(result.method).sampler, 2, result.chosen.settings)
    assert np.mean(best.validation or ()) == pytest.approx(result.value, rel=1e-6)


def test_another_metric_is_measured_on_validation_as_well(split: Split) -> None:
    result = tune(split, "ease", trials=1, metric="recall@7")
    top = parse("ease").fit_pairs(split.train).recommend(k=7).to_pandas()
    assert split.validation is not None
    truth = split.validation.to_table().to_pandas().groupby("user")["item"].agg(set)
    lists = top.groupby("user")["item"].agg(set)
    recalls = [len(truth[user] & lists[user]) / len(truth[user]) for user in truth.index]
    assert result.value == pytest.approx(np.mean(recalls))


def test_a_search_never_sees_the_test_part(split: Split) -> None:
    seen = tuning_split(split)
    assert len(seen.test) == 0
    assert (seen.train is split.train, seen.validation is split.validation) == (True, True)


@pytest.mark.parametrize("metric", ["ndcg@10", "recall@5", "ndcg@10,ohr@10", "precision@5,ucr_pooled@20"])
def test_a_search_does_not_even_touch_the_test_part(split: Split, metric: str) -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            pytest.fail(f"the search asked the test part for {name}")

        def __len__(self) -> int:
            pytest.fail("the search counted the test part")

    closed = Split(split.train, split.validation, Untouchable(), "closed")  # type: ignore[arg-type]
    shut, open_ = (tune(one, "ease", trials=3, metric=metric) for one in (closed, split))
    assert trials_of(shut) == trials_of(open_)


def test_without_a_validation_part_a_tenth_of_train_becomes_one(split: Split) -> None:
    seen = tuning_split(Split(split.train, None, split.test, "given"))
    assert seen.validation is not None
    assert len(seen.validation) == round(len(split.train) / 10)
    assert seen.train.union(seen.validation).keys.tolist() == split.train.keys.tolist()
    assert len(seen.test) == 0
    with pytest.raises(InputError, match="too few"):
        tuning_split(Split(Interactions.from_pairs([0, 1], [0, 1]), None, split.test, "two pairs"))


def test_the_same_seed_tries_the_same(split: Split, hill: list[Method]) -> None:
    first, again, other = (tune(split, trials=14, seed=seed) for seed in (1, 1, 2))
    assert trials_of(first) == trials_of(again)
    assert trials_of(first)[0] == trials_of(other)[0]
    assert trials_of(first)[1:] != trials_of(other)[1:]
    points = [tuple(point.values()) for point, _ in trials_of(first)]
    assert len(set(points)) == 14


def test_a_search_finds_the_hill(split: Split, hill: list[Method]) -> None:
    result = tune(split, trials=40)
    assert result.value > 0.95 > result.trials[0].value
    assert parse(result.method).sampler == result.chosen.sampler  # type: ignore[union-attr]


def test_a_point_that_cannot_be_trained_is_a_trial_with_a_reason(split: Split) -> None:
    result = tune(split, "rns", trials=2, settings=SETTINGS, ranges={"lr": Choice((0.01, 1e30))}, seed=3)
    failed = [trial for trial in result.trials if trial.parameters["lr"] > 1]
    assert [trial.value for trial in failed] == [0.0]
    assert "the loss became" in str(failed[0].problem)
    assert result.parameters["lr"] == 0.01
    with pytest.raises(RunError, match="no trial"):
        tune(split, "rns", trials=1, settings=SETTINGS, fixed={"lr": 1e30})


# interruptions


@pytest.mark.parametrize("metric", ["ndcg@10", "ndcg@10,ohr@10"])
def test_a_killed_search_goes_on_without_loss_or_repetition(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str
) -> None:
    def search(trials: int, storage: Path, on_trial: Any = None) -> TuneResult:
        return tune(split, "dns", trials=trials, settings=SETTINGS, storage=storage, on_trial=on_trial, metric=metric)

    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe(duplex=False)
    journal = tmp_path / "killed" / "trials.log"
    child = fork.Process(target=search, args=(50, journal, lambda done, most, news: theirs.send(done)))
    child.start()
    while mine.poll(30) and mine.recv() < 3:
        pass
    os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL

    before = search(1, journal)  # nothing left to do: shows what was kept
    assert 3 <= len(before.trials) < 50
    trained = []
    tested = TrialEvaluator.evaluated
    monkeypatch.setattr(TrialEvaluator, "evaluated", lambda *given: trained.append(given) or tested(*given))
    more = len(before.trials) + 3
    after = search(more, journal)
    assert len(trained) == 3
    assert trials_of(after)[: len(before.trials)] == trials_of(before)
    assert trials_of(after) == trials_of(search(more, tmp_path / "whole.log"))


def test_a_half_written_line_and_a_lock_left_behind_do_no_harm(
    split: Split, tmp_path: Path, hill: list[Method]
) -> None:
    journal = tmp_path / "trials.log"
    tune(split, trials=3, storage=journal)
    with journal.open("ab") as file:
        file.write(b'{"op_code": 5, "wor')
    (tmp_path / "trials.log.lock").touch()
    began = time.monotonic()
    tune(split, trials=5, storage=journal)
    assert time.monotonic() - began < 20  # a lock that is respected costs half a minute
    assert trials_of(tune(split, trials=6, storage=journal)) == trials_of(tune(split, trials=6))


def test_a_stopped_search_says_how_to_go_on(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hill: list[Method]
) -> None:
    whole, tested = trials_of(tune(split, trials=4)), TrialEvaluator.evaluated

    def interrupted(*given: Any) -> list[Verdict]:
        if len(hill) == 4 + 2:
            raise KeyboardInterrupt
        return tested(*given)

    monkeypatch.setattr(TrialEvaluator, "evaluated", interrupted)
    with pytest.raises(StoppedError, match=r"after 2 of 4 trials; run the same command again"):
        tune(split, trials=4, storage=tmp_path / "trials.log")
    monkeypatch.setattr(TrialEvaluator, "evaluated", tested)
    assert trials_of(tune(split, trials=4, storage=tmp_path / "trials.log")) == whole


def test_a_database_keeps_trials_and_tells_searches_apart(split: Split, tmp_path: Path, hill: list[Method]) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    tune(split, trials=2, storage=url)
    assert trials_of(tune(split, trials=3, storage=url)) == trials_of(tune(split, trials=3))
    assert len(hill) == 3 + 3
    with pytest.raises(InputError, match=r"differs in ranges; give the same"):
        tune(split, trials=3, storage=url, ranges={"alpha": Range(0.6, 0.7)})
    with pytest.raises(InputError, match="differs in data"):
        tune(small_log().split(seed=5), trials=3, storage=url)
    other = tune(split, trials=1, storage=url, study="narrow", ranges={"alpha": Range(0.6, 0.7)})
    assert other.parameters["alpha"] == 0.7  # the default, brought into the range


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "nonsense", "unheard://ann:secret@of/it"])
def test_an_unreachable_database_is_reported_in_a_sentence(split: Split, url: str) -> None:
    with pytest.raises(InputError, match="the trials cannot be kept in") as problem:
        tune(split, trials=1, storage=url)
    assert "secret" not in str(problem.value)
    assert "\n" not in str(problem.value)


# compare


def test_compare_trains_each_method_with_what_was_best_for_it(split: Split) -> None:
    result = compare(split, ["dns", "ease", "popular"], "mf", 2, SETTINGS, tune=3, held=("lr",))
    assert {label: [*found.parameters] for label, found in result.tuned.items()} == {
        "dns": ["candidates", "l2", "weight_decay"],
        "ease": ["l2"],
    }
    assert [row.name for row in result.rows if row.k == 10] == ["dns", "ease", "popular"]
    for label in ("dns", "ease"):
        alone = tune(split, label, trials=3, settings=SETTINGS, fixed={"lr": MF.lr} if label == "dns" else {})
        assert result.tuned[label].parameters == alone.parameters
        again = compare(split, [alone.ready], "mf", 2)
        assert again.rows[0].metrics == result.row(label, 5).metrics


# the command line


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(small_log(), tmp_path_factory.mktemp("log") / "log.csv")


def test_tune_writes_what_it_found_and_goes_on_with_more_trials(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    command = ("tune", log, "--out", out, *TINY, "--range", "beta=0.01..0.1:log", "--fix", "gamma=0.01")
    first = evenhand(*command, "--trials", 2)
    assert (first.code, first.err) == (0, "")
    best = json.loads((out / "best.json").read_text())
    assert best["method"] in first.out
    assert re.search(r"--method auc-ns:alpha=\S+:gamma=0.01:\S+ --dim 8 --epochs 2 --batch 256 --lr", first.out)
    second = evenhand(*command, "--trials", 3, "--json")
    assert (second.code, second.err) == (0, "")
    found = second.document
    table = pq.read_table(out / "trials.parquet").to_pylist()
    assert [row["value"] for row in table] == [row["value"] for row in found["rows"]]
    assert len(table) == found["trials"] == 3
    assert found["default_value"] == table[0]["value"] == best["default_value"]
    assert all(0.01 <= row["beta"] <= 0.1 and "gamma" not in row for row in table)
    flags = [str(word) for pair in found["flags"].items() for word in pair]
    assert evenhand("train", log, "--method", found["method"], *flags, "--out", tmp_path / "model").code == 0


def test_compare_with_tune_reports_what_was_chosen(log: Path, tmp_path: Path) -> None:
    methods = ("--methods", "rns,auc-ns:alpha=0.8,popular", "--tune", 2, "--seeds", 2)
    ended = evenhand("compare", log, *TINY, *methods, "--protocol", "paper", "--out", tmp_path / "run", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.document
    assert {label: one["trials"] for label, one in found["tuned"].items()} == {
        "rns": 2,
        "auc-ns:alpha=0.8": 2,
    }
    chosen = found["tuned"]["auc-ns:alpha=0.8"]
    assert [*chosen["parameters"]] == ["beta", "gamma", "candidates", "lr", "weight_decay"]
    sampler = found["configuration"]["methods"]["auc-ns:alpha=0.8"]["sampler"]
    assert sampler["beta"] == chosen["parameters"]["beta"]
    assert any("held out 10 % of train" in note for note in found["notes"])
    assert json.loads((tmp_path / "run" / "results.json").read_text())["tuned"] == found["tuned"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--range", "alpha=0.9..0.6"), "a larger one"),
        (("--range", "alpha=0.6..0.7", "--range", "alpha=0.8..0.9"), "given twice"),
        (("--range", "negatives=1..4"), "no option"),
        (("--fix", "alpha"), "key=value"),
        (("--fix", "lr=0.1", "--lr", "0.1"), "given twice"),
        (("--fix", "alpha=much"), "alpha must lie"),
        (("--lr", "0.1", "--range", "lr=0.01..0.1"), "both fixed and searched"),
        (("--method", "auc-ns:beta=0.1", "--fix", "beta=0.2"), "given twice"),
        (("--method", "popular"), "no parameter left to tune"),
        (("--trials", "0"), "from 1 on"),
        (("--side-by-side", "0"), "from 1 on, or auto"),
        (("--metric", "ohr@10"), "unknown metric"),
        (("--metric", "ndcg"), "name@k"),
        (("--storage", "sqlite:////nowhere/at/all.db"), "cannot be kept"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(
    log: Path, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    ended = evenhand("tune", log, "--out", tmp_path / "out", "--epochs", "1", *options)
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_with_other_files_is_refused(log: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    ended = evenhand("tune", log, "--out", tmp_path, "--trials", 1, *TINY)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "already holds files" in ended.err
