"""New items: the formula against a plain solution, every kind of model, worlds whose attributes say a known part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import torch

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.models.base import Model
from evenhand.models.item_files import KNOTS, features, read_attributes
from evenhand.models.item_weights import ItemWeightModel
from evenhand.models.new_items import HALF_TRUST, LEAST_KNOWN, MixedTable, NewItems
from evenhand.models.vector_files import export
from evenhand.serve.answers import Answers
from evenhand.utils.errors import InputError
from run_cli import evenhand, write_log

N_USERS, N_ITEMS, N_NEW = 240, 150, 30


def world(strength: float, seed: int = 0) -> tuple[Interactions, Interactions, pa.Table]:
    """A log, what users want of thirty items that are not in it, and a table of all items with their attributes.

    An item's taste is made of two categories and a number, by `strength`, and of chance; users take what fits best.
    """
    g = np.random.default_rng(seed)
    category, other, number = g.integers(0, 5, N_ITEMS), g.integers(0, 4, N_ITEMS), g.random(N_ITEMS)
    said = np.hstack([np.eye(5)[category], np.eye(4)[other], number[:, None]]) @ g.normal(size=(10, 4))
    chance = g.normal(size=(N_ITEMS, 4)) * said.std()
    taste = np.sqrt(strength) * said + np.sqrt(1 - strength) * chance
    scores = g.normal(size=(N_USERS, 4)) @ taste.T + g.gumbel(size=(N_USERS, N_ITEMS))
    users, items = np.nonzero(scores > np.quantile(scores, 0.85, axis=1, keepdims=True))
    new = items >= N_ITEMS - N_NEW
    log, wanted = (
        Interactions.from_pairs(users[some], items[some], n_users=N_USERS, n_items=N_ITEMS) for some in (~new, new)
    )
    table = pa.table(
        {
            "item": np.arange(N_ITEMS),
            "kind": [f"k{one}" for one in category],
            "tags": [f"a|b{one}" for one in other],
            "size": number,
        }
    )
    return eh.Interactions.read(log.to_table()), wanted, table


METHODS = {
    "vectors": "als:factors=8",
    "dense": "ease:l2=50",
    "sparse": "itemknn",
    "counts": "popular",
    "graph-filter": "gfcf:factors=8",
    "blend": "blend:parts=ease+als:shares=0.5+0.5",
}


def fitted(kind: str, log: Interactions) -> Model:
    return eh.fit(log.split(test=0.05, validation=0.1, seed=0), METHODS[kind], seeds=1, progress=False)


@pytest.fixture(scope="module")
def small() -> tuple[Interactions, Interactions, pa.Table]:
    return world(0.9)


def added_to(model: Model, table: pa.Table) -> NewItems:
    """What a model is handed, caught on its way."""
    caught: list[NewItems] = []

    def catch(_: Model, added: NewItems) -> Model:
        caught.append(added)
        return model

    with patch.object(type(model), "with_items", catch):
        model.with_new_items(table)
    return caught[0]


def plain_ridge(x: np.ndarray, y: np.ndarray, weights: np.ndarray, strength: float, at: np.ndarray) -> np.ndarray:
    """min Σ w |y - b - xB|² + strength |B|², by least squares with rows for the penalty."""
    root = np.sqrt(weights)[:, None]
    penalty = np.hstack([np.zeros((x.shape[1], 1)), np.sqrt(strength) * np.eye(x.shape[1])])
    left = np.vstack([root * np.hstack([np.ones((len(x), 1)), x]), penalty])
    right = np.vstack([root * y, np.zeros((x.shape[1], y.shape[1]))])
    solved = np.linalg.lstsq(left, right, rcond=None)[0]
    return np.hstack([np.ones((len(at), 1)), at]) @ solved


def test_new_vectors_are_those_of_a_weighted_ridge_regression(small: Any) -> None:
    log, _, table = small
    model = fitted("vectors", log)
    added = added_to(model, table)
    found = model.with_new_items(table)
    chosen = found.info["new_items"]["mixtures"][0]
    counts = model.known.popularity
    np.testing.assert_allclose(added.weights, counts / (counts + HALF_TRUST))
    vectors = model.item_vectors[0].double().numpy()
    expected = plain_ridge(added.own.toarray(), vectors, added.weights, chosen["strength"], added.new.toarray())
    mean = added.weights @ vectors / added.weights.sum()
    ids = found.known.item_ids.to_pylist()
    new = [ids.index(item) for item in range(N_ITEMS - N_NEW, N_ITEMS)]
    got = found.item_vectors[0, new].double().numpy()
    np.testing.assert_allclose(got, mean + chosen["scale"] * (expected - mean), rtol=1e-3, atol=1e-4)
    old = [ids.index(item) for item in model.known.item_ids.to_pylist()]
    assert torch.equal(found.item_vectors[:, old], model.item_vectors)


def test_an_item_left_out_is_predicted_as_if_it_had_never_been_there(small: Any) -> None:
    model = fitted("vectors", small[0])
    added = added_to(model, small[2])
    scores = model.scores(added._users).double().numpy()
    mean = scores @ added.weights / added._total
    usual, _, basis = added._ridge
    target = basis.T @ ((added._weighted.T @ scores.T) - added._total * np.outer(usual, mean))
    found = added._left_out(10.0, scores, mean, target)
    x = added.own.toarray()
    for place, item in enumerate(added._sample[:5]):
        without = np.where(np.arange(len(x)) == item, 0, added.weights)
        expected = plain_ridge(x, scores.T, without, 10.0, x[[item]])[0]
        np.testing.assert_allclose(found[:, place], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", METHODS)
def test_every_kind_takes_new_items_in_and_stays_an_ordinary_model(kind: str, small: Any, tmp_path: Path) -> None:
    log, _, table = small
    model = fitted(kind, log)
    found = model.with_new_items(table)
    assert found.known.n_items == N_ITEMS
    assert found.known.item_ids.to_pylist() == list(range(N_ITEMS))
    users = np.arange(log.n_users)
    before, after = model.scores(users), found.scores(users)
    own = torch.tensor(model.known.item_ids.to_pylist())
    if kind != "blend":  # its scale is that of all items of a user
        torch.testing.assert_close(after[:, own], before)
    assert after.isfinite().all()
    found.save(tmp_path / "model")
    again = eh.load(tmp_path / "model")
    torch.testing.assert_close(again.scores(users), after)
    assert again.recommend(k=5).equals(found.recommend(k=5))
    newcomer = pa.table({"user": ["n", "n", "m"], "item": [0, N_ITEMS - 1, N_ITEMS - 2]})
    lists = again.fold_in(newcomer).recommend(k=5)
    assert len(lists) == 10
    assert not {0, N_ITEMS - 1} & set(lists["item"].to_pylist()[:5])
    if kind != "counts":
        assert 0 < len(again.similar(N_ITEMS - 1, 5)) <= 5
        assert 0 < len(again.similar(0, 5)) <= 5
    answer = Answers(again).recommend(0, None, 5)
    expected = again.recommend([0], k=5)["item"].to_pylist()
    assert [row["item"] for row in answer["items"]] == expected
    by_history = Answers(again).recommend(None, [N_ITEMS - 1], 5)
    assert not by_history["fallback"]
    assert len(by_history["items"]) == 5
    if kind == "vectors":
        export(again, "npz", tmp_path / "vectors.npz")
        with np.load(tmp_path / "vectors.npz") as file:
            assert file["item_vectors"].shape == (N_ITEMS, 8)


@pytest.mark.parametrize("kind", ["dense", "graph-filter"])
def test_without_vectors_a_new_score_is_the_same_mixture_of_known_ones(kind: str, small: Any) -> None:
    log, _, table = small
    model = fitted(kind, log)
    found = model.with_new_items(table)
    assert isinstance(found, ItemWeightModel)
    assert isinstance(found.table, MixedTable)
    shares = found.table._left.toarray() @ found.table.right.numpy()
    np.testing.assert_allclose(shares.sum(0), 1, rtol=1e-4)
    users = np.arange(log.n_users)
    expected = model.scores(users).numpy() @ shares
    np.testing.assert_allclose(found.scores(users).numpy()[:, N_ITEMS - N_NEW :], expected, atol=1e-4)


def cold_recall(method: str, strength: float, seed: int) -> float:
    """Of the new items that users want, the share in lists of six of the thirty."""
    log, wanted, table = world(strength, seed)
    found = fitted(method, log).with_new_items(table)
    some = np.flatnonzero(wanted.activity)
    lists = found.recommend(some.tolist(), k=6, only=list(range(N_ITEMS - N_NEW, N_ITEMS)))
    items = lists["item"].to_numpy().reshape(len(some), 6)
    return float((wanted.contains(some[:, None], items).sum(1) / wanted.activity[some]).mean())


@pytest.mark.parametrize("kind", ["vectors", "dense", "graph-filter"])
def test_a_list_is_as_good_as_attributes_are_telling(kind: str) -> None:
    """A random list of six of thirty holds a fifth of what is wanted."""
    telling, half, silent = (np.mean([cold_recall(kind, s, seed) for seed in range(2)]) for s in (1.0, 0.5, 0.0))
    assert telling > 0.45
    assert telling > half > silent
    assert 0.1 < silent < 0.3


@pytest.mark.parametrize("kind", ["vectors", "dense", "blend"])
def test_new_items_are_shown_neither_never_nor_always(kind: str, small: Any) -> None:
    log, _, table = small
    model = fitted(kind, log)

    def share(exposure: float) -> float:
        lists = model.with_new_items(table, exposure=exposure).recommend(k=6)
        return float((lists["item"].to_numpy() >= N_ITEMS - N_NEW).mean())

    assert 0.5 < share(1.0) / (N_NEW / N_ITEMS) < 2
    assert share(0.3) < share(1.0) < share(3.0)


def test_made_again_they_replace_those_made_before(small: Any) -> None:
    log, _, table = small
    model = fitted("dense", log)
    some, everything = table.slice(0, N_ITEMS - 10), table
    twice = model.with_new_items(some).with_new_items(everything)
    once = model.with_new_items(everything)
    users = np.arange(log.n_users)
    torch.testing.assert_close(twice.scores(users), once.scores(users))
    assert isinstance(twice, ItemWeightModel)
    assert isinstance(twice.table, MixedTable)
    assert not isinstance(twice.table.inner, MixedTable)
    kept = model.with_new_items(some).with_new_items(table.slice(0, N_ITEMS - 20))
    assert kept.known.n_items == N_ITEMS - 10
    assert isinstance(kept, ItemWeightModel)
    assert isinstance(kept.table, MixedTable)
    assert isinstance(kept.table.inner, MixedTable)


def test_what_is_no_mixture_is_damage(small: Any) -> None:
    found = fitted("dense", small[0]).with_new_items(small[2])
    assert isinstance(found, ItemWeightModel)
    assert found.damage() is None
    table = found.table
    assert isinstance(table, MixedTable)
    wrong: list[dict[str, Any]] = [
        {"places": table.places - 1},
        {"items": table.items.flip(0)},
        {"items": table.items.int()},
        {"columns": table.columns + 1000},
        {"indptr": table.indptr[:-1]},
        {"values": table.values.double()},
        {"right": table.right[:, :-1]},
        {"right": table.right[0]},
    ]
    for change in wrong:
        assert replace(found, table=replace(table, **change)).damage(), change


def test_attributes_as_numbers_worked_by_hand() -> None:
    table = pa.table(
        {
            "item": ["a", "b", "c", "c", None, "d"],
            "genre": ["x|y", "x", None, "late", "z", "z|x"],
            "year": [1.0, 3.0, None, 9.0, 9.0, 2.0],
            "text": ["red hat", "red", "", "", "", "unheard of"],
            "flag": [True, False, True, True, True, None],
            "list": [[3.0, 4.0], [0.0, 5.0], None, [9.0, 9.0], None, [5.0, 0.0]],
        }
    )
    ids, columns = read_attributes(table, "item", ["genre:category", "year", "text:text", "flag", "list"])
    assert ids.to_pylist() == ["a", "b", "c", "d"]
    kinds = ["genre:category", "year:number", "text:text", "flag:category", "list:vector"]
    assert columns.column_names == kinds
    learn = np.array([True, True, True, False])
    by_kind = {kind: features(columns.select([kind]), learn).toarray() for kind in kinds}
    assert by_kind["genre:category"].tolist() == [[1, 1], [1, 0], [0, 0], [1, 0]]  # x, y: z is only in a new item
    years = by_kind["year:number"]
    assert years.shape == (4, KNOTS)
    assert years[[0, 1], [0, KNOTS - 1]].tolist() == [1, 1]
    assert years[2].tolist() == [0] * KNOTS
    np.testing.assert_allclose(years[3].sum(), 1)
    assert by_kind["flag:category"].tolist() == [[0, 1], [1, 0], [0, 1], [0, 0]]
    np.testing.assert_allclose(by_kind["list:vector"][[0, 3]], np.array([[3, 4], [5, 0]]) / np.sqrt(50 / 3))
    text = by_kind["text:text"]
    np.testing.assert_allclose(np.linalg.norm(text, axis=1), [1, 1, 0, 1])
    shared, other = np.log1p(3 / 2), np.log1p(3)  # red is in two of three, hat and the pair in one
    np.testing.assert_allclose(text[0] @ text[1], shared / np.sqrt(shared**2 + 2 * other**2))


def test_kinds_are_found_by_what_a_column_holds() -> None:
    n = 30
    table = pa.table(
        {
            "item": range(n),
            "brand": ["ab"[i % 2] for i in range(n)],
            "title": [f"title {i}" for i in range(n)],
            "price": [i / 3 for i in range(n)],
            "tags": [["q"] for _ in range(n)],
            "vector": [[1.0, i] for i in range(n)],
        }
    )
    kinds = read_attributes(table, "item", None)[1].column_names
    assert kinds == ["brand:category", "title:text", "price:number", "tags:category", "vector:vector"]


def test_what_cannot_be_used_is_said_in_a_sentence(small: Any) -> None:
    log, _, table = small
    model = fitted("vectors", log)
    assert model.with_new_items(table.slice(0, N_ITEMS - N_NEW)) is model
    wrong: list[tuple[pa.Table, dict[str, Any], str]] = [
        (table, {"attributes": "knd"}, "did you mean 'kind'"),
        (table, {"attributes": "kind:words"}, "unknown kind of attribute 'words'"),
        (table, {"attributes": "kind:number"}, "'kind' cannot be read as number"),
        (table, {"exposure": 0}, "above 0"),
        (table.select(["item"]), {}, "needs columns of attributes"),
        (table.slice(N_ITEMS - N_NEW - 3), {}, f"of 3 items that the model knows; at least {LEAST_KNOWN}"),
        (table.set_column(0, "item", [[f"x{i}" for i in range(N_ITEMS)]]), {}, "those of the model are integers"),
    ]
    for given, options, sentence in wrong:
        with pytest.raises(InputError, match=sentence.replace("(", "\\(")):
            model.with_new_items(given, **options)


def test_the_command_line_adds_them_with_and_without_newer_logs(small: Any, tmp_path: Path) -> None:
    log, wanted, table = small
    write_log(log, tmp_path / "log.csv")
    eh_items = tmp_path / "items.parquet"
    import pyarrow.parquet as pq

    pq.write_table(table.append_column("name", pa.array([f"Item {i}" for i in range(N_ITEMS)])), eh_items)
    given = ("--new-items", eh_items, "--attributes", "kind,tags,size")
    trained = evenhand("train", tmp_path / "log.csv", "--method", "ease", "--out", tmp_path / "model", "--json")
    assert trained.code == 0, trained.err
    ended = evenhand("update", tmp_path / "model", *given, "--out", tmp_path / "more", "--json")
    assert ended.code == 0, ended.err
    assert ended.document["added"] == {"users": 0, "items": N_NEW, "pairs": 0}
    assert "30 new items from kind:category, tags:category, size:number." in ended.document["notes"]
    lists = [
        evenhand("recommend", tmp_path / folder, "--k", "20", "--json", *more).document["recommendations"]
        for folder, more in (("more", ()), ("model", given))
    ]
    assert lists[0] == lists[1]
    assert {row["item"] for row in lists[0]} & set(range(N_ITEMS - N_NEW, N_ITEMS))
    shown = evenhand("similar", tmp_path / "more", N_ITEMS - 1, "--items-file", eh_items, "--title", "name")
    assert shown.code == 0
    assert "Item " in shown.out

    newer = wanted.take(wanted.items < N_ITEMS - 10)
    write_log(newer, tmp_path / "newer.csv")
    both = evenhand("update", tmp_path / "more", tmp_path / "newer.csv", *given, "--out", tmp_path / "both", "--json")
    assert both.code == 0, both.err
    assert "10 new items from" in both.document["notes"][-1]
    model = eh.load(tmp_path / "both")
    assert model.known.n_items == N_ITEMS
    assert (model.scores(np.arange(5))[:, -10:] != 0).any()

    for arguments, sentence in (
        ((), "give a file of newer interactions"),
        (("--attributes", "kind"), "--attributes is about --new-items"),
    ):
        ended = evenhand("update", tmp_path / "model", *arguments, "--out", tmp_path / "none")
        assert ended.code == 2
        assert sentence in ended.err
        assert not (tmp_path / "none").exists()
