"""The graph filter against its dense formula, published values worked by hand, and as a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.baselines.gfcf import GFCF, smoothest_directions
from evenhand.data.interactions import Interactions
from evenhand.methods import parse
from evenhand.models.item_weights import GraphFilter
from evenhand.utils.errors import InputError
from run_cli import small_log
from toy_log import TOY, matrix, random_log

CPU = torch.device("cpu")


def powers(counts: np.ndarray, exponent: float) -> np.ndarray:
    return np.where(counts > 0, np.maximum(counts, 1) ** exponent, 0)


def dense_filter(log: Interactions, k: int, alpha: float, a: float, b: float, shape: float = 0) -> np.ndarray:
    x = matrix(log)
    degree = x.sum(0)
    normal = powers(x.sum(1), -0.5)[:, None] * x * powers(degree, -0.5)
    values, vectors = np.linalg.eigh(normal.T @ normal)
    first = np.argsort(-values)[:k]
    low = vectors[:, first] * np.maximum(values[first], 0) ** (shape / 2)
    linear = powers(degree, -a)[:, None] * (normal.T @ normal) * powers(degree, a)
    return linear + alpha * powers(degree, -b)[:, None] * (low @ low.T) * powers(degree, b)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"alpha": 0}, (0.784651, 0.756874, 0.288675, 0.428152, 0)),
        ({"alpha": 0.3}, (1.027746, 0.972536, 0.316108, 0.541963, 0)),
    ],
)
def test_published_filters_on_the_toy_log(parameters: dict[str, float], expected: tuple[float, ...]) -> None:
    published = {"factors": 2, "linear_exponent": 0, "spectral_exponent": 0.5}
    fitted = GFCF(**(published | parameters)).fit_pairs(TOY)  # type: ignore[arg-type]
    np.testing.assert_allclose(fitted.scores(np.array([0]))[0], expected, atol=1e-6)


def test_a_new_user_of_the_toy_log_is_just_another_row() -> None:
    model = GFCF(2, 0.3, 0, 0.5).fit_pairs(TOY)
    new = model.fold_in(Interactions.from_pairs([0, 0], [1, 2], n_items=5))
    np.testing.assert_allclose(new.scores(np.array([0]))[0], (0.915166, 0.496338, 0.706612, 0.263135, 0), atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("k", "alpha", "a", "b", "shape"),
    [(0, 0.3, 0, 0.5, 0), (3, 0.3, 0, 0.5, 0), (5, 1.5, 0.4, 0.4, 1), (4, -0.5, 0.4, 0.4, 2), (2, 0.1, -0.2, 0.1, 1)],
)
def test_the_filter_is_its_dense_formula(seed: int, k: int, alpha: float, a: float, b: float, shape: float) -> None:
    log = random_log(seed)
    users = np.arange(log.n_users)[::-1].copy()
    fitted = GFCF(k, alpha, a, b, shape).fit_pairs(log)
    expected = matrix(log)[users] @ dense_filter(log, k, alpha, a, b, shape)
    np.testing.assert_allclose(fitted.scores(users), expected, rtol=1e-4, atol=1e-5)
    table = fitted.table
    assert isinstance(table, GraphFilter)
    products = table._linear_by_products(log, users)
    torch.testing.assert_close(products, table._linear(log, users), rtol=1e-5, atol=1e-6)


def test_directions_are_orthonormal_and_span_what_singular_vectors_span() -> None:
    log = small_log()
    squares, found = smoothest_directions(log, 10, CPU)
    torch.testing.assert_close(found.T @ found, torch.eye(10), atol=1e-5, rtol=0)
    x = matrix(log)
    normal = powers(x.sum(1), -0.5)[:, None] * x * powers(x.sum(0), -0.5)
    values = np.linalg.svd(normal)[1]
    image = np.linalg.norm(normal @ found.numpy(), axis=0)
    np.testing.assert_allclose(np.sort(image)[::-1], values[:10], rtol=1e-4)
    np.testing.assert_allclose(squares.sqrt(), values[:10], rtol=1e-4)
    assert torch.equal(found, smoothest_directions(log, 10, CPU)[1])


def test_a_saved_filter_recommends_the_same(tmp_path: Path) -> None:
    log = small_log()
    model = GFCF(factors=6).fit_pairs(log)
    model.save(tmp_path / "gfcf")
    loaded = eh.load(tmp_path / "gfcf")
    assert loaded.kind == "graph-filter"
    assert loaded.recommend(k=5).equals(model.recommend(k=5))
    history = Interactions.from_pairs([0, 0], [1, 4], n_items=log.n_items)
    torch.testing.assert_close(
        loaded.fold_in(history).scores(np.array([0])), model.fold_in(history).scores(np.array([0]))
    )
    near = loaded.similar(model.known.item_ids[3].as_py(), k=4)
    row = matrix(Interactions.from_pairs([0], [3], n_items=log.n_items)) @ dense_filter(log, 6, 0.3, 0.4, 0.4)
    row[0, 3] = -np.inf
    best = np.argsort(-row[0], kind="stable")[:4]
    assert near["item"].to_pylist() == [model.known.item_ids[int(i)].as_py() for i in best]
    assert near["score"].to_pylist() == pytest.approx(row[0][best], rel=1e-3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gfcf:factors=-1", "factors must be a whole number of at least 0, not -1."),
        ("gfcf:alpha=nan", "alpha must be a number between -10 and 10, not nan."),
        ("gfcf:linear_exponent=11", "linear_exponent must be a number between -10 and 10, not 11."),
        ("gfcf:spectral_exponent=much", "spectral_exponent must be a number between -10 and 10, not much."),
        ("gfcf:eigen_power=-1", "eigen_power must be a number between 0 and 10, not -1."),
    ],
)
def test_bad_parameters_of_the_filter_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert str(caught.value) == said


def test_the_eigenvalues_of_the_toy_log() -> None:
    values, _ = smoothest_directions(TOY, 5, CPU)
    np.testing.assert_allclose(values, (1, 0.540173, 0.154272, 0, 0), atol=1e-6)
