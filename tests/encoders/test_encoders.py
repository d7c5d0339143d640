"""Encoders against dense algebra: the start, LightGCN's propagation and its gradient."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import ENCODERS, MF, Encoder, LightGCN
from evenhand.samplers import DynamicSampler
from evenhand.testing import checkerboard, corner_cases
from evenhand.training import Settings, train
from evenhand.utils.errors import InputError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


ALL: list[Encoder] = [MF(dim=8), LightGCN(dim=8), LightGCN(dim=8, layers=0)]


def test_every_encoder_is_registered_and_tested() -> None:
    assert {type(e) for e in ALL} == set(ENCODERS.values())


@pytest.mark.parametrize("name", ENCODERS)
def test_starts_with_the_stated_spread(name: str) -> None:
    """Xavier-normal: std sqrt(2 / (rows + dim)), so that users and items differ in scale."""
    log = Interactions.from_pairs([0], [0], n_users=900, n_items=300)
    tables = ENCODERS[name](dim=32).start(log, [0], "cpu").raw().detach()
    for table, rows in ((tables.users, 900), (tables.items, 300)):
        assert table.shape == (1, rows, 32)
        assert table.dtype == torch.float32
        std = (2 / (rows + 32)) ** 0.5
        n = table.numel()
        assert float(table.std()) == pytest.approx(std, rel=4 / (2 * n) ** 0.5)
        assert abs(float(table.mean())) < 4 * std / n**0.5
        # Normal, not uniform: 4.55 % lie beyond two deviations.
        assert float((table.abs() > 2 * std).float().mean()) == pytest.approx(0.0455, abs=0.006)


@pytest.mark.parametrize("encoder", ALL, ids=str)
def test_a_seed_starts_alike_whatever_is_beside_it(encoder: Encoder) -> None:
    log = corner_cases()
    together = encoder.start(log, [4, 9, 2], "cpu").raw()
    for place, seed in enumerate([4, 9, 2]):
        alone = encoder.start(log, [seed], "cpu").raw()
        assert torch.equal(together.users[place], alone.users[0])
        assert torch.equal(together.items[place], alone.items[0])
    assert not torch.equal(together.users[0], together.users[1])


def dense_propagation(log: Interactions, start: np.ndarray, layers: int) -> np.ndarray:
    """The mean of E, ÂE, …, Â^L E with every matrix written out."""
    size = log.n_users + log.n_items
    adjacency = np.zeros((size, size))
    adjacency[log.users, log.n_users + log.items] = 1
    adjacency += adjacency.T
    degree = adjacency.sum(1)
    scale = np.array([d**-0.5 if d else 0 for d in degree])
    normal = scale[:, None] * adjacency * scale
    return sum(np.linalg.matrix_power(normal, power) @ start for power in range(layers + 1)) / (layers + 1)


@given(seed=st.integers(0, 1000), layers=st.integers(0, 4), density=st.sampled_from([0.05, 0.3, 0.9]))
@settings(max_examples=30, deadline=None)
def test_lightgcn_is_the_mean_of_powers(seed: int, layers: int, density: float) -> None:
    """Sparse logs leave isolated users and items, whose vectors keep their share of layer 0 alone."""
    rng = np.random.default_rng(seed)
    n_users, n_items = rng.integers(1, 9, 2)
    log = Interactions.from_pairs(
        *np.nonzero(rng.random((n_users, n_items)) < density), n_users=int(n_users), n_items=int(n_items)
    )
    module = LightGCN(dim=3, layers=layers).start(log, [seed, seed + 1], "cpu")
    raw, got = module.raw().detach(), module().detach()
    for r in range(2):
        start = torch.cat([raw.users[r], raw.items[r]]).double().numpy()
        expected = dense_propagation(log, start, layers)
        np.testing.assert_allclose(torch.cat([got.users[r], got.items[r]]).numpy(), expected, atol=1e-6)
        lonely = np.flatnonzero(log.activity == 0)
        np.testing.assert_allclose(got.users[r][lonely], raw.users[r][lonely] / (layers + 1), rtol=1e-6)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_lightgcn_gradient_is_that_of_the_dense_product(layers: int) -> None:
    log = corner_cases(seed=2)
    module = LightGCN(dim=3, layers=layers).start(log, [0, 1], "cpu")
    g = torch.Generator().manual_seed(0)
    weight_users, weight_items = (
        torch.randn(2, log.n_users, 3, generator=g),
        torch.randn(2, log.n_items, 3, generator=g),
    )
    got = module()
    ((got.users**2 * weight_users).sum() + (got.items**3 * weight_items).sum()).backward()

    basis = torch.from_numpy(dense_propagation(log, np.eye(log.n_users + log.n_items), layers))
    for r in range(2):
        start = torch.cat([module.users[r], module.items[r]]).detach().double().requires_grad_()
        users, items = (basis @ start).split([log.n_users, log.n_items])
        ((users**2 * weight_users[r]).sum() + (items**3 * weight_items[r]).sum()).backward()
        mine = torch.cat([module.users.grad[r], module.items.grad[r]]).double()
        torch.testing.assert_close(mine, start.grad, atol=1e-5, rtol=1e-5)


def test_no_layers_is_matrix_factorisation() -> None:
    log = corner_cases()
    flat, mf = LightGCN(dim=5, layers=0).start(log, [3], "cpu")(), MF(dim=5).start(log, [3], "cpu")()
    assert torch.equal(flat.users, mf.users)
    assert torch.equal(flat.items, mf.items)


@pytest.mark.parametrize("encoder", ALL, ids=str)
def test_replicas_encode_as_they_do_alone(encoder: Encoder) -> None:
    """The sparse product of R·d columns may round otherwise than that of d."""
    log = corner_cases()
    together = encoder.start(log, [0, 1, 2], "cpu")()
    for r in range(3):
        alone = encoder.start(log, [r], "cpu")()
        torch.testing.assert_close(together.users[r], alone.users[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(together.items[r], alone.items[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("encoder", ALL, ids=str)
def test_recommended_scores_are_the_inner_products(encoder: Encoder) -> None:
    """What comes back first is the withheld square, and its score is that of the model's two vectors."""
    log, withheld = checkerboard()
    split = Split(log, None, withheld, "checkerboard")
    settings = Settings(epochs=20, batch=128, lr=0.03, weight_decay=1e-3)
    model = train(split, encoder, DynamicSampler(), [5], settings, ks=(1,), device="cpu").model
    table = model.recommend(k=3)
    users, items = table["user"].to_numpy().copy(), table["item"].to_numpy().copy()
    scores = (model.user_vectors[0, users] * model.item_vectors[0, items]).sum(-1)
    np.testing.assert_allclose(table["score"].to_numpy(), scores.numpy(), rtol=1e-5)
    first = table["rank"].to_numpy() == 1
    assert withheld.contains(users[first], items[first]).mean() >= 0.9


@pytest.mark.parametrize("make", [lambda: MF(dim=0), lambda: LightGCN(dim=0), lambda: LightGCN(layers=-1)])
def test_impossible_shapes_are_refused(make: type) -> None:
    with pytest.raises(InputError, match="must be at least"):
        make()
