"""ALS with a ridge that grows with a row's pairs: published values, a direct solve, and wide vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evenhand.baselines.als import ALS, ridges, solved
from evenhand.methods import parse
from evenhand.utils.errors import InputError
from run_cli import small_log
from toy_log import ITEMS, TOY, USERS, matrix, random_log

ALPHA = 10.0
"""α0 of iALS is .1."""


def as_ials(vectors: torch.Tensor) -> np.ndarray:
    """Targets of 1 with confidence 1 + alpha are those of iALS with confidence alpha, scaled."""
    return vectors.numpy() * ALPHA / (1 + ALPHA)


def test_half_steps_of_ials_on_the_toy_log() -> None:
    weights = TOY.activity + 5 / ALPHA, TOY.popularity + 3 / ALPHA
    np.testing.assert_allclose(0.003 * weights[0], (0.0075, 0.0075, 0.0105))
    np.testing.assert_allclose(0.003 * weights[1], (0.0099, 0.0069, 0.0039, 0.0039, 0.0009))
    mean = 0.003 * 17 / 8  # W(1) / W(0)
    of_users, of_items = ridges(TOY, ALPHA, l2=ALPHA * mean, nu=1)
    np.testing.assert_allclose(of_users, ALPHA * 0.003 * weights[0])
    np.testing.assert_allclose(of_items, ALPHA * 0.003 * weights[1])
    users = solved(TOY.indptr, TOY.items, torch.from_numpy(ITEMS), ALPHA, of_users)
    expected = (0.491714, 0.241926), (0.437029, 0.317217), (0.597095, 0.034018)
    np.testing.assert_allclose(as_ials(users), expected, atol=1e-6)
    items = solved(*TOY.by_item, torch.from_numpy(USERS), ALPHA, of_items)
    expected = (0.604248, 0.604248), (0.903882, 0.004747), (-0.424673, 0.865909), (0.434047, 0.434047), (0, 0)
    np.testing.assert_allclose(as_ials(items), expected, atol=1e-6)


def test_a_flat_ridge_on_the_toy_log() -> None:
    users = solved(TOY.indptr, TOY.items, torch.from_numpy(ITEMS), ALPHA, 0.5)
    np.testing.assert_allclose(users[0], (0.537351, 0.262792), atol=1e-6)


@pytest.mark.parametrize("nu", [0.5, 1.0])
@pytest.mark.parametrize("steps", [0, 30])
def test_a_growing_ridge_is_that_of_each_row(nu: float, steps: int) -> None:
    log, dim, alpha = random_log(2), 5, 4.0
    x, items = (
        matrix(log),
        torch.randn(log.n_items, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    )
    of_users, _ = ridges(log, alpha, 2.0, nu)
    assert isinstance(of_users, np.ndarray)
    found = solved(log.indptr, log.items, items, alpha, of_users, steps)
    for row, ridge in enumerate(of_users):
        confidence = np.diag(1 + alpha * x[row])
        left = items.numpy().T @ confidence @ items.numpy() + ridge * np.eye(dim)
        np.testing.assert_allclose(found[row], np.linalg.solve(left, items.numpy().T @ confidence @ x[row]), atol=1e-7)


def test_ridges_keep_their_mean_and_are_flat_without_nu() -> None:
    log = random_log(5)
    assert ridges(log, 3.0, 7.0, 0) == (7.0, 7.0)
    for alpha in (0.0, 3.0, 1000.0):
        both = np.concatenate(ridges(log, alpha, 7.0, 0.8))
        assert both.mean() == pytest.approx(7.0)
        assert (both > 0).all()
    active, idle = np.argmax(log.activity), np.argmin(log.activity)
    of_users, _ = ridges(log, 1000.0, 7.0, 1)
    assert of_users[active] > of_users[idle]  # type: ignore[index]


def loss(x: np.ndarray, als: ALS, users: np.ndarray, items: np.ndarray, of: tuple[np.ndarray, np.ndarray]) -> float:
    gap = (1 + als.alpha * x) * (x - users @ items.T) ** 2
    return float(gap.sum() + of[0] @ (users**2).sum(1) + of[1] @ (items**2).sum(1))


def test_few_gradient_steps_reach_the_exact_solution_with_wide_vectors() -> None:
    log, found = small_log(), []
    for steps in (3, 0):
        als = ALS(factors=512, alpha=20, l2=30, iterations=4, steps=steps, nu=1)
        users, items = (side[0].double().numpy() for side in als.fit_pairs(log).vectors)
        of = ridges(log, als.alpha, als.l2, als.nu)
        found.append(loss(matrix(log), als, users, items, of))  # type: ignore[arg-type]
    assert found[0] == pytest.approx(found[1], rel=0.01)


@pytest.mark.parametrize(
    ("text", "said"),
    [("als:nu=-1", "nu must be a number of at least 0, not -1."), ("als:nu=11", "nu may be up to 10, not 11.")],
)
def test_bad_values_of_nu_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == said
