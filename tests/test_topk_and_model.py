"""Exact top-k against a full sort, and models that come back from their folder unchanged."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.errors import InputError
from evenhand.ranking import Model, load, top_items, topk
from evenhand.testing import corner_cases


def brute_force(
    scores: np.ndarray, users: np.ndarray, k: int, banned: np.ndarray
) -> tuple[list[list[int]], list[list[float]]]:
    items, values = [], []
    for user in users:
        order = [i for i in np.argsort(-scores[user], kind="stable") if not banned[user, i]][:k]
        gap = k - len(order)
        items.append([*order, *[-1] * gap])
        values.append([*scores[user, order], *[-np.inf] * gap])
    return items, values


@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), exclude=st.booleans(), only=st.booleans())
@settings(max_examples=60, deadline=None)
def test_top_items_is_a_full_sort(seed: int, k: int, exclude: bool, only: bool) -> None:
    g = torch.Generator().manual_seed(seed)
    log = corner_cases(seed=seed % 20)
    user_vectors, item_vectors = torch.randn(9, 4, generator=g), torch.randn(12, 4, generator=g)
    users = torch.randint(0, 9, (7,), generator=g).numpy()
    allowed = torch.rand(12, generator=g) < 0.7
    banned = np.zeros((9, 12), dtype=bool)
    if exclude:
        banned[log.users, log.items] = True
    if only:
        banned |= ~allowed.numpy()
    items, scores = top_items(
        user_vectors, item_vectors, users, k, exclude=log if exclude else None, only=allowed if only else None
    )
    expected, values = brute_force((user_vectors @ item_vectors.T).numpy(), users, k, banned)
    assert items.tolist() == expected
    np.testing.assert_allclose(scores, values, rtol=1e-5, atol=1e-6)
    assert items.dtype == np.int64
    assert scores.dtype == np.float32


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    log = corner_cases(n_users=50)
    tables = torch.randn(50, 4, generator=g), torch.randn(12, 4, generator=g)
    whole = top_items(*tables, np.arange(50), 12, exclude=log)
    for size in (1, 12, 12 * 7 + 1):
        monkeypatch.setattr(topk, "_CHUNK_SCORES", size)
        items, scores = top_items(*tables, np.arange(50), 12, exclude=log)
        assert np.array_equal(items, whole[0])
        np.testing.assert_allclose(scores, whole[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("k", [0, 13])
def test_k_must_fit_the_catalogue(k: int) -> None:
    with pytest.raises(InputError, match=f"k must lie between 1 and the catalogue's 12 items, not {k}"):
        top_items(torch.zeros(9, 2), torch.zeros(12, 2), np.arange(9), k)


def test_no_users_no_lists() -> None:
    items, scores = top_items(torch.zeros(9, 2), torch.zeros(12, 2), np.arange(0), 3)
    assert items.shape == scores.shape == (0, 3)


# ---- the model


def model(kind: str) -> Model:
    log = corner_cases()
    if kind == "string":
        log = Interactions.from_pairs(
            log.users,
            log.items,
            user_ids=pa.array([f"u{i:02}" for i in range(9)]),
            item_ids=pa.array([f"ä{i:02}" for i in range(12)]),
        )
    else:
        log = Interactions.from_pairs(
            log.users,
            log.items,
            user_ids=pa.array(range(100, 109), pa.int64()),
            item_ids=pa.array(range(0, 120, 10), pa.int64()),
        )
    g = torch.Generator().manual_seed(1)
    return Model(
        torch.randn(3, 9, 4, generator=g),
        torch.randn(3, 12, 4, generator=g),
        known=log,
        seeds=(7, 3, 11),
        best=1,
        info={"method": "dns", "settings": {"lr": 0.01}},
        history=({"epoch": 1, "loss": [0.1, 0.2, 0.3]},),
    )


@pytest.mark.parametrize("kind", ["string", "integer"])
@pytest.mark.parametrize("seed", [None, 7, "all"])
@pytest.mark.parametrize("known", [False, True])
def test_a_saved_model_recommends_identically(tmp_path: Path, kind: str, seed: object, known: bool) -> None:
    before = model(kind)
    before.save(tmp_path / "model")
    after = load(tmp_path / "model")
    assert after.recommend(k=4, seed=seed, known=known).equals(before.recommend(k=4, seed=seed, known=known))
    assert torch.equal(after.user_vectors, before.user_vectors)
    assert (after.seeds, after.best) == (before.seeds, before.best)
    assert after.info == before.info
    assert after.history == before.history
    assert after.known.to_table().equals(before.known.to_table())


def test_recommendations_by_hand() -> None:
    made = model("string")
    table = made.recommend(["u05", "u01", "u00"], k=3)
    assert table.column_names == ["user", "item", "score", "rank"]
    # u00 has every item; u01 has all but the fourth: one row, and it is that item.
    assert table["user"].to_pylist() == ["u05"] * 3 + ["u01"]
    assert table["item"].to_pylist()[3] == "ä03"
    assert table["rank"].to_pylist() == [1, 2, 3, 1]
    scores = (made.user_vectors[1, 5] @ made.item_vectors[1].T).tolist()
    left = [i for i in range(12) if i not in made.known.row(5)]
    best = sorted(left, key=lambda i: -scores[i])[:3]
    assert table["item"].to_pylist()[:3] == [f"ä{i:02}" for i in best]


def test_seed_picks_a_replica_and_all_takes_each() -> None:
    made = model("integer")
    everything = made.recommend(k=2, seed="all")
    assert everything.column_names == ["user", "item", "score", "rank", "seed"]
    for seed in (7, 3, 11):
        part = everything.filter(pa.compute.equal(everything["seed"], seed)).drop_columns("seed")
        assert part.to_pylist() == made.recommend(k=2, seed=seed).to_pylist()
    assert made.recommend(k=2).equals(made.recommend(k=2, seed=3))
    assert not made.recommend(k=2, seed=7).equals(made.recommend(k=2, seed=11))


@pytest.mark.parametrize(
    "form", [list, tuple, pa.array, np.array, lambda x: pa.chunked_array([x[:1], x[1:]])]
)
def test_users_come_in_any_form(form: type) -> None:
    made = model("integer")
    assert made.recommend(form([104, 107]), k=1)["user"].to_pylist() == [104, 107]


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["u01", "x"], "1 unknown user: 'x'."),
        ([f"x{i}" for i in range(3)], "3 unknown users: 'x0', 'x1', 'x2'."),
        (
            [f"x{i}" for i in range(13)],
            "13 unknown users: 'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7', 'x8', 'x9' and 3 more.",
        ),
    ],
)
def test_unknown_users_are_named_up_to_ten(users: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        model("string").recommend(users)
    assert str(caught.value) == message


def test_users_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match="the model's users are int64 ids, but string were given"):
        model("integer").recommend(["anna"])


@pytest.mark.parametrize(
    ("arguments", "match"), [({"seed": 5}, "no seed 5; it has 7, 3, 11"), ({"k": 13}, "k must")]
)
def test_impossible_requests_are_refused(arguments: dict[str, int], match: str) -> None:
    with pytest.raises(InputError, match=match):
        model("string").recommend(**arguments)


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    first, second = model("string"), model("integer")
    first.save(tmp_path)
    with pytest.raises(InputError, match="is not empty; choose another folder or use --force"):
        second.save(tmp_path)
    assert load(tmp_path).recommend(k=1).equals(first.recommend(k=1))
    second.save(tmp_path, force=True)
    assert load(tmp_path).recommend(k=1).equals(second.recommend(k=1))


def test_a_file_is_not_a_place_for_a_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        model("string").save(tmp_path / "file", force=True)
    assert (tmp_path / "file").read_text() == "mine"


def damage_version(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "format": 99}))


def damage_weights(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def damage_ids(folder: Path) -> None:
    table = pa.table({"id": [f"u{i:02}" for i in range(10)]})
    with pa.OSFile(str(folder / "users.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (damage_version, "has format 99, this version of evenhand reads 1"),
        (damage_weights, "cannot be read as a model"),
        (damage_ids, "is damaged: its vectors do not match its ids"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read as a model"),
        (lambda f: (f / "config.json").write_text("{}"), "cannot be read as a model"),
        (lambda f: (f / "known.arrow").unlink(), "cannot be read as a model"),
        (lambda f: (f / "config.json").unlink(), "is not a model folder: it has no config.json"),
    ],
)
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: type, match: str) -> None:
    model("string").save(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(InputError, match=match):
        load(tmp_path / "m")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere is not a model folder"):
        load(tmp_path / "nowhere")
