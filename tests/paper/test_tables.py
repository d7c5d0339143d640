"""The paper's MSE against a dense computation, and its limits."""

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.paper import tables as errors
from evenhand.paper.tables import mse, with_mse


def dense(users: torch.Tensor, items: torch.Tensor, liked: Interactions) -> float:
    scores = (users.double() @ items.double().T).numpy()
    z = (scores - scores.mean()) / scores.std()
    y = np.zeros(scores.shape)
    y[liked.users, liked.items] = 1
    return float(np.mean((1 / (1 + np.exp(-z)) - y) ** 2))


@pytest.mark.parametrize("chunk", [2**22, 64])
def test_mse_is_the_mean_over_all_cells(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_CHUNK_SCORES", chunk)
    torch.manual_seed(0)
    users, items = torch.randn(13, 4) + 0.3, torch.randn(17, 4) - 0.1
    rng = np.random.default_rng(0)
    liked = Interactions.from_pairs(rng.integers(0, 13, 40), rng.integers(0, 17, 40), n_users=13, n_items=17)
    assert mse(users, items, liked) == pytest.approx(dense(users, items, liked), rel=1e-9)


def test_a_model_without_an_opinion_has_a_quarter() -> None:
    """σ(0) = ½ everywhere, whatever the labels."""
    liked = Interactions.from_pairs([0, 1], [0, 1], n_users=2, n_items=3)
    assert mse(torch.zeros(2, 3), torch.zeros(3, 3), liked) == pytest.approx(0.25)


def test_scale_and_shift_do_not_matter() -> None:
    torch.manual_seed(1)
    users, items = torch.randn(5, 3), torch.randn(6, 3)
    liked = Interactions.from_pairs([0, 1, 4], [0, 1, 5], n_users=5, n_items=6)
    assert mse(users * 7, items, liked) == pytest.approx(mse(users, items, liked), rel=1e-6)


def test_rows_of_a_comparison_carry_it(monkeypatch: pytest.MonkeyPatch) -> None:
    split = eh.simulate(60, 50, 450, uniform_test=5).split
    result = eh.compare(split, ["rns"], eh.MF(dim=4), 2, eh.Settings(epochs=2, batch=64), k=5)
    (row,) = with_mse(result, split).rows
    liked = split.train.union(split.validation, split.test)
    model = result.fits["rns"].model
    expected = [dense(model.user_vectors[r], model.item_vectors[r], liked) for r in range(2)]
    assert row.metrics["mse"].values == pytest.approx(expected)
    monkeypatch.setattr(errors, "MOST_CELLS", 10)
    assert "mse" not in with_mse(result, split).rows[0].metrics
