"""One conformance suite over every sampler, and the stated distribution of each, by chi-square."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.encoders import MF, Encoder, LightGCN
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    BoundSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
    bind,
)
from evenhand.samplers.base import Batch
from evenhand.samplers.static import StaticBound
from evenhand.testing import check_learns, check_sampler, checkerboard, chi_square_p, corner_cases
from evenhand.utils.errors import InputError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


THREE_GROUPS = tuple(i % 3 for i in range(12))
SAMPLERS: dict[str, Sampler] = {
    "rns": UniformSampler(),
    "pns": PopularitySampler(),
    "pns-flat": PopularitySampler(exponent=0),
    "dns-1": DynamicSampler(candidates=1),
    "dns-2": DynamicSampler(candidates=2),
    "dns-5": DynamicSampler(),
    "group": GroupSampler(),
    "group-items": GroupSampler(shares="items"),
    "group-given": GroupSampler(groups=THREE_GROUPS, shares=(0.5, 0.2, 0.3)),
    "balanced": BalancedSampler(),
    "auc": AUCSampler(),
    "auc-ecdf": AUCSampler(ecdf=16),
    "auc-half": AUCSampler(alpha=0.5),
    "auc-one": AUCSampler(alpha=1),
    "auc-auto": AUCSampler(alpha="auto"),
    "auc-beta0": AUCSampler(beta=0),
    "auc-gamma0": AUCSampler(gamma=0),
    "auc-gamma1": AUCSampler(gamma=1),
    "auc-one-candidate": AUCSampler(candidates=1, probes=1),
}
BESIDE: dict[str, tuple[Sampler, ...]] = {
    "auc": (AUCSampler(alpha=0.9, beta=0.5, gamma=0.3), AUCSampler(alpha="auto", beta=0, gamma=1)),
    "auc-ecdf": (AUCSampler(alpha=1, beta=2, ecdf=16), AUCSampler(gamma=1, ecdf=16)),
    "auc-auto": (AUCSampler(alpha=0.6), AUCSampler(alpha="auto", gamma=0.5)),
}
DRAWS = 20_000
Distribution = Callable[[Interactions, int], np.ndarray]


@pytest.mark.parametrize("name", SAMPLERS)
def test_keeps_every_promise(name: str) -> None:
    check_sampler(SAMPLERS[name], beside=BESIDE.get(name, ()))


@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("name", [n for n in SAMPLERS if n != "group-given"])
def test_brings_the_withheld_item_back(name: str, encoder: Encoder) -> None:
    check_learns(SAMPLERS[name], encoder, epochs=12)


@pytest.mark.parametrize("n_users", [4, 10])
def test_checkerboard_by_hand(n_users: int) -> None:
    train, withheld = checkerboard(n_users, 6)
    assert train.row(0).tolist() == [2, 4]
    assert train.row(1).tolist() == [3, 5]
    assert withheld.row(0).tolist() == [0]
    assert withheld.row(3).tolist() == [3]
    assert train.popularity.min() >= 1
    assert len(train) == 2 * n_users


# ---- the stated distributions


def empirical(sampler: Sampler, train: Interactions, user: int) -> np.ndarray:
    g = torch.Generator().manual_seed(11)
    vectors = torch.randn(train.n_users, 3, generator=g), torch.randn(train.n_items, 3, generator=g)
    items = sampler.bind(train).sample(torch.full((DRAWS,), user), *vectors, generator=g)
    return np.bincount(items.flatten().numpy(), minlength=train.n_items)


def unobserved(train: Interactions, user: int) -> np.ndarray:
    left = np.ones(train.n_items)
    left[train.row(user)] = 0
    return left


def popularity_law(exponent: float) -> Distribution:
    def distribution(train: Interactions, user: int) -> np.ndarray:
        return np.where(train.popularity > 0, train.popularity.astype(float) ** exponent, 0) * unobserved(train, user)

    return distribution


def group_law(groups: np.ndarray, shares: np.ndarray) -> Distribution:
    def distribution(train: Interactions, user: int) -> np.ndarray:
        left = unobserved(train, user)
        size = np.bincount(groups, weights=left, minlength=len(shares))
        return left * (shares / np.maximum(size, 1))[groups]

    return distribution


def rank_law(candidates: int) -> Distribution:
    """(j/n)^M - ((j-1)/n)^M for the j-th lowest score of the n unobserved items."""

    def distribution(train: Interactions, user: int) -> np.ndarray:
        g = torch.Generator().manual_seed(11)
        users, items = torch.randn(train.n_users, 3, generator=g), torch.randn(train.n_items, 3, generator=g)
        scores = (items @ users[user]).numpy()
        left = np.flatnonzero(unobserved(train, user))
        place = np.arange(len(left) + 1) / len(left)
        weights = np.zeros(train.n_items)
        weights[left[np.argsort(scores[left])]] = np.diff(place**candidates)
        return weights

    return distribution


def hot_cold(shares: str) -> Distribution:
    def distribution(train: Interactions, user: int) -> np.ndarray:
        groups = hot_items(train.popularity).astype(int)
        weights = train.popularity if shares == "interactions" else np.ones(train.n_items)
        return group_law(groups, np.bincount(groups, weights=weights))(train, user)

    return distribution


DISTRIBUTIONS: dict[str, tuple[Sampler, Distribution]] = {
    "rns": (UniformSampler(), unobserved),
    "pns": (PopularitySampler(), popularity_law(0.75)),
    "pns-1": (PopularitySampler(exponent=1), popularity_law(1)),
    "group": (GroupSampler(), hot_cold("interactions")),
    "group-items": (GroupSampler(shares="items"), hot_cold("items")),
    "group-given": (
        GroupSampler(groups=THREE_GROUPS, shares=(0.5, 0.2, 0.3)),
        group_law(np.array(THREE_GROUPS), np.array([0.5, 0.2, 0.3])),
    ),
    "dns-1": (DynamicSampler(candidates=1), rank_law(1)),
    "dns-2": (DynamicSampler(candidates=2), rank_law(2)),
    "dns-5": (DynamicSampler(candidates=5), rank_law(5)),
    "auc-as-dns": (AUCSampler(alpha=0.5, beta=0, candidates=2), rank_law(2)),
    "auc-as-dns-1": (AUCSampler(alpha=1, beta=0, gamma=1, candidates=5), rank_law(5)),
    "auc-one-candidate": (AUCSampler(candidates=1), unobserved),
}


@pytest.mark.parametrize("user", [4, 5])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_by_the_stated_law(name: str, user: int) -> None:
    sampler, distribution = DISTRIBUTIONS[name]
    train = corner_cases(seed=3)
    assert chi_square_p(empirical(sampler, train, user), distribution(train, user)) > 1e-4


def test_chi_square_would_notice() -> None:
    """The test above has teeth: DNS with a pool of 2 is not taken for one of 1 or 3, nor RNS for PNS."""
    train = corner_cases(seed=3)
    counts = empirical(DynamicSampler(candidates=2), train, 4)
    assert chi_square_p(counts, rank_law(1)(train, 4)) < 1e-6
    assert chi_square_p(counts, rank_law(3)(train, 4)) < 1e-6
    assert chi_square_p(empirical(UniformSampler(), train, 4), popularity_law(0.75)(train, 4)) < 1e-6


def zero_popularity() -> Interactions:
    """Items 3 and 4 are nobody's."""
    return Interactions.from_pairs([0, 0, 1, 1, 2], [0, 1, 1, 2, 0], n_users=4, n_items=5)


@pytest.mark.parametrize("exponent", [0, 0.75])
def test_popularity_never_draws_an_item_without_data(exponent: float) -> None:
    train = zero_popularity()
    counts = empirical(PopularitySampler(exponent=exponent), train, 2)
    assert set(np.flatnonzero(counts)) == {1, 2}
    assert counts[0] == counts[3] == counts[4] == 0


def test_popularity_refuses_a_user_with_only_dead_items_left() -> None:
    train = Interactions.from_pairs([0, 0, 1], [0, 1, 0], n_users=2, n_items=3)
    assert PopularitySampler().bind(train).eligible.tolist() == [False, True]
    assert UniformSampler().bind(train).eligible.tolist() == [True, True]


def test_exhausted_group_is_redrawn() -> None:
    """User 0 owns all of group 0, so its share of 0.6 is dealt out among the other two as 1 : 3."""
    train = Interactions.from_pairs([0, 0, 0, 1], [0, 3, 1, 5], n_users=3, n_items=6)
    sampler = GroupSampler(groups=(0, 1, 2, 0, 1, 2), shares=(0.6, 0.1, 0.3))
    counts = empirical(sampler, train, 0)
    assert chi_square_p(counts, np.array([0, 0, 0.375, 0, 0.25, 0.375])) > 1e-4
    whole = empirical(sampler, train, 2)
    assert chi_square_p(whole, np.array([0.3, 0.05, 0.15, 0.3, 0.05, 0.15])) > 1e-4


def test_group_without_share_is_never_drawn_and_may_leave_nothing() -> None:
    train = Interactions.from_pairs([0, 0, 1], [0, 1, 0], n_users=2, n_items=4)
    bound = GroupSampler(groups=(0, 0, 1, 1), shares=(1.0, 0.0)).bind(train)
    assert bound.eligible.tolist() == [False, True]
    assert set(bound.sample(torch.ones(200, dtype=torch.int64)).flatten().tolist()) == {1}


@pytest.mark.parametrize("uniform", [0.0, 1 - 2.0**-53])
@pytest.mark.parametrize("name", SAMPLERS)
def test_extreme_uniforms(name: str, uniform: float) -> None:
    """The ends of [0, 1) are draws like any other."""
    train = corner_cases()
    bound = SAMPLERS[name].bind(train)
    users = torch.arange(train.n_users)[bound.eligible]
    batch = Batch(
        users=users.unsqueeze(0),
        positives=users.unsqueeze(0) % train.n_items,
        uniforms=torch.full((1, len(users), bound.width(2)), uniform, dtype=torch.float64),
        shared=torch.full((1, bound.shared_width), uniform, dtype=torch.float64),
        user_vectors=torch.ones(1, train.n_users, 2),
        item_vectors=torch.ones(1, train.n_items, 2),
        n=2,
    )
    items = bound.choose(batch)[0]
    assert items.shape == (len(users), 2)
    assert not train.contains(users.numpy()[:, None], items.numpy()).any()


# ---- what is refused


@pytest.mark.parametrize(
    ("pair", "match"),
    [
        ((DynamicSampler(candidates=2), DynamicSampler(candidates=3)), "agree on 'candidates'"),
        ((AUCSampler(), AUCSampler(probes=3)), "agree on 'probes'"),
        ((AUCSampler(), AUCSampler(ecdf=8)), "agree on 'ecdf'"),
        ((PopularitySampler(), PopularitySampler(exponent=1)), "agree on 'exponent'"),
        ((GroupSampler(), GroupSampler(shares="items")), "agree on 'shares'"),
        ((UniformSampler(), DynamicSampler()), "same kind of sampler"),
    ],
)
def test_replicas_that_cannot_share_a_draw_are_refused(pair: tuple[Sampler, Sampler], match: str) -> None:
    with pytest.raises(InputError, match=match):
        bind(pair, corner_cases())


@pytest.mark.parametrize(
    "make",
    [
        lambda: PopularitySampler(exponent=-1),
        lambda: DynamicSampler(candidates=0),
        lambda: DynamicSampler(candidates=2.5),
        lambda: AUCSampler(candidates=2.5),
        lambda: AUCSampler(probes=0),
        lambda: AUCSampler(alpha=0.4),
        lambda: AUCSampler(alpha=1.1),
        lambda: AUCSampler(alpha="always"),
        lambda: AUCSampler(beta=-0.1),
        lambda: AUCSampler(beta=float("nan")),
        lambda: AUCSampler(gamma=2),
        lambda: AUCSampler(ecdf=0),
        lambda: AUCSampler(ecdf="all"),
        lambda: GroupSampler(shares="users"),
        lambda: GroupSampler(shares=(0.0, 0.0)),
        lambda: GroupSampler(groups=(0, -1)),
        lambda: GroupSampler(groups=(0, 1, 1)).bind(corner_cases()),
        lambda: GroupSampler(groups=THREE_GROUPS, shares=(0.5, 0.5)).bind(corner_cases()),
        lambda: UniformSampler().bind(Interactions.from_pairs([0], [0])),
    ],
)
def test_impossible_parameters_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize(
    ("users", "n", "vectors", "match"),
    [
        ([0, 99], 1, True, "user indices must lie in 0…8"),
        ([-1], 1, True, "user indices must lie in 0…8"),
        ([4], 0, True, "n must be at least 1"),
        ([4], 1, False, r"user_vectors of shape \[9, d\]"),
        ([0], 1, True, "user index 0 has no item that could be a negative"),
    ],
)
def test_sample_refuses_what_makes_no_sense(users: list[int], n: int, vectors: bool, match: str) -> None:
    tables = (torch.zeros(9, 2), torch.zeros(12, 2)) if vectors else ()
    with pytest.raises(InputError, match=match):
        DynamicSampler().bind(corner_cases()).sample(torch.tensor(users), *tables, n=n)


def test_sample_serves_one_model() -> None:
    with pytest.raises(InputError, match="bound for several replicas"):
        bind([UniformSampler()] * 2, corner_cases()).sample(torch.tensor([4]))


# ---- the shipped checks catch what they are for


@dataclass(frozen=True)
class Broken(Sampler):
    """Draws uniformly, then breaks one promise."""

    how: str = ""

    @classmethod
    def bind_replicas(cls, replicas: list["Broken"], train: Interactions, device: str) -> BoundSampler:
        distribution = UniformSampler().bind(train).distribution  # type: ignore[attr-defined]
        return BrokenBound(replicas[0].how, distribution, train, device, len(replicas))


class BrokenBound(StaticBound):
    def __init__(self, how: str, distribution: object, train: Interactions, device: str, replicas: int) -> None:
        super().__init__(distribution, train, device, replicas)  # type: ignore[arg-type]
        self.how, self.train, self.calls = how, train, 0

    @property
    def eligible(self) -> Tensor:
        return torch.ones(self.n_users, dtype=torch.bool) if self.how == "eligible" else super().eligible

    def choose(self, batch: Batch) -> Tensor:
        self.calls += 1
        items = super().choose(batch)
        if self.how == "observed" and batch.users[0, -1] != 1:  # user 1, with one item left, has its own check
            items[0, -1] = int(self.train.row(int(batch.users[0, -1]))[0])
        if self.how == "shape":
            items = items[..., :1]
        if self.how == "dtype":
            items = items.int()
        if self.how == "seed":
            items = super().choose(Batch(**{**vars(batch), "uniforms": torch.rand_like(batch.uniforms)}))
        if self.how == "constant":
            items = super().choose(Batch(**{**vars(batch), "uniforms": torch.zeros_like(batch.uniforms)}))
        if self.how == "replicas" and self.replicas > 1:
            items = items.flip(0)
        if self.how == "memory" and self.calls > 3:
            items = super().choose(Batch(**{**vars(batch), "uniforms": 1 - batch.uniforms}))
        return items


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("observed", "own item was returned"),
        ("shape", "shape"),
        ("dtype", "not int64"),
        ("seed", "same seed gave another draw"),
        ("constant", "another seed gave the same draw"),
        ("eligible", "has every item, yet is eligible"),
        ("replicas", "otherwise than it does alone"),
        ("memory", "loaded state continues otherwise"),
    ],
)
def test_check_sampler_catches(how: str, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        check_sampler(Broken(how))


def test_check_sampler_accepts_the_unbroken_twin() -> None:
    check_sampler(Broken())
    check_learns(Broken())


def test_check_learns_catches_a_sampler_that_learns_the_wrong_colour() -> None:
    groups = tuple(i % 2 for i in range(40))
    with pytest.raises(AssertionError, match="of the withheld items came first"):
        check_learns(GroupSampler(groups=groups, shares=(1.0, 0.0)))
