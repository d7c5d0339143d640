"""New users are solved for as the formula says and served nearly as well as if they had been trained."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.metrics.evaluate import score_lists
from evenhand.models.factors import RIDGE, FactorModel, user_vectors
from evenhand.models.topk import top_items
from evenhand.utils.errors import InputError
from run_cli import evenhand, one_thread
from small_model import model


def history(*rows: tuple[Any, Any]) -> pa.Table:
    return pa.table({"user": [u for u, _ in rows], "item": [i for _, i in rows]})


def test_vectors_minimise_what_the_docstring_says() -> None:
    """Against gradient descent's condition: the derivative of the stated loss is zero there."""
    made = model("integer")
    log = Interactions.from_pairs([0, 0, 1], [3, 7, 2], n_users=2, n_items=12)
    for replica, items in enumerate(made.item_vectors.double()):
        x = user_vectors(made.item_vectors, log)[replica].double().requires_grad_()
        means = torch.stack([items[[3, 7]].mean(0), items[2]])
        length = RIDGE * items.square().mean() * x.square().sum(1)
        loss = -2 * (x * means).sum(1) + (x @ items.T).square().mean(1) + length
        loss.sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, torch.zeros_like(x), atol=1e-5, rtol=0)


def test_lists_do_not_depend_on_the_scale_of_the_vectors() -> None:
    made = model("integer")
    larger = replace(made, item_vectors=1000 * made.item_vectors)
    log = history(("n", 10), ("n", 40), ("m", 0))
    lists = [one.fold_in(log).recommend(k=5)["item"].to_pylist() for one in (made, larger)]
    assert lists[0] == lists[1]


def test_a_new_user_does_not_depend_on_the_others() -> None:
    made = model("string")
    alone = made.fold_in(history(("n", "ä03"), ("n", "ä07")))
    together = made.fold_in(history(("a", "ä01"), ("n", "ä03"), ("n", "ä07"), ("z", "ä00")))
    torch.testing.assert_close(alone.user_vectors[:, 0], together.user_vectors[:, 1])
    assert together.known.user_ids.to_pylist() == ["a", "n", "z"]


def test_what_new_users_have_is_not_recommended_again() -> None:
    made = model("integer").fold_in(history((1, 10), (1, 40), (2, 110)))
    table = made.recommend(k=12)
    lists = {user: set() for user in (1, 2)}
    for row in table.to_pylist():
        lists[row["user"]].add(row["item"])
    everything = set(range(0, 120, 10))
    assert lists == {1: everything - {10, 40}, 2: everything - {110}}
    assert set(made.recommend([1], k=12, known=True)["item"].to_pylist()) == everything


def test_no_items_vector_changes_and_results_are_not_claimed() -> None:
    before = model("integer")
    after = before.fold_in(history((1, 10)))
    assert after.item_vectors is before.item_vectors
    assert (after.seeds, after.best, dict(after.metrics)) == (before.seeds, before.best, {})


def test_unknown_items_are_counted_and_users_without_any_named() -> None:
    made = model("integer").fold_in(history(("a", 10), ("a", 7), ("b", 8), ("b", 7), ("c", 20)))
    assert made.known.user_ids.to_pylist() == ["a", "c"]
    assert made.known.to_table().to_pylist() == [{"user": "a", "item": 10}, {"user": "c", "item": 20}]
    assert made.known.notes == (
        "2 items of the new users (3 of 5 pairs) are unknown to the model and were ignored.",
        "Left out, having no item that the model knows: 'b'.",
    )


def test_ids_of_another_type_still_meet() -> None:
    """One odd item makes the ids of a file texts; 40 must still be the item 40."""
    made = model("integer").fold_in(history(("a", "40"), ("a", "odd")))
    assert made.known.row(0).tolist() == [4]


def test_a_history_of_strangers_is_refused() -> None:
    with pytest.raises(InputError, match="none of the new users' items is known to the model"):
        model("integer").fold_in(history(("a", 1), ("a", 2)))


def test_without_any_direction_vectors_are_zero() -> None:
    made = replace(model("integer"), item_vectors=torch.zeros(3, 12, 4))
    assert (made.fold_in(history((1, 10))).user_vectors == 0).all()


# ---- how well


def ratio(split: Split, encoder: Any, method: str, settings: eh.Settings | None = None) -> float:
    """NDCG@10 of held-out users folded in, over that of the same users trained in."""
    held = np.random.default_rng(0).random(split.n_users) < 0.2
    rest = Split(*(p.take(~held[p.users]) for p in (split.train, split.validation, split.test)), "rest")

    def ndcg(made: FactorModel, users: torch.Tensor) -> float:
        evaluated = np.flatnonzero(held & (split.test.activity > 0))
        top = top_items(users, made.item_vectors[0], evaluated, 10, exclude=split.consumed)[0]
        return score_lists(top, evaluated, split.test, np.zeros(split.n_items, bool), (10,))[10].mean("ndcg")

    with one_thread():
        inside, outside = (
            eh.fit(part, method, encoder, 1, settings=settings, device="cpu", progress=False) for part in (split, rest)
        )
    folded = user_vectors(outside.item_vectors, split.train)[0]
    return ndcg(outside, folded) / ndcg(inside, inside.user_vectors[0])


@pytest.mark.parametrize("encoder", [eh.MF(dim=16), eh.LightGCN(dim=16)])
def test_folded_in_users_are_served_as_trained_ones_in_a_simulated_world(encoder: Any) -> None:
    world = eh.simulate(n_users=600, n_items=300, n_interactions=18_000, seed=1)
    settings = eh.Settings(batch=1024, lr=0.02, epochs=20)
    assert ratio(world.split, encoder, "dns", settings) >= 0.9


def test_folded_in_users_are_served_as_trained_ones_on_movielens(shared_data: Path) -> None:
    split = Interactions.read(shared_data / "ml-100k" / "u.data").split(seed=0)
    assert ratio(split, eh.MF(dim=16), "dns", eh.Settings(batch=4096, epochs=30)) >= 0.9


# ---- the command


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    model("integer").save(tmp_path / "model")
    (tmp_path / "new.csv").write_text("who,what\nann,10\nann,40\nbob,7\ncid,110\n")
    (tmp_path / "some.csv").write_text("item\n0\n10\n20\n110\n")
    (tmp_path / "gone.csv").write_text("item\n20\n")
    return tmp_path


def test_the_command_recommends_to_new_users(desk: Path) -> None:
    columns = ("--user", "who", "--item", "what")
    ended = evenhand("recommend", desk / "model", "--new-users", desk / "new.csv", *columns, "-k", 3)
    log = Interactions.read(desk / "new.csv", user="who", item="what")
    expected = model("integer").fold_in(log).recommend(k=3)
    rows = list(csv.reader(ended.out.splitlines()))
    assert ended.code == 0
    assert rows[0] == ["user", "item", "score", "rank"]
    assert [(user, int(item)) for user, item, _, _ in rows[1:]] == list(
        zip(expected["user"].to_pylist(), expected["item"].to_pylist(), strict=True)
    )
    assert "note: 1 item of the new users (1 of 4 pairs)" in ended.err
    assert "note: Left out, having no item that the model knows: 'bob'." in ended.err
    ended = evenhand("recommend", desk / "model", "--new-users", desk / "new.csv", *columns, "-k", 3, "--json")
    assert ended.document["recommendations"] == expected.to_pylist()
    assert len(ended.document["notes"]) == 2


def test_the_command_keeps_to_lists_of_items(desk: Path) -> None:
    options = ("--only", desk / "some.csv", "--exclude", desk / "gone.csv", "--known", "-k", 12, "--json")
    rows = evenhand("recommend", desk / "model", *options).document["recommendations"]
    assert {(row["user"], row["item"]) for row in rows} == {
        (user, item) for user in range(100, 109) for item in (0, 10, 110)
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--users", "some.csv", "--new-users", "new.csv"], "--users and --new-users exclude each other"),
        (["--new-users", "new.csv"], "--user"),
    ],
)
def test_the_command_refuses(desk: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    ended = evenhand("recommend", "model", *options)
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert message in ended.err


def test_the_command_lists_similar_items(desk: Path) -> None:
    expected = model("integer").similar(40, 3)
    ended = evenhand("similar", desk / "model", "40", "-k", 3, "--json").document
    assert ended == {"item": "40", "similar": expected.to_pylist()}
    lines = evenhand("similar", desk / "model", "40", "-k", 3).out.splitlines()
    assert [line.split()[0] for line in lines] == ["item", *map(str, expected["item"].to_pylist())]
    ended = evenhand("similar", desk / "model", "41")
    assert (ended.code, ended.err) == (2, "evenhand: 1 unknown item: '41'.\n")
