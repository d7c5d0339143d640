"""The metrics of lists: hand-worked users, every empty case, and a loop over sets as the oracle."""

import doctest
import importlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.metrics import formulas
from evenhand.metrics.catalogue import METRICS, RATES
from evenhand.metrics.evaluate import UserMetrics, score_lists
from evenhand.metrics.formulas import NO_ITEM, UNKNOWN_ITEM
from evenhand.utils.errors import InputError

ROOM = ["catalogue", "evaluate", "formulas", "lists", "slots", "statistics"]


@pytest.mark.parametrize("module", ROOM)
def test_the_examples_in_the_docstrings_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"evenhand.metrics.{module}")).failed == 0


# Items 0, 1, 2 are hot, items 3 … 7 are cold.
HOT = np.array([True] * 3 + [False] * 5)
TRUTH = {0: [0, 3], 1: [1, 2], 2: [4, 5, 6], 3: [0, 4], 4: []}
CONSUMED = {0: [1], 1: [], 2: [0, 1, 2, 3, 7], 3: [5], 4: [3]}
LISTS = [
    [0, 2, 3, 4],  # user 0: one hot hit, one hot miss, one cold hit, one cold miss
    [0, 1, NO_ITEM, NO_ITEM],  # user 1: a short list; no cold item in the list or in the test part
    [4, 6, 5, NO_ITEM],  # user 2: no hot item in the list or in the test part; nothing but hits
    [NO_ITEM] * 4,  # user 3: an empty list
    [0, 1, 2, 3],  # user 4: no test item, so not judged
]


def interactions(rows: dict[int, list[int]], n_items: int) -> Interactions:
    users = [user for user, items in rows.items() for _ in items]
    items = [item for items in rows.values() for item in items]
    return Interactions.from_pairs(users, items, n_users=len(rows), n_items=n_items)


def hand_worked(k: int = 4) -> UserMetrics:
    truth, consumed = interactions(TRUTH, 8), interactions(CONSUMED, 8)
    return score_lists(np.array(LISTS), np.arange(5), truth, HOT, [k], consumed)[k]


log3 = math.log2(3)
HAND_WORKED = {
    "precision": [2 / 4, 1 / 4, 3 / 4, 0],
    "recall": [2 / 2, 1 / 2, 3 / 3, 0],
    "f1": [4 / 6, 2 / 6, 6 / 7, 0],
    "ndcg": [(1 + 1 / 2) / (1 + 1 / log3), (1 / log3) / (1 + 1 / log3), 1, 0],
    "fpr": [1 / 2, 3 / 4, 1 / 4, 1],
    "fnr": [0, 1 / 2, 0, 1],
    # Negatives: user 0 has {2, 4, 5, 6, 7}, user 1 all but {1, 2}, user 2 none, user 3 all but {0, 4, 5}.
    "fpr_true": [2 / 5, 1 / 6, 0, 0],
    "ohr": [1 / 2, 1 / 2, 0, 0],
    "ocr": [1 / 2, 0, 0, 0],
    "uhr": [0, 1 / 2, 0, 1],
    "ucr": [0, 0, 0, 1],
    "ohr_defined": [1 / 2, 1 / 2, np.nan, np.nan],
    "ocr_defined": [1 / 2, np.nan, 0, np.nan],
    "uhr_defined": [0, 1 / 2, np.nan, 1],
    "ucr_defined": [0, np.nan, 0, 1],
}


@pytest.mark.parametrize("name", HAND_WORKED)
def test_hand_worked_users(name: str) -> None:
    np.testing.assert_allclose(hand_worked().per_user(name), HAND_WORKED[name], rtol=1e-14)
    assert hand_worked().mean(name) == pytest.approx(np.nanmean(HAND_WORKED[name]))


@pytest.mark.parametrize(("name", "pooled"), [("ohr", 2 / 4), ("ocr", 1 / 5), ("uhr", 2 / 4), ("ucr", 1 / 5)])
def test_pooled_rates_divide_sum_by_sum(name: str, pooled: float) -> None:
    assert hand_worked().mean(f"{name}_pooled") == pytest.approx(pooled)


def test_only_users_with_test_items_are_evaluated() -> None:
    assert hand_worked().users.tolist() == [0, 1, 2, 3]


def test_only_the_first_k_slots_count() -> None:
    found = hand_worked(k=1)
    assert found.per_user("precision").tolist() == [1, 0, 1, 0]
    assert found.per_user("ndcg").tolist() == [1, 0, 1, 0]
    assert found.per_user("ohr").tolist() == [0, 1, 0, 0]
    assert found.per_user("recall") == pytest.approx([1 / 2, 0, 1 / 3, 0])


def test_means_name_every_metric_once() -> None:
    assert tuple(hand_worked().means()) == tuple(METRICS)


def test_a_rate_that_nobody_has_is_undefined_except_in_the_papers_average() -> None:
    truth = interactions({0: [3], 1: [4]}, 8)
    found = score_lists(np.array([[3], [5]]), np.arange(2), truth, HOT, [1])[1]
    assert found.mean("ohr") == 0.0
    assert math.isnan(found.mean("ohr_defined"))
    assert math.isnan(found.mean("ohr_pooled"))
    assert found.mean("ocr") == found.mean("ocr_defined") == found.mean("ocr_pooled") == 0.5


def test_without_evaluated_users_every_mean_is_undefined() -> None:
    found = score_lists(np.array([[0]]), np.array([0]), interactions({0: [], 1: [2]}, 8), HOT, [1])[1]
    assert len(found.users) == 0
    assert all(math.isnan(value) for value in found.means().values())


def test_an_unknown_item_is_a_cold_miss_but_no_negative() -> None:
    truth = interactions({0: [0]}, 8)
    found = score_lists(np.array([[UNKNOWN_ITEM, 0, NO_ITEM]]), np.array([0]), truth, HOT, [3])[3]
    assert found.mean("ocr") == 1.0
    assert found.mean("ohr") == 0.0
    assert found.mean("ndcg") == pytest.approx(1 / log3)
    assert found.mean("fpr_true") == 0.0


def test_a_consumed_item_in_a_list_is_a_miss_but_no_negative() -> None:
    truth, consumed = interactions({0: [0]}, 8), interactions({0: [1, 2]}, 8)
    found = score_lists(np.array([[1, 3]]), np.array([0]), truth, HOT, [2], consumed)[2]
    assert found.mean("precision") == 0.0
    assert found.mean("ohr") == 1.0
    assert found.mean("fpr_true") == pytest.approx(1 / 5)


def test_a_perfect_list_has_an_ndcg_of_exactly_one() -> None:
    n_relevant = np.arange(1, 21)
    hits = np.arange(20)[None, :] < n_relevant[:, None]
    assert (formulas.ndcg(hits, n_relevant, 20) == 1.0).all()


def test_what_the_pure_functions_say_of_a_user_without_test_items() -> None:
    hits, none = np.zeros((1, 3), dtype=bool), np.array([0])
    assert formulas.f1(hits, none, 3).tolist() == [0.0]
    for undefined in (formulas.recall, formulas.fnr, formulas.ndcg):
        assert np.isnan(undefined(hits, none, 3)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ks": [5]}, "k = 5 needs lists of that length, but these have 4 slots"),
        ({"ks": [0]}, "from 1 up"),
        ({"ks": []}, "from 1 up"),
        ({"hot": HOT[:-1]}, "each of the 8 items"),
        ({"users": np.arange(4)}, "one user per row"),
        ({"users": np.array([0, 1, 2, 3, 5])}, r"0…4"),
        ({"top": np.full((5, 4), 8)}, "outside"),
        ({"top": np.full((5, 4), -3)}, "outside"),
    ],
)
def test_wrong_arrays_are_refused(change: dict, message: str) -> None:
    given_ = {"top": np.array(LISTS), "users": np.arange(5), "hot": HOT, "ks": [4]} | change
    with pytest.raises(InputError, match=message):
        score_lists(truth=interactions(TRUTH, 8), **given_)


def test_a_wrong_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'precision'"):
        hand_worked().mean("precison")
    with pytest.raises(InputError, match="no value per user"):
        hand_worked().per_user("ohr_pooled")


def by_loop(
    recs: list[int], truth: set[int], consumed: set[int], hot: set[int], popularity: list[int], n: int, k: int
) -> dict:
    """One user's metrics as the definitions read; the four rates as (numerator, denominator)."""
    ranked = [item for item in recs[:k] if item != NO_ITEM]
    rec, items = set(ranked), set(range(n))
    cold, negatives = (items | {UNKNOWN_ITEM}) - hot, items - consumed - truth
    hits = len(rec & truth)
    gain = sum(1 / math.log2(rank + 1) for rank, item in enumerate(recs[:k], 1) if item in truth)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(truth)) + 1))
    return {
        "precision": hits / k,
        "recall": hits / len(truth),
        "f1": 2 * hits / (k + len(truth)),
        "ndcg": gain / ideal,
        "hit_rate": float(hits > 0),
        "mrr": max((1 / rank for rank, item in enumerate(recs[:k], 1) if item in truth), default=0.0),
        "arp": sum(popularity[item] for item in rec & items) / len(ranked) if ranked else math.nan,
        "aplt": len(rec & cold) / len(ranked) if ranked else math.nan,
        "aclt": len(rec & cold) if ranked else math.nan,
        "fpr": (k - hits) / k,
        "fnr": len(truth - rec) / len(truth),
        "fpr_true": len(rec & negatives) / len(negatives) if negatives else 0.0,
        "ohr": (len((rec - truth) & hot), len(rec & hot)),
        "ocr": (len((rec - truth) & cold), len(rec & cold)),
        "uhr": (len((truth - rec) & hot), len(truth & hot)),
        "ucr": (len((truth - rec) & cold), len(truth & cold)),
    }


@st.composite
def worlds(draw: st.DrawFn) -> tuple:
    n_items, n_users = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    subset = st.sets(st.integers(0, n_items - 1))
    width = draw(st.integers(1, 6))
    slots = st.lists(st.integers(UNKNOWN_ITEM, n_items - 1), unique=True, min_size=0, max_size=width)
    lists = [(draw(slots) + [NO_ITEM] * width)[:width] for _ in range(n_users)]
    truth = [draw(subset) for _ in range(n_users)]
    consumed = [draw(subset) for _ in range(n_users)]
    return lists, truth, consumed, draw(subset), n_items, width


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_arrays_agree_with_a_loop_over_sets(world: tuple) -> None:
    lists, truth, consumed, hot, n_items, width = world
    ks = sorted({1, (width + 1) // 2, width})
    popularity = [sum(item in had for had in consumed) for item in range(n_items)]
    found = score_lists(
        np.array(lists),
        np.arange(len(lists)),
        interactions({u: sorted(items) for u, items in enumerate(truth)}, n_items),
        np.isin(np.arange(n_items), list(hot)),
        ks,
        interactions({u: sorted(items) for u, items in enumerate(consumed)}, n_items),
    )
    evaluated = [u for u in range(len(lists)) if truth[u]]
    for k in ks:
        assert found[k].users.tolist() == evaluated
        expected = [by_loop(lists[u], truth[u], consumed[u], hot, popularity, n_items, k) for u in evaluated]
        for name in found[k].values:
            np.testing.assert_allclose(found[k].per_user(name), [e[name] for e in expected], atol=1e-15)
        for name in RATES:
            pairs = [e[name] for e in expected]
            sides = [found[k].sums[f"{name}.{side}"] for side in ("above", "below")]
            assert list(zip(*sides, strict=True)) == pairs
            defined = [a / b for a, b in pairs if b]
            total = sum(b for _, b in pairs)
            _same(found[k].mean(name), sum(defined) / len(pairs) if pairs else np.nan)
            _same(found[k].mean(f"{name}_defined"), sum(defined) / len(defined) if defined else np.nan)
            _same(found[k].mean(f"{name}_pooled"), sum(a for a, _ in pairs) / total if total else np.nan)
        assert (found[k].per_user("precision") + found[k].per_user("fpr") == 1).all()
        assert (found[k].per_user("recall") + found[k].per_user("fnr") == 1).all()
        for name in METRICS:
            mean = found[k].mean(name)
            assert math.isnan(mean) or METRICS[name].low <= mean <= METRICS[name].high + 1e-12


def _same(found: float, expected: float) -> None:
    assert found == pytest.approx(expected, abs=1e-15, nan_ok=True)
