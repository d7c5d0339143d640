"""EASE worked by hand, in place and in single precision, and between the most popular items alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.baselines import ease
from evenhand.baselines.ease import EASE, inverse, mirror
from evenhand.data.interactions import Interactions
from evenhand.methods import parse
from evenhand.models.item_weights import DenseTable
from evenhand.utils.errors import InputError
from run_cli import small_log
from toy_log import TOY, random_log


def weights(model: eh.Model) -> torch.Tensor:
    table = model.table  # type: ignore[attr-defined]
    assert isinstance(table, DenseTable)
    return table.weights


def test_the_weights_of_the_toy_log() -> None:
    model = EASE(l2=1).fit_pairs(TOY)
    expected = [
        [0, 0.5, 0.384615, 0.153846, 0],
        [0.6, 0, -0.230769, 0.230769, 0],
        [0.5, -0.25, 0, -0.076923, 0],
        [0.2, 0.25, -0.076923, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(weights(model), expected, atol=1e-6)
    np.testing.assert_allclose(model.scores(np.array([0]))[0], (0.6, 0.5, 0.153846, 0.384615, 0), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_inverse_in_place_is_the_inverse(dtype: torch.dtype) -> None:
    factor = torch.randn(1100, 60, generator=torch.Generator().manual_seed(0), dtype=dtype)
    matrix = factor @ factor.T + 5 * torch.eye(1100, dtype=dtype)
    kept, place = matrix.clone(), matrix.data_ptr()
    found = inverse(matrix)
    assert found.data_ptr() == place
    close = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found @ kept, torch.eye(1100, dtype=dtype), atol=close, rtol=0)


def test_a_matrix_without_an_inverse_is_refused() -> None:
    with pytest.raises(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        inverse(-torch.eye(3))


@pytest.mark.parametrize("n", [0, 1, 4, 9])
def test_mirroring_makes_a_matrix_symmetric(n: int) -> None:
    matrix = np.random.default_rng(0).random((n, n))
    expected = np.triu(matrix) + np.triu(matrix, 1).T
    mirror(matrix, block=4)
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("balance", [0, 0.3])
def test_large_catalogues_are_solved_in_single_precision(balance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    double = weights(EASE(30, balance).fit_pairs(small_log()))
    monkeypatch.setattr(ease, "_DOUBLE_UP_TO", 0)
    single = weights(EASE(30, balance).fit_pairs(small_log()))
    torch.testing.assert_close(single, double, rtol=1e-3, atol=1e-5)
    assert not torch.equal(single, double)


def test_some_items_are_those_with_the_most_pairs_as_if_there_were_no_others(tmp_path: Path) -> None:
    log = random_log(1)
    kept = np.sort(np.argsort(-log.popularity, kind="stable")[:5])
    own = np.isin(log.items, kept)
    alone = Interactions.from_pairs(
        log.users[own], np.searchsorted(kept, log.items[own]), n_users=log.n_users, n_items=5
    )
    everyone = np.arange(log.n_users)
    expected = np.zeros((log.n_users, log.n_items), np.float32)
    expected[:, kept] = EASE(3, 0.2).fit_pairs(alone).scores(everyone)
    model = EASE(3, 0.2, max_items=5).fit_pairs(log)
    np.testing.assert_allclose(model.scores(everyone), expected, atol=1e-6)
    model.save(tmp_path / "some")
    loaded = eh.load(tmp_path / "some")
    assert torch.equal(loaded.scores(everyone), model.scores(everyone))
    near = loaded.similar(int(kept[2]), k=4)["item"].to_pylist()
    assert sorted(near) == sorted(set(kept.tolist()) - {int(kept[2])})
    out = next(item for item in range(log.n_items) if item not in kept)
    assert loaded.similar(out, k=4).num_rows == 0


def test_as_many_items_as_there_are_is_all_of_them() -> None:
    log = random_log(1)
    assert torch.equal(weights(EASE(3, max_items=log.n_items).fit_pairs(log)), weights(EASE(3).fit_pairs(log)))


@pytest.mark.parametrize("text", ["ease:max_items=0", "ease:max_items=most"])
def test_a_number_of_items_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^max_items must be a whole number of at least 1, not (0|most)\.$"):
        parse(text)
