"""Nearest neighbours against the dense formula, Turbo-CF's first filter and SANSA's norm worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.baselines import cooccurrence
from evenhand.baselines.cooccurrence import Cooccurrence
from evenhand.baselines.itemknn import ItemKNN
from evenhand.data.interactions import Interactions
from evenhand.methods import parse
from evenhand.utils import memory
from evenhand.utils.errors import InputError
from toy_log import TOY, matrix, random_log


@pytest.mark.parametrize(
    ("alpha", "power", "expected"),
    [(0.6, 0.7, (1.064830, 1.003012, 0.410715, 0.619450, 0)), (0.5, 1.4, (0.542349, 0.514589, 0.175620, 0.231775, 0))],
)
def test_all_neighbours_with_exponents_are_turbo_cfs_first_filter(
    alpha: float, power: float, expected: tuple[float, ...]
) -> None:
    """The filter keeps an item's similarity to itself, which counts only for items the user has."""
    knn = ItemKNN("all", 0, user_exponent=2 * alpha, item_exponent=1 - alpha, power=power)
    scores = knn.fit_pairs(TOY).scores(np.array([0]))[0].double().numpy()
    weights = TOY.activity ** (-2.0 * alpha)
    for item in (0, 1):
        own = (weights @ matrix(TOY)[:, item]) * TOY.popularity[item] ** (2 * (alpha - 1))
        scores[item] += own**power
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_the_norm_of_sansa_is_the_root_of_the_length_of_a_row_of_counts() -> None:
    lengths = Cooccurrence(TOY, np.ones(3)).norms()
    np.testing.assert_allclose(np.sqrt(lengths), (1.967990, 1.732051, 1.189207, 1.316074, 0), atol=1e-6)
    scores = ItemKNN("all", 0, norm="gram").fit_pairs(TOY).scores(np.array([0]))[0]
    roots = np.sqrt(lengths)
    assert scores[3] == pytest.approx(1 / roots[0] / roots[3] + 1 / roots[1] / roots[3])


@given(
    seed=st.integers(0, 1000),
    neighbours=st.sampled_from([1, 3, 7, "all"]),
    shrink=st.sampled_from([0, 2.5]),
    norm=st.sampled_from(["cosine", "gram"]),
    exponents=st.tuples(st.sampled_from([0, 0.4, 0.5]), st.sampled_from([0, 1.2]), st.sampled_from([0.7, 1, 2])),
    block=st.sampled_from([1, 40, 2**20]),
)
@settings(max_examples=60, deadline=None)
def test_itemknn_is_its_dense_formula(
    seed: int, neighbours: int | str, shrink: float, norm: str, exponents: tuple[float, float, float], block: int
) -> None:
    log = random_log(seed)
    item_exponent, user_exponent, power = exponents
    x = matrix(log)
    shared = (x.T * np.maximum(x.sum(1), 1) ** -user_exponent) @ x
    lengths = (np.linalg.norm(shared, axis=1) if norm == "gram" else x.sum(0)) ** item_exponent
    with np.errstate(invalid="ignore"):
        similarity = np.nan_to_num(shared / (np.outer(lengths, lengths) + shrink)) ** power
    np.fill_diagonal(similarity, 0)
    knn = ItemKNN(neighbours, shrink, norm, item_exponent, user_exponent, power)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "_BLOCK_PAIRS", block)
        table = knn.fit_pairs(log).table
    found = np.zeros_like(similarity)
    found[np.repeat(np.arange(log.n_items), np.diff(table.indptr)), table.items] = table.weights
    most = log.n_items if neighbours == "all" else int(neighbours)
    for item in range(log.n_items):
        mine, best = found[:, item], np.sort(similarity[item])[::-1][:most]
        np.testing.assert_allclose(np.sort(mine)[::-1][:most], best, rtol=1e-5, atol=1e-7)
        kept = np.flatnonzero(mine)
        assert len(kept) == min(most, np.count_nonzero(similarity[item]))
        np.testing.assert_allclose(mine[kept], similarity[item][kept], rtol=1e-5)


@given(values=st.lists(st.integers(0, 9), min_size=1, max_size=60), data=st.data())
def test_the_nth_smallest_parts_the_others(values: list[int], data: st.DataObject) -> None:
    n = data.draw(st.integers(0, len(values) - 1))
    found = np.array(values, dtype=np.float32)
    assert cooccurrence._smallest(found, n) == sorted(values)[n]
    assert sorted(found[: n + 1]) == sorted(values)[: n + 1]
    assert sorted(found) == sorted(values)


def test_of_equally_similar_items_the_lowest_are_kept() -> None:
    """Item 0 shares one user with each of the others, who have one user more each."""
    log = Interactions.from_pairs([0] * 5 + [1, 2, 3, 4], [0, 1, 2, 3, 4, 1, 2, 3, 4])
    table = ItemKNN(2, 0).fit_pairs(log).table
    whose = np.repeat(np.arange(5), np.diff(table.indptr))
    assert whose[table.items == 0].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("itemknn:neighbours=some", "neighbours must be a whole number of at least 1, not some."),
        ("itemknn:norm=l1", "unknown norm 'l1'; Known: cosine, gram."),
        ("itemknn:power=0", "power must be a positive number, not 0."),
        ("itemknn:user_exponent=20", "item_exponent, user_exponent and power may be up to 10."),
    ],
)
def test_bad_parameters_of_itemknn_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == said


def test_all_neighbours_that_would_not_fit_are_refused_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 100)
    with pytest.raises(InputError, match=r"^itemknn with 5 neighbours an item needs about .*; lower neighbours\.$"):
        ItemKNN("all").fit_pairs(TOY)
