"""Exact top-k against a full sort, and what a model answers: lists, similar items, plain refusals."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.models import factors as ranking_model
from evenhand.models import topk
from evenhand.models.filters import known_position
from evenhand.models.topk import top_items
from evenhand.testing import corner_cases
from evenhand.utils.errors import InputError
from small_model import model


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


@pytest.fixture(params=["compiled", "torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to select, whatever else has loaded numba."""
    monkeypatch.setattr(topk, "_compiled", lambda *_: topk._kernel() if request.param == "compiled" else None)
    return request.param


SAME_FIXTURE = [HealthCheck.function_scoped_fixture]


def test_the_compiled_selection_is_there() -> None:
    assert topk._kernel() is not None
    assert topk._compiled(2**24, 20) is topk._kernel()
    assert topk._compiled(2**24, 257) is None


@pytest.mark.parametrize(("dtype", "least", "asked"), [("float32", 99, 1), ("float64", 99, 0), ("float64", 12, 1)])
def test_few_counts_are_not_worth_compiling_for(
    dtype: str, least: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(topk, "_compiled", lambda *_: topk._kernel())
    monkeypatch.setattr(topk, "_select", lambda *_: calls.append(1))
    monkeypatch.setattr(topk, "_WORTH_SHARING", least)
    scores = torch.arange(12, dtype=getattr(torch, dtype)).view(3, 4)
    found, _ = topk.top_by(lambda users: scores[users], 4, np.arange(3), 1)
    assert len(calls) == asked
    assert asked or found.tolist() == [[3], [3], [3]]


@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), exclude=st.booleans(), only=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=SAME_FIXTURE)
def test_top_items_is_a_full_sort(way: str, seed: int, k: int, exclude: bool, only: bool) -> None:
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


def test_chunks_do_not_matter(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), exclude=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=SAME_FIXTURE)
def test_equal_scores_come_in_the_order_of_the_items(way: str, seed: int, k: int, exclude: bool) -> None:
    """Vectors of a few small whole numbers: their scores are exact and full of ties."""
    g = torch.Generator().manual_seed(seed)
    log = corner_cases(seed=seed % 20)
    user_vectors = torch.randint(0, 2, (9, 2), generator=g).float()
    item_vectors = torch.randint(-1, 2, (12, 2), generator=g).float()
    banned = np.zeros((9, 12), dtype=bool)
    if exclude:
        banned[log.users, log.items] = True
    items, scores = top_items(user_vectors, item_vectors, np.arange(9), k, exclude=log if exclude else None)
    expected, values = brute_force((user_vectors @ item_vectors.T).numpy(), np.arange(9), k, banned)
    assert items.tolist() == expected
    assert scores.tolist() == values


@given(seed=st.integers(0, 10_000), k=st.sampled_from([1, 20, 256]), levels=st.sampled_from([3, 2**20]))
@settings(max_examples=20, deadline=None)
def test_both_ways_agree_on_long_rows(seed: int, k: int, levels: int) -> None:
    """Rows of many blocks, with few levels (ties everywhere) and with many, and scores that are infinite."""
    generator = np.random.default_rng(seed)
    scores = generator.integers(0, levels, (5, 1000)).astype(np.float32)
    scores[generator.random(scores.shape) < 0.02] = -np.inf
    scores[0, :990] = -np.inf
    pairs = np.unique(generator.integers(0, 5 * 1000, 300))
    log = Interactions.from_pairs(pairs // 1000, pairs % 1000, n_users=5, n_items=1000)
    found = []
    for kernel in (topk._kernel(), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(topk, "_compiled", lambda *_, kernel=kernel: kernel)
            patch.setattr(topk, "_WORTH_SHARING", 0)
            found.append(topk.top_by(lambda u: torch.tensor(scores[u]), 1000, np.arange(5), k, exclude=log))
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_a_score_that_is_no_number_is_never_recommended(way: str) -> None:
    scores = torch.tensor([[1.0, torch.nan, 3.0, -torch.inf], [torch.nan] * 4])
    items, values = topk.top_by(lambda u: scores[u].clone(), 4, np.arange(2), 3)
    assert items.tolist() == [[2, 0, -1], [-1, -1, -1]]
    assert values[0].tolist() == [3.0, 1.0, -np.inf]


def test_a_user_without_a_taste_gets_the_first_items(way: str) -> None:
    items, _ = top_items(torch.zeros(1, 3), torch.randn(5000, 3), np.array([0]), 20)
    assert items.tolist() == [list(range(20))]


def test_no_users_no_lists() -> None:
    items, scores = top_items(torch.zeros(9, 2), torch.zeros(12, 2), np.arange(0), 3)
    assert items.shape == scores.shape == (0, 3)


# ---- the model


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


@pytest.mark.parametrize("form", [list, tuple, pa.array, np.array, lambda x: pa.chunked_array([x[:1], x[1:]])])
def test_users_come_in_any_form(form: type) -> None:
    made = model("integer")
    assert made.recommend(form([104, 107]), k=1)["user"].to_pylist() == [104, 107]


def test_ids_of_another_type_are_compared_by_their_text() -> None:
    assert model("integer").recommend(["104", "107"], k=1)["user"].to_pylist() == [104, 107]
    assert model("integer").recommend(["104", "anna"], k=1)["user"].to_pylist() == [104]
    with pytest.raises(InputError, match="users must be ids of one type"):
        model("integer").recommend([104, "anna"])


def test_one_user_may_come_without_a_list() -> None:
    assert model("string").recommend("u05", k=1).equals(model("string").recommend(["u05"], k=1))


@pytest.mark.parametrize(("arguments", "match"), [({"seed": 5}, "no seed 5; it has 7, 3, 11"), ({"k": 13}, "k must")])
def test_impossible_requests_are_refused(arguments: dict[str, int], match: str) -> None:
    with pytest.raises(InputError, match=match):
        model("string").recommend(**arguments)


# ---- which items


@given(
    seed=st.integers(0, 1000),
    k=st.integers(1, 12),
    exclude=st.none() | st.sets(st.integers(0, 11), max_size=8),
    only=st.none() | st.sets(st.integers(0, 11), min_size=9),
    known=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_exclude_and_only_are_a_full_sort_of_what_is_left(
    seed: int, k: int, exclude: set[int] | None, only: set[int] | None, known: bool
) -> None:
    made = model("integer", seed=seed)
    allowed = (only if only is not None else set(range(12))) - (exclude or set())
    if not allowed:
        return
    table = made.recommend(
        k=k,
        known=known,
        exclude=None if exclude is None else [10 * i for i in exclude],
        only=None if only is None else pa.array(sorted(10 * i for i in only)),
    )
    scores = (made.user_vectors[1] @ made.item_vectors[1].T).numpy()
    expected = []
    for user in range(9):
        left = allowed - (set() if known else set(made.known.row(user).tolist()))
        best = sorted(left, key=lambda i: (-scores[user, i], i))[:k]
        expected += [(100 + user, 10 * i, rank) for rank, i in enumerate(best, 1)]
    columns = (table[name].to_pylist() for name in ("user", "item", "rank"))
    assert list(zip(*columns, strict=True)) == expected


def test_leaving_out_everything_is_refused() -> None:
    with pytest.raises(InputError, match="nothing is left to recommend"):
        model("integer").recommend(only=[10], exclude=[10])
    with pytest.raises(InputError, match="nothing is left to recommend"):
        model("integer").recommend(only=[])


# ---- similar items


@pytest.mark.parametrize("seed", [None, 11])
def test_similar_items_are_those_of_largest_cosine(seed: int | None) -> None:
    made = model("string")
    vectors = made.item_vectors[1 if seed is None else 2].numpy()
    cosine = vectors @ vectors[4] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[4])
    order = [i for i in np.argsort(-cosine) if i != 4][:5]
    table = made.similar("ä04", 5, seed=seed)
    assert table.column_names == ["item", "score"]
    assert table["item"].to_pylist() == [f"ä{i:02}" for i in order]
    np.testing.assert_allclose(table["score"], cosine[order], rtol=1e-5)


def test_an_integer_item_may_be_given_as_text() -> None:
    made = model("integer")
    assert made.similar("40").equals(made.similar(40))


@pytest.mark.parametrize(
    ("kind", "item", "k", "message"),
    [
        ("string", "Ä4", 3, "1 unknown item: 'Ä4'; did you mean 'ä04'?"),
        ("string", "zebra", 3, "1 unknown item: 'zebra'."),
        ("integer", 41, 3, "1 unknown item: 41."),
        ("integer", "forty", 3, "1 unknown item: 'forty'."),
        ("integer", 40, 12, "k must lie between 1 and the 11 other items, not 12."),
    ],
)
def test_similar_refuses_what_it_cannot_answer(kind: str, item: object, k: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        model(kind).similar(item, k)
    assert str(caught.value) == message


def test_a_score_that_is_no_number_comes_last_though_others_tie() -> None:
    items, values = topk.top_of(torch.tensor([[1.0, torch.nan, 1.0, 1.0], [2.0, 1.0, 3.0, 3.0]]), 4)
    assert items.tolist() == [[0, 2, 3, 1], [2, 3, 0, 1]]
    assert values[0].tolist() == [1.0, 1.0, 1.0, -torch.inf]


def test_a_near_id_is_found_in_a_large_catalogue() -> None:
    ids = pa.array(sorted(f"film-{i:06}" for i in range(60_000)))
    with pytest.raises(InputError, match=r"did you mean .*'film-012345'"):
        known_position("Film-12345", ids[12_000:], "item")


def test_an_item_without_a_direction_is_like_nothing() -> None:
    made = model("integer")
    made.item_vectors[1, 4] = 0
    assert made.similar(40, 11)["score"].to_pylist() == [0.0] * 11


def test_what_is_like_nothing_is_in_no_list_of_neighbours() -> None:
    """A vector that holds no numbers has no direction; the list is shorter by it."""
    log = corner_cases()
    items = torch.ones(1, log.n_items, 2)
    items[0, 1] = torch.nan
    made = ranking_model.FactorModel(torch.ones(1, log.n_users, 2), items, known=log, seeds=(0,))
    first, other = (log.item_ids[n].as_py() for n in (0, 1))
    found = made.similar(first, log.n_items - 1)
    assert len(found) == log.n_items - 2
    assert other not in found["item"].to_pylist()
    assert len(made.similar(other, 1)) == 0
