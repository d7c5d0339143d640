"""Baselines against brute force on small logs, check values on real data, and their place in a comparison."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.baselines import Baseline, als, ease, recipe
from evenhand.baselines.als import solved
from evenhand.data.interactions import Interactions, gather_rows
from evenhand.experiments.verdict import verdict
from evenhand.methods import BASELINES, parse
from evenhand.models.base import Model
from evenhand.paper.tables import with_mse
from evenhand.testing import corner_cases
from evenhand.utils import memory, progress
from evenhand.utils.errors import InputError
from evenhand.utils.memory import slices_within
from run_cli import TINY, evenhand, one_thread, small_log, write_log

CPU = torch.device("cpu")
EVERY = [parse("recipe:budget=1" if name == "recipe" else name) for name in BASELINES]


def dense(log: Interactions) -> np.ndarray:
    cells = np.zeros((log.n_users, log.n_items))
    cells[log.users, log.items] = 1
    return cells


def random_log(seed: int, n_users: int = 25, n_items: int = 14) -> Interactions:
    """Some users and items have no pair."""
    chance = np.random.default_rng(seed).random((n_users, n_items)) < np.linspace(0, 0.6, n_items)
    users, items = np.nonzero(chance)
    return Interactions.from_pairs(users, items, n_users=n_users + 1, n_items=n_items + 1)


# The baselines one by one.


def test_popular_counts_train_users_and_breaks_ties_by_index() -> None:
    log = Interactions.from_pairs([0, 1, 2, 0, 1, 2], [3, 3, 3, 1, 2, 0], n_items=5)
    fitted = eh.Popular().fit_pairs(log)
    assert fitted.scores(np.array([2, 0])).tolist() == [[1, 1, 1, 3, 0]] * 2
    lists = fitted.recommend([0], k=5).to_pydict()
    assert lists["item"] == [0, 2, 4]
    assert lists["rank"] == [1, 2, 3]


@given(seed=st.integers(0, 1000), neighbours=st.integers(1, 20), shrink=st.sampled_from([0, 1.5, 10]))
@example(seed=304, neighbours=6, shrink=0)  # has two likenesses that are equal but not by the same numbers
@settings(max_examples=40, deadline=None)
def test_itemknn_is_the_dense_formula(seed: int, neighbours: int, shrink: float) -> None:
    log = random_log(seed)
    x = dense(log)
    shared, count = x.T @ x, x.sum(0)
    with np.errstate(invalid="ignore"):
        likeness = np.nan_to_num(shared / (np.sqrt(np.outer(count, count)) + shrink)).astype(np.float32)
    np.fill_diagonal(likeness, 0)
    for item in range(log.n_items):
        out = np.argsort(-likeness[item], kind="stable")[neighbours:]
        likeness[item, out] = 0
    fitted = eh.ItemKNN(neighbours, shrink).fit_pairs(log)
    users = np.arange(log.n_users)[::-1].copy()
    np.testing.assert_allclose(fitted.scores(users), x[users] @ likeness.T, rtol=1e-5, atol=1e-6)
    assert np.bincount(fitted.table.items, minlength=1).max() <= neighbours


@pytest.mark.parametrize("l2", [0.5, 30.0])
def test_ease_is_a_ridge_regression_of_each_item_on_the_others(l2: float) -> None:
    log = random_log(3)
    x = dense(log)
    weights = np.zeros((log.n_items, log.n_items))
    for item in range(log.n_items):
        others = np.delete(np.arange(log.n_items), item)
        left = x[:, others].T @ x[:, others] + l2 * np.eye(len(others))
        weights[others, item] = np.linalg.solve(left, x[:, others].T @ x[:, item])
    fitted = eh.EASE(l2).fit_pairs(log)
    np.testing.assert_allclose(fitted.table.weights, weights, atol=1e-6)
    users = np.array([4, 0, 25])
    np.testing.assert_allclose(fitted.scores(users), x[users] @ weights, atol=1e-5)


def normal_equations(x: np.ndarray, others: np.ndarray, alpha: float, l2: float) -> np.ndarray:
    """Hu et al., equation 4, row by row with the confidence matrix written out."""
    rows = []
    for seen in x:
        confidence = np.diag(1 + alpha * seen)
        left = others.T @ confidence @ others + l2 * np.eye(others.shape[1])
        rows.append(np.linalg.solve(left, others.T @ confidence @ seen))
    return np.array(rows)


@given(seed=st.integers(0, 1000), alpha=st.sampled_from([0.0, 1.0, 40.0]), chunk=st.sampled_from([1, 60, 2**21]))
@settings(max_examples=40, deadline=None)
def test_als_rows_solve_their_normal_equations(seed: int, alpha: float, chunk: int) -> None:
    log, dim = random_log(seed), 6
    g = torch.Generator().manual_seed(seed)
    items = torch.randn(log.n_items, dim, generator=g, dtype=torch.float64)
    users = torch.randn(log.n_users, dim, generator=g, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(als._CHUNK_CELLS, "cpu", chunk)
        by_user = solved(log.indptr, log.items, items, alpha, l2=0.7)
        by_item = solved(*log.by_item, users, alpha, l2=0.7)
        by_steps = solved(log.indptr, log.items, items, alpha, l2=0.7, steps=25, start=users)
        patch.setattr(als._HalfStep, "by_rows", als._HalfStep.by_tensors)
        as_tensors = solved(log.indptr, log.items, items, alpha, l2=0.7, steps=25, start=users)
    np.testing.assert_allclose(by_user, normal_equations(dense(log), items.numpy(), alpha, 0.7), atol=1e-9)
    np.testing.assert_allclose(by_item, normal_equations(dense(log).T, users.numpy(), alpha, 0.7), atol=1e-9)
    np.testing.assert_allclose(by_steps, by_user, atol=1e-7)
    np.testing.assert_allclose(as_tensors, by_user, atol=1e-7)


@pytest.mark.parametrize("dim", [1, 3, 4, 37, 128])
@pytest.mark.parametrize("steps", [1, 3])
def test_compiled_rows_take_the_same_steps_as_tensors(dim: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log, g = small_log(), torch.Generator().manual_seed(dim)
    items, users = (torch.randn(n, dim, generator=g) for n in (log.n_items, log.n_users))
    rows = solved(log.indptr, log.items, items, 2.0, 5.0, steps, users)
    monkeypatch.setattr(als._HalfStep, "by_rows", als._HalfStep.by_tensors)
    torch.testing.assert_close(rows, solved(log.indptr, log.items, items, 2.0, 5.0, steps, users), rtol=1e-4, atol=1e-5)


def test_compiled_rows_do_not_depend_on_where_memory_lies() -> None:
    """Small vectors made one after the other lie close to each other, now nearer and now farther."""
    log, items = small_log(), torch.randn(80, 8, generator=torch.Generator().manual_seed(0))
    first = solved(log.indptr, log.items, items, 2.0, 30.0, 3)
    kept = []
    for size in range(1, 40):
        kept.append(np.empty(size, np.float32))
        assert torch.equal(solved(log.indptr, log.items, items.clone(), 2.0, 30.0, 3), first)


def test_baselines_load_numba_when_they_are_fitted_and_not_before() -> None:
    code = "import sys, evenhand.baselines, evenhand.methods; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_row_that_has_arrived_stays_and_an_empty_one_is_zero() -> None:
    log = random_log(1)
    items = torch.randn(log.n_items, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = solved(log.indptr, log.items, items, 2.0, 1.0)
    np.testing.assert_allclose(solved(log.indptr, log.items, items, 2.0, 1.0, 40, exact), exact, atol=1e-12)
    nowhere = solved(log.indptr, log.items, torch.zeros_like(items), 2.0, 1.0, 3)
    assert not nowhere.any()
    assert (np.diff(log.indptr) == 0).any()
    assert not exact[np.diff(log.indptr) == 0].any()


def loss(x: np.ndarray, users: np.ndarray, items: np.ndarray, alpha: float, l2: float) -> float:
    gap = (1 + alpha * x) * (x - users @ items.T) ** 2
    return float(gap.sum() + l2 * ((users**2).sum() + (items**2).sum()))


@pytest.mark.parametrize("steps", [0, 3])
def test_als_lowers_its_loss_and_few_steps_get_as_far(steps: int) -> None:
    log = small_log()
    values = []
    for iterations in (1, 2, 4, 8, 30):
        baseline = eh.ALS(factors=8, alpha=2, l2=3, iterations=iterations, steps=steps)
        values.append(loss(dense(log), *(v[0].numpy() for v in baseline.fit_pairs(log).vectors), alpha=2, l2=3))
    assert values == sorted(values, reverse=True)
    exact = eh.ALS(factors=8, alpha=2, l2=3, iterations=30, steps=0).fit_pairs(log)
    least = loss(dense(log), *(v[0].numpy() for v in exact.vectors), alpha=2, l2=3)
    assert values[-1] == pytest.approx(least, rel=0.01)


def test_als_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(als._CHUNK_CELLS, "cpu", 200)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(eh.ALS(factors=8, iterations=3).fit_pairs(small_log()).vectors)
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_als_depends_on_its_seed_alone_and_can_be_a_model(tmp_path: Path) -> None:
    log, baseline = small_log(), eh.ALS(factors=4, iterations=2)
    first, again, other = baseline.fit_pairs(log, 1), baseline.fit_pairs(log, 1), baseline.fit_pairs(log, 2)
    assert torch.equal(first.user_vectors, again.user_vectors)
    assert not torch.equal(first.user_vectors, other.user_vectors)
    first.save(tmp_path / "als")
    loaded = eh.load(tmp_path / "als")
    assert loaded.recommend(k=3).to_pydict() == first.recommend(k=3).to_pydict()
    assert loaded.seeds == (1,)


# What all of them promise.


@pytest.mark.parametrize("baseline", EVERY, ids=lambda baseline: type(baseline).__name__)
def test_every_baseline_keeps_the_promises(baseline: Baseline, monkeypatch: pytest.MonkeyPatch) -> None:
    for log in (corner_cases(), small_log()):
        monkeypatch.setattr(recipe, "clock", itertools.count(0, 0.02).__next__)  # what fits a budget, on any machine
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 0.0))
        fitted = baseline.fit_pairs(log)
        assert isinstance(fitted, Model)
        everyone = np.arange(log.n_users)
        whole = fitted.scores(everyone)
        assert whole.shape == (log.n_users, log.n_items)
        assert bool(whole.isfinite().all())
        kept = whole.clone()
        fitted.scores(everyone).fill_(-1)
        assert torch.equal(fitted.scores(everyone), kept)
        # A user's scores do not depend on who else is asked for, nor on the size of chunks.
        monkeypatch.setattr(ease, "_CHUNK_CELLS", 50)
        some = everyone[::-2].copy()
        torch.testing.assert_close(baseline.fit_pairs(log).scores(some), whole[some.copy()], rtol=1e-4, atol=1e-5)
        monkeypatch.undo()
        lists = fitted.recommend(k=4)
        pairs = zip(lists["user"].to_pylist(), lists["item"].to_pylist(), strict=True)
        assert not set(pairs) & set(zip(log.users.tolist(), log.items.tolist(), strict=True))


def test_a_model_is_a_recommender_too() -> None:
    log = small_log()
    model = eh.ALS(factors=4, iterations=1).fit_pairs(log)
    assert isinstance(model, Model)
    expected = model.user_vectors[0, [3, 1]] @ model.item_vectors[0].T
    assert torch.equal(model.scores(np.array([3, 1])), expected)


@given(seed=st.integers(0, 100), budget=st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_slices_cover_everything_within_the_budget(seed: int, budget: int) -> None:
    costs = np.random.default_rng(seed).integers(0, 40, 30)
    parts = list(slices_within(costs, budget))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(30))
    assert all(costs[part].sum() <= budget or part.stop - part.start == 1 for part in parts)


def test_rows_are_gathered_in_the_order_asked() -> None:
    log = random_log(0)
    rows = np.array([5, 5, 25, 2])
    position, item = gather_rows(log.indptr, log.items, rows)
    expected = [(place, i) for place, row in enumerate(rows) for i in log.row(row).tolist()]
    assert list(zip(position.tolist(), item.tolist(), strict=True)) == expected


# Refusals.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ease:l2=0", "l2 must be a positive number, not 0."),
        ("ease:l2=inf", "l2 must be a positive number, not inf."),
        ("ease:l2=much", "l2 must be a positive number, not much."),
        ("ease:lambda=3", "unknown parameter of 'ease' 'lambda'; Known: balance, l2, lift, max_items, recency."),
        ("popular:k=3", "unknown parameter of 'popular' 'k'; Known: half_life, log."),
        ("itemknn:neighbours=0", "neighbours must be a whole number of at least 1, not 0."),
        ("itemknn:neighbours=2.5", "neighbours must be a whole number of at least 1, not 2.5."),
        ("itemknn:shrink=-1", "shrink must be a number of at least 0, not -1."),
        ("als:factors=none", "factors must be a whole number of at least 1, not none."),
        ("als:alpha=-2", "alpha must be a number of at least 0, not -2."),
        ("als:l2=nan", "l2 must be a positive number, not nan."),
        ("als:iterations=0", "iterations must be a whole number of at least 1, not 0."),
        ("als:steps=-1", "steps must be a whole number of at least 0, not -1."),
        ("als:128", "'als:128': parameters are written name:key=value, but '128' has no '='."),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_an_unknown_name_is_answered_with_methods_and_baselines() -> None:
    with pytest.raises(InputError, match=r"unknown method 'eas'; did you mean 'ease'\? Known: als, auc-ns, "):
        parse("eas")


def test_ease_says_beforehand_what_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Interactions.from_pairs([0], [0], n_items=50_000)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 8 * 10**9)
    with pytest.raises(InputError) as caught:
        eh.EASE().fit_pairs(wide)
    assert str(caught.value) == (
        "EASE on 50,000 items needs about 10.0 GB of memory, but 8.0 GB are free on cpu; "
        "lower max_items, or take itemknn, gfcf or als instead."
    )


def test_free_memory_is_the_least_of_what_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.available_bytes(CPU) == 3000
    (tmp_path / "memory.max").write_text("max\n")
    monkeypatch.setattr(memory, "_from_meminfo", lambda: 7000)
    assert memory.available_bytes(CPU) == 7000
    monkeypatch.setattr(memory, "_from_meminfo", lambda: None)
    monkeypatch.setattr(memory, "_from_sysconf", lambda: 11)
    assert memory.available_bytes(CPU) == 11


# In a comparison.

SPLIT = small_log().split(test=0.2, validation=0.1)


def compared(methods: list[Any], **options: Any) -> Any:
    given: dict[str, Any] = {
        "encoder": eh.MF(dim=4),
        "seeds": 3,
        "settings": eh.Settings(epochs=2, batch=256),
        "device": "cpu",
    }
    with one_thread():
        return eh.compare(SPLIT, methods, **(given | options))


def test_baselines_stand_in_the_same_table() -> None:
    found = compared(["rns", "ease:l2=30", eh.ALS(factors=4), "popular"], k=5)
    assert [(row.name, row.encoder, row.method) for row in found.rows] == [
        ("rns", "mf", "rns"),
        ("ease:l2=30", None, "ease"),
        ("als:factors=4", None, "als"),
        ("popular", None, "popular"),
    ]
    assert [len(row.metrics["ndcg"].values) for row in found.rows] == [3, 1, 3, 1]
    assert [row.metrics["ndcg"].std is None for row in found.rows] == [False, True, False, True]
    document = found.to_json()
    recorded = document["configuration"]["methods"]["ease:l2=30"]
    parameters = {"l2": 30, "balance": 0, "lift": 1, "max_items": "all", "recency": 0}
    assert recorded == {"method": "ease", "parameters": parameters}
    assert document["training"]["popular"]["chosen_epochs"] == []


def test_baselines_alone_can_be_compared() -> None:
    found = compared(["popular", "itemknn"], seeds=[7, 8])
    assert found.to_json()["configuration"]["seeds"] == [7, 8]
    assert "Add rns to the methods" in found.sentence


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_the_protocol_decides_what_is_seen_and_masked(protocol: Any) -> None:
    found = eh.EASE(l2=30).fit(SPLIT, seeds=[0, 1], protocol=protocol, k=5, device="cpu")
    assert (found.validation is None) == (protocol == "paper")
    assert len(found.scorers) == 1
    # The paper's protocol has no validation part: its pairs are train pairs.
    seen = SPLIT.train if protocol == "honest" else SPLIT.consumed
    assert found.model.seen.keys.tolist() == seen.keys.tolist()
    alone = eh.EASE(l2=30).fit_pairs(seen).having(known=SPLIT.consumed).recommend(k=5)
    table = eh.evaluate(alone, SPLIT, k=(5,), hot=protocol)
    mine = found.results[5][0].metrics["precision"]
    assert mine == pytest.approx(table_precision(table))


def table_precision(table: Any) -> float:
    (row,) = table.rows
    return float(row.metrics["precision"].mean)


def test_the_verdict_repeats_what_does_not_depend_on_the_seed() -> None:
    found = compared(["rns", "ease:l2=30"])
    assert "a paired t test over 3 seeds" in found.sentence
    repeated = {
        label: replace(fit, results={k: one * (3 // len(one)) for k, one in fit.results.items()})
        for label, fit in found.fits.items()
    }
    assert verdict(found.methods, repeated, "honest", found.ks) == found.sentence


def test_mse_is_null_where_there_are_no_vectors() -> None:
    found = with_mse(compared(["rns", "ease", "als:factors=4"], k=5), SPLIT)
    by_name = {row.name: row.metrics["mse"].to_json() for row in found.rows}
    assert by_name["ease"] == {"mean": None, "std": None, "values": [None]}
    assert all(len(by_name[name]["values"]) == 3 and by_name[name]["mean"] > 0 for name in ("rns", "als:factors=4"))


def test_a_seeded_baseline_recommends_with_its_best_seed() -> None:
    found = eh.ALS(factors=4).fit(SPLIT, seeds=3, k=5, device="cpu")
    assert found.validation is not None
    assert found.validation[found.model.best] == max(found.validation)
    alone = eh.ALS(factors=4).fit_pairs(SPLIT.train, found.model.best)
    best = alone.having(known=SPLIT.consumed).recommend(k=5)
    assert found.lists(5).equals(best)


def test_compare_on_the_command_line_writes_baselines_like_methods(tmp_path: Path) -> None:
    file, out = write_log(small_log(), tmp_path / "log.csv"), tmp_path / "run"
    methods = "rns,auc-ns:ecdf=16,popular,itemknn,ease:l2=300,als:factors=4"
    ended = evenhand("compare", file, "--methods", methods, *TINY, "--alpha", "0.9", "--out", out, "--json")
    assert ended.code == 0, ended.err
    rows = {row["name"]: row for row in ended.document["rows"] if row["k"] == 10}
    assert list(rows) == methods.split(",")
    assert rows["ease:l2=300"]["encoder"] is None
    assert rows["ease:l2=300"]["metrics"]["ndcg"]["std"] is None
    # --alpha is the sampler's; the baseline of the same parameter name keeps its own.
    chosen = ended.document["configuration"]["methods"]
    assert chosen["als:factors=4"]["parameters"]["alpha"] == eh.ALS().alpha
    assert chosen["auc-ns:ecdf=16"]["sampler"]["alpha"] == 0.9
    lists = pq.read_table(out / "recommendations.parquet")
    assert set(lists["name"].to_pylist()) == set(rows)
    history = json.loads((out / "results.json").read_text())["history"]
    assert history["ease:l2=300"] == []
    shown = evenhand("compare", file, "--methods", "rns,ease", *TINY)
    assert "ease 0 s" in shown.out


def test_flags_of_samplers_have_no_effect_on_baselines(tmp_path: Path) -> None:
    file = write_log(small_log(), tmp_path / "log.csv")
    ended = evenhand("compare", file, "--methods", "als,ease", "--alpha", "0.9", *TINY)
    assert ended.code == 2
    assert ended.err.strip().splitlines()[-1].endswith("--alpha has no effect on als, ease; leave it out.")


def test_methods_lists_baselines() -> None:
    listed = evenhand("methods", "--json").document["rivals"]
    assert [one["name"] for one in listed] == list(BASELINES)
    assert listed[1]["parameters"] == {
        "neighbours": 100,
        "shrink": 10,
        "norm": "cosine",
        "item_exponent": 0.5,
        "user_exponent": 0,
        "power": 1,
        "window": 0,
        "recency": 0,
    }
    assert "itemknn" in evenhand("methods").out


def test_labels_of_baselines_read_back() -> None:
    for baseline in (eh.EASE(l2=3.5), eh.ALS(alpha=2, steps=0), eh.Popular(), eh.ItemKNN(shrink=0)):
        assert parse(baseline.label) == baseline


# On real data.


def test_ease_on_the_papers_split_of_ml_100k(shared_data: Path) -> None:
    folder = shared_data / "ml-100k"
    train, test = (Interactions.read(folder / f"paper_{part}.csv") for part in ("train", "test"))
    split = eh.given_split(train, test, validation=0)
    found = eh.EASE(l2=400).fit(split, seeds=1, protocol="paper", k=(5, 20), device="cpu")
    metrics = found.results[5][0].metrics
    assert metrics["precision"] == pytest.approx(0.4513, abs=1e-3)
    assert metrics["ndcg"] == pytest.approx(0.4835, abs=1e-3)
    assert metrics["ohr"] == pytest.approx(0.5477, abs=1e-3)
    assert found.results[20][0].metrics["precision"] == pytest.approx(0.298, abs=1e-3)


def test_als_on_the_papers_split_of_ml_100k(shared_data: Path) -> None:
    folder = shared_data / "ml-100k"
    train, test = (Interactions.read(folder / f"paper_{part}.csv") for part in ("train", "test"))
    split = eh.given_split(train, test, validation=0)
    metrics = eh.ALS().fit(split, seeds=1, protocol="paper", k=5, device="cpu").results[5][0].metrics
    assert metrics["precision"] >= 0.440


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("baseline", EVERY, ids=lambda baseline: type(baseline).__name__)
def test_cpu_and_gpu_agree(baseline: Baseline) -> None:
    log = small_log()
    here, there = (baseline.fit_pairs(log, 0, device).scores(np.arange(60)).cpu() for device in ("cpu", "cuda"))
    torch.testing.assert_close(here, there, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cells", [2**26, 100])
def test_both_ways_to_count_what_occurs_together_agree(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """In one piece or in many; users and items without a pair included."""
    monkeypatch.setattr(ease, "_CHUNK_CELLS", cells)
    log = corner_cases(seed=4)
    x = np.zeros((log.n_users, log.n_items))
    x[log.users, log.items] = 1
    for found in (
        ease.gram_by_counting(log),
        ease.gram_by_products(log, torch.device("cpu")),
    ):
        assert np.array_equal(found.numpy(), x.T @ x)
