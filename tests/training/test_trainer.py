"""The loop and the protocols: a replica is a run of its own, and no choice sees what it must not."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.simulate import simulate_log
from evenhand.data.splits import Split
from evenhand.encoders import MF, Encoder, LightGCN, Vectors
from evenhand.metrics.catalogue import RATES
from evenhand.metrics.evaluate import UserMetrics
from evenhand.objectives import BPR
from evenhand.samplers import (
    AUCSampler,
    BalancedSampler,
    DynamicSampler,
    GroupSampler,
    PopularitySampler,
    Sampler,
    UniformSampler,
)
from evenhand.samplers.base import Batch
from evenhand.testing import checkerboard, corner_cases
from evenhand.training import Fit, Settings, train
from evenhand.training.early_stopping import BestTest, BestValidation, LastEpoch, Race
from evenhand.training.engines.base import TorchEngine
from evenhand.training.settings import USUAL_PAIRS
from evenhand.training.trained import Trained
from evenhand.training.trainer import Trainer
from evenhand.utils import progress
from evenhand.utils.errors import InputError, RunError

CPU = torch.device("cpu")
SAMPLERS: list[Sampler] = [
    UniformSampler(),
    PopularitySampler(),
    GroupSampler(),
    BalancedSampler(),
    DynamicSampler(),
    AUCSampler(),
    AUCSampler(ecdf=16),
    AUCSampler(alpha="auto"),
]
ENCODERS: list[Encoder] = [MF(dim=8), LightGCN(dim=8)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def random_split(seed: int = 0, n_users: int = 30, n_items: int = 24) -> Split:
    """Two tastes with noise; a tenth each for validation and test."""
    rng = np.random.default_rng(seed)
    like = (np.arange(n_users)[:, None] % 2) == (np.arange(n_items) % 2)
    data = Interactions.from_pairs(
        *np.nonzero(rng.random((n_users, n_items)) < np.where(like, 0.5, 0.1)),
        n_users=n_users,
        n_items=n_items,
    )
    return data.split(test=0.2, validation=0.1, seed=seed)


def loop(
    log: Interactions,
    sampler: Sampler | list[Sampler],
    seeds: list[int],
    settings: Settings,
    *,
    encoder: Encoder | None = None,
    hot: np.ndarray | None = None,
    held_out: Interactions | None = None,
) -> Trainer:
    samplers = sampler if isinstance(sampler, list) else [sampler] * len(seeds)
    mask = np.zeros(log.n_items, dtype=bool) if hot is None else hot
    return Trainer(log, encoder or MF(dim=8), samplers, seeds, settings, CPU, hot=mask, held_out=held_out)


def after(epochs: int, running: Trainer) -> Vectors:
    for epoch in range(epochs):
        running.run_epoch(epoch)
    return running.finals()[0]


@pytest.mark.parametrize("encoder", [MF(dim=8), LightGCN(dim=8)], ids=["mf", "lightgcn"])
def test_the_tables_of_the_last_epochs_are_averaged(encoder: Encoder) -> None:
    """An epoch counts 4 / (3 + its number), and at least a tenth; what comes out is made of the mean."""
    running = loop(random_split().train, UniformSampler(), [4, 1], Settings(batch=100, average=True), encoder=encoder)
    mean = [torch.zeros_like(table).double() for table in running.model.raw()]
    for epoch in range(45):
        running.run_epoch(epoch)
        share = max(0.1, 4 / (4 + epoch))
        mean = [(1 - share) * old + share * new.detach() for old, new in zip(mean, running.model.raw(), strict=True)]
        vectors = running.model.encode(*(one.float() for one in mean))
        for mine, theirs in zip(running.finals()[0], vectors, strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)
    assert not torch.allclose(running.tables().users, running.model.users, atol=1e-3)


def test_the_mean_over_epochs_belongs_to_the_honest_protocol() -> None:
    for protocol, asked, used in (
        ("honest", None, True), ("paper", None, False), ("honest", False, False), ("paper", True, True)
    ):  # fmt: skip
        assert Settings(average=asked).under(protocol).average is used  # type: ignore[arg-type]


def test_epochs_that_leave_the_encoder_alone_do_not_count() -> None:
    running = loop(random_split().train, UniformSampler(), [4], Settings(batch=100, average=True))
    running.run_epoch(0)
    first = running.tables().users.clone()
    running.loss = SimpleNamespace(trains_encoder=False)  # type: ignore[assignment]
    running.add_to_average()
    assert torch.equal(running.tables().users, first)
    assert int(running.averaged) == 1


def spied(running: Trainer) -> list[tuple[Batch, Tensor]]:
    """Every batch of this loop, all replicas together, and what the samplers chose for it.

    Only the plain engine asks the samplers; the compiled one is held to it in test_engines.
    """
    running.engine = TorchEngine(running)
    seen: list[tuple[Batch, Tensor]] = []
    waiting: list[tuple[Batch, Tensor]] = []

    def spy(choose: Callable[[Batch], Tensor]) -> Callable[[Batch], Tensor]:
        def spying(batch: Batch) -> Tensor:
            chosen = choose(batch)
            waiting.append((batch, chosen))
            if len(waiting) == len(running.samplers):
                seen.append(together(waiting))
                waiting.clear()
            return chosen

        return spying

    for sampler in {id(one): one for one in running.samplers}.values():
        sampler.choose = spy(sampler.choose)  # type: ignore[method-assign]
    return seen


def together(calls: list[tuple[Batch, Tensor]]) -> tuple[Batch, Tensor]:
    parts = {
        field.name: torch.cat([getattr(batch, field.name) for batch, _ in calls])
        for field in fields(Batch)
        if field.name != "n"
    }
    return Batch(**parts, n=calls[0][0].n), torch.cat([chosen for _, chosen in calls])


# ---- replicas


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_replica_is_a_run_of_its_own(sampler: Sampler, encoder: Encoder) -> None:
    """It draws what it would draw alone, chooses the same, and learns the same to the last bit."""
    log, settings = random_split().train, Settings(batch=64)
    together = loop(log, sampler, [5, 0, 9], settings, encoder=encoder)
    choices = spied(together)
    vectors = after(2, together)
    for place, seed in enumerate([5, 0, 9]):
        single = loop(log, sampler, [seed], settings, encoder=encoder)
        own = spied(single)
        alone = after(2, single)
        for (batch, items), (own_batch, own_items) in zip(choices, own, strict=True):
            assert torch.equal(batch.users[place], own_batch.users[0])
            assert torch.equal(batch.uniforms[place], own_batch.uniforms[0])
            assert torch.equal(batch.shared[place], own_batch.shared[0])
            assert torch.equal(items[place], own_items[0])
        assert torch.equal(vectors.users[place], alone.users[0])
        assert torch.equal(vectors.items[place], alone.items[0])


def test_replicas_with_their_own_parameters_are_runs_of_their_own() -> None:
    log, settings = random_split().train, Settings(batch=64)
    samplers: list[Sampler] = [AUCSampler(), AUCSampler(alpha=1, beta=1, gamma=1), AUCSampler(alpha="auto")]
    vectors = after(2, loop(log, samplers, [0, 1, 2], settings))
    for r, sampler in enumerate(samplers):
        alone = after(2, loop(log, sampler, [r], settings))
        assert torch.equal(vectors.users[r], alone.users[0])


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_again_is_identical_with_any_number_of_threads(sampler: Sampler, encoder: Encoder) -> None:
    log, settings = random_split().train, Settings(batch=64)

    def vectors(threads: int) -> Vectors:
        torch.set_num_threads(threads)
        return after(2, loop(log, sampler, [0, 1], settings, encoder=encoder))

    first, again, wider = vectors(1), vectors(1), vectors(2)
    for other in (again, wider):
        assert torch.equal(first.users, other.users)
        assert torch.equal(first.items, other.items)
    assert not torch.equal(first.users[0], first.users[1])


# ---- one step, one epoch


@pytest.mark.parametrize("negatives", [1, 3])
def test_an_epoch_is_bpr_with_adam(negatives: int) -> None:
    """The same pairs and negatives through a plain model with torch's plain Adam, in double precision."""
    log = random_split().train
    settings = Settings(batch=50, negatives=negatives, weight_decay=1e-2, lr=0.02)
    running = loop(log, UniformSampler(), [4], settings)
    users, items = (t[0].detach().clone().double().requires_grad_() for t in running.model.raw())
    seen = spied(running)
    log_of_epoch = running.run_epoch(0)

    adam = torch.optim.Adam([users, items], lr=0.02, weight_decay=1e-2, foreach=False)
    losses = []
    for batch, chosen in seen:
        assert batch.positives is not None
        assert chosen.shape[-1] == negatives
        who = users[batch.users[0]]
        margin = (who * items[batch.positives[0]]).sum(-1, keepdim=True) - (who.unsqueeze(1) * items[chosen[0]]).sum(-1)
        loss = -torch.nn.functional.logsigmoid(margin).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    torch.testing.assert_close(running.finals()[0].users[0].double(), users.detach(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(running.finals()[0].items[0].double(), items.detach(), atol=1e-5, rtol=1e-4)
    assert log_of_epoch.loss[0] == pytest.approx(np.mean(losses), rel=1e-5)


def test_an_epoch_visits_every_pair_once_in_another_order() -> None:
    log = random_split().train
    running = loop(log, UniformSampler(), [0, 1], Settings(batch=32))
    seen = spied(running)

    def visited(replica: int) -> list[tuple[int, int]]:
        pairs = []
        for batch, _ in seen:
            assert batch.positives is not None
            pairs += list(zip(batch.users[replica].tolist(), batch.positives[replica].tolist(), strict=True))
        return pairs

    running.run_epoch(0)
    first, beside = visited(0), visited(1)
    seen.clear()
    running.run_epoch(1)
    every = sorted(zip(log.users.tolist(), log.items.tolist(), strict=True))
    assert sorted(first) == sorted(beside) == sorted(visited(0)) == every
    assert first != beside
    assert first != visited(0)


@pytest.mark.parametrize(
    ("batch", "drop_last", "sizes"),
    [(4, False, [4, 4, 2]), (4, True, [4, 4]), (5, True, [5, 5]), (64, True, [10]), (64, False, [10])],
)
def test_incomplete_batches(batch: int, drop_last: bool, sizes: list[int]) -> None:
    """Dropped on request, except that an epoch always has a step."""
    log = Interactions.from_pairs(np.arange(10) % 5, np.arange(10) // 5, n_items=6)
    running = loop(log, UniformSampler(), [0], Settings(batch=batch, drop_last=drop_last))
    seen = spied(running)
    running.run_epoch(0)
    assert [b.users.shape[1] for b, _ in seen] == sizes
    assert running.steps == len(sizes)


def test_milestones_lower_the_rate() -> None:
    log, _ = checkerboard(4, 6)
    running = loop(log, UniformSampler(), [0], Settings(lr=0.1, milestones=(1, 3)))
    rates: list[float] = []
    step = running.optimisers[0].step

    def spying(lr: list[float], *touched: Any) -> None:
        rates.extend(lr)
        step(lr, *touched)

    running.engine = TorchEngine(running)
    running.optimisers[0].step = spying  # type: ignore[method-assign]
    for epoch in range(4):
        running.run_epoch(epoch)
    assert rates == pytest.approx([0.1, 0.01, 0.01, 0.001])


@pytest.mark.parametrize("scores", ["raw", "propagated"])
def test_sampler_scores_choose_the_tables_the_sampler_sees(scores: str) -> None:
    log = random_split().train
    settings = Settings(batch=10_000, sampler_scores=scores)  # type: ignore[arg-type]
    running = loop(log, DynamicSampler(), [0], settings, encoder=LightGCN(dim=4))
    tables = {"raw": running.model.raw(), "propagated": running.model()}
    tables = {name: Vectors(*(t.detach().clone() for t in pair)) for name, pair in tables.items()}
    seen = spied(running)
    running.run_epoch(0)
    first, items = seen[0]
    for name, (users, vectors) in tables.items():
        sampler = running.samplers[0]
        expected = type(sampler).choose(sampler, replace(first, user_vectors=users, item_vectors=vectors))
        assert torch.equal(expected, items) == (name == scores)


# ---- diagnostics


def test_hot_share_of_uniform_negatives_is_the_share_of_hot_unobserved_items() -> None:
    log = random_split(n_users=60, n_items=40).train
    hot = np.arange(40) < 10
    running = loop(log, UniformSampler(), [0, 1], Settings(batch=10_000, negatives=20), hot=hot)
    own = np.bincount(log.users[hot[log.items]], minlength=60)
    share = (10 - own) / (40 - log.activity)
    expected = share[log.users].mean()
    got = running.run_epoch(0).hot_share
    draws = 20 * len(log)
    assert got == pytest.approx(expected, abs=4 * (expected / draws) ** 0.5)
    assert got[0] != got[1]


def test_false_share_counts_held_out_items_among_the_negatives() -> None:
    split = random_split(n_users=12, n_items=10)
    hot = np.arange(10) % 3 == 0
    running = loop(split.train, DynamicSampler(), [0, 1], Settings(batch=7), hot=hot, held_out=split.test)
    seen = spied(running)
    log = running.run_epoch(0)
    assert log.false_share is not None
    test = {(u, i) for u, i in zip(split.test.users.tolist(), split.test.items.tolist(), strict=True)}
    for r in range(2):
        false, hot_share = [], []
        for batch, items in seen:
            pairs = list(zip(batch.users[r].tolist(), items[r, :, 0].tolist(), strict=True))
            false.append(np.mean([p in test for p in pairs]))
            hot_share.append(np.mean([hot[i] for _, i in pairs]))
        assert log.false_share[r] == pytest.approx(np.mean(false))
        assert log.hot_share[r] == pytest.approx(np.mean(hot_share))
    assert log.false_share.max() > 0


def test_no_held_out_part_no_false_share() -> None:
    log = random_split().train
    assert loop(log, UniformSampler(), [0], Settings()).run_epoch(0).false_share is None
    nothing = log.take(np.zeros(len(log), dtype=bool))
    shares = loop(log, UniformSampler(), [0], Settings(), held_out=nothing).run_epoch(0).false_share
    assert shares is not None
    assert shares.tolist() == [0]


def test_automatic_alpha_is_reported_each_epoch() -> None:
    split = random_split()
    settings = Settings(epochs=4, batch=32, lr=0.05)
    done = train(split, MF(dim=8), AUCSampler(alpha="auto"), 2, settings, ks=(5,), device="cpu")
    alphas = np.array([record["alpha"] for record in done.model.history])
    assert alphas.shape == (4, 2)
    assert (alphas[-1] > 0.5).all()


# ---- what cannot be trained


@pytest.mark.parametrize("sampler", [UniformSampler(), AUCSampler()], ids=str)
def test_a_diverged_loss_stops_the_run(sampler: Sampler) -> None:
    running = loop(random_split().train, sampler, [0, 1], Settings(lr=1e20, batch=32))
    with pytest.raises(RunError, match=r"the loss became (inf|nan) in epoch 1; lower --lr"):
        running.run_epoch(0)


def test_users_with_everything_are_skipped_with_a_note() -> None:
    log = corner_cases()
    running = loop(log, UniformSampler(), [0], Settings(batch=16))
    seen = spied(running)
    running.run_epoch(0)
    assert running.notes == ("1 user has nothing left to sample as a negative; skipped.",)
    visited = torch.cat([batch.users[0] for batch, _ in seen])
    assert set(visited.tolist()) == set(range(9)) - {0, 2}  # user 2 has nothing to visit
    two = Interactions.from_pairs([0, 0, 1, 1, 2], [0, 1, 0, 1, 0])
    assert loop(two, UniformSampler(), [0], Settings()).notes == (
        "2 users have nothing left to sample as a negative; skipped.",
    )


def test_notes_reach_the_result() -> None:
    log = corner_cases()
    empty = log.take(np.zeros(len(log), dtype=bool))
    split = Split(log, None, empty, "all", notes=("a note of the split.",))
    done = train(split, MF(dim=2), UniformSampler(), 1, Settings(epochs=1), ks=(1,), device="cpu")
    assert done.notes == ("a note of the split.", "1 user has nothing left to sample as a negative; skipped.")
    assert done.results == {}


def test_nothing_to_train_on_is_refused() -> None:
    full = Interactions.from_pairs([0, 0, 1, 1], [0, 1, 0, 1])
    with pytest.raises(InputError, match="nothing to train on"):
        loop(full, UniformSampler(), [0], Settings())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"protocol": "honset"}, "unknown protocol 'honset'; did you mean 'honest'"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [1, 1]}, "all different"),
        ({"sampler": [UniformSampler()], "seeds": 2}, "2 seeds need as many samplers, but 1 were given"),
        ({"ks": (5, 25)}, "k = 25 is more than the catalogue's 24 items"),
        ({"device": "tpu9"}, "unknown device"),
    ],
)
def test_impossible_requests_are_refused(arguments: dict[str, object], match: str) -> None:
    usual: dict[str, object] = {"encoder": MF(), "sampler": UniformSampler(), "seeds": 1, "ks": (5,), "device": "cpu"}
    with pytest.raises(InputError, match=match):
        train(random_split(), **{**usual, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 0},
        {"batch": 0},
        {"negatives": 0},
        {"lr": 0},
        {"lr": float("inf")},
        {"weight_decay": -1},
        {"patience": 0},
        {"milestones": (0,)},
        {"milestones": (5, 3)},
        {"sampler_scores": "cooked"},
    ],
)
def test_impossible_settings_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Settings(**change)  # type: ignore[arg-type]


# ---- which epoch counts


def evaluated(k: int = 10, **values: float) -> UserMetrics:
    """Metrics of one user, with the bias rates as fractions of a hundred."""
    plain = {n: np.array([v]) for n, v in values.items() if n not in RATES}
    whole = {n: np.array([0.0]) for n in ("precision", "recall", "f1", "ndcg", "fpr", "fnr", "fpr_true")}
    above = {f"{n}.above": np.array([100 * values.get(n, 0.0)]) for n in RATES}
    below = {f"{n}.below": np.array([100.0]) for n in RATES}
    return UserMetrics(k, np.array([0]), {**whole, **plain}, {**above, **below})


def numbered(epoch: int, replicas: int) -> Vectors:
    """Vectors that tell their epoch."""
    return Vectors(torch.full((replicas, 2, 1), float(epoch)), torch.full((replicas, 3, 1), float(epoch)))


def test_each_replica_stops_and_keeps_its_best_epoch() -> None:
    """Patience 2, from given tables. The second is done after epoch 3, so its late rise in epoch 5 comes too late."""
    ndcg = {0: [0.1, 0.2, 0.1, 0.3, 0.3, 0.2, 0.9], 1: [0.1, 0.4, 0.3, 0.4, 0.1, 0.8, 0.8]}
    chosen = BestValidation(2, patience=2, free_start=False)
    ran = []
    for epoch in range(7):
        running = chosen.running.tolist()
        ran.append(running)
        scored = [{10: evaluated(ndcg=ndcg[r][epoch])} for r in running]
        chosen.see(epoch, scored, numbered(epoch, len(running)))
        if chosen.finished:
            break
    assert ran == [[0, 1]] * 4 + [[0]] * 2
    assert chosen.epoch.tolist() == [3, 1]
    assert chosen.value.tolist() == [0.3, 0.4]
    assert chosen.vectors is not None
    assert chosen.vectors.users[:, 0, 0].tolist() == [3, 1]
    assert chosen.vectors.items[:, 0, 0].tolist() == [3, 1]


@pytest.mark.parametrize(
    ("steps", "earlier", "ran"),
    [
        (1000, (), [2] * 11 + [1]),  # from epoch 10 on the second has .5 against .8, and is given up after epoch 11
        (900, (), [2] * 12),  # ten thousand steps are twelve epochs
        (1000, (0.9,), [2] * 10 + [0] * 2),  # what ran before had more than both
    ],
)
def test_in_a_race_those_far_behind_are_given_up(steps: int, earlier: tuple[float, ...], ran: list[int]) -> None:
    ndcg = [[0.5] * 10 + [0.8] * 2, [0.47] * 12]
    chosen, running = BestValidation(2, patience=None, race=Race(steps, earlier)), []
    for epoch in range(12):
        alive = chosen.running.tolist() if not chosen.finished else []
        running.append(len(alive))
        if alive:
            scored = [{10: evaluated(ndcg=ndcg[r][epoch])} for r in alive]
            chosen.see(epoch, scored, numbered(epoch, len(alive)))
    assert running == ran


def test_from_random_tables_the_first_epochs_cost_no_patience() -> None:
    """A model that gets worse before it gets better: with patience 2 nothing stops before epoch 6."""
    dips, falls = [0.5, 0.1, 0.2, 0.3, 0.4, 0.6, 0.5, 0.5], [0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.9, 0.9]
    for values, seen, best in ((dips, 8, 5), (falls, 6, 0)):
        chosen, epoch = BestValidation(1, patience=2), 0
        while not chosen.finished:
            chosen.see(epoch, [{10: evaluated(ndcg=values[epoch])}], numbered(epoch, 1))
            epoch += 1
        assert (epoch, chosen.epoch.tolist()) == (seen, [best])


def test_without_patience_the_best_epoch_of_all_counts() -> None:
    chosen = BestValidation(1, patience=None)
    for epoch, value in enumerate([0.5, 0.1, 0.1, 0.1, 0.6, 0.1]):
        chosen.see(epoch, [{10: evaluated(ndcg=value)}], numbered(epoch, 1))
        assert not chosen.finished
    assert chosen.epoch.tolist() == [4]


def test_kept_vectors_do_not_change_with_the_model() -> None:
    """MF hands out its very parameters; what was chosen must not train on."""
    live = numbered(1, 1)
    for chosen in (BestValidation(1, patience=3), BestTest(1, (10,)), LastEpoch(1)):
        live.users.fill_(1)
        chosen.see(0, [{10: evaluated(ndcg=0.5, precision=0.5)}], live)
        live.users.fill_(7)
        assert chosen.vectors is not None
        assert chosen.vectors.users.unique().tolist() == [1]


def test_paper_takes_the_best_of_each_metric_and_rates_at_the_best_precision() -> None:
    at = {
        5: [
            {
                "precision": 0.2,
                "recall": 0.5,
                "ndcg": 0.1,
                "f1": 0.3,
                "fpr": 0.8,
                "fnr": 0.5,
                "ohr": 0.1,
                "ucr": 0.9,
            },
            {
                "precision": 0.4,
                "recall": 0.3,
                "ndcg": 0.2,
                "f1": 0.2,
                "fpr": 0.6,
                "fnr": 0.7,
                "ohr": 0.6,
                "ucr": 0.8,
            },
            {
                "precision": 0.4,
                "recall": 0.1,
                "ndcg": 0.6,
                "f1": 0.1,
                "fpr": 0.6,
                "fnr": 0.9,
                "ohr": 0.2,
                "ucr": 0.1,
            },
        ],
        10: [
            {"precision": 0.7, "recall": 0.1, "ndcg": 0.1, "fpr": 0.3, "fnr": 0.9, "ohr": 0.3, "ucr": 0.7},
            {"precision": 0.1, "recall": 0.2, "ndcg": 0.2, "fpr": 0.9, "fnr": 0.8, "ohr": 0.0, "ucr": 0.0},
            {"precision": 0.2, "recall": 0.3, "ndcg": 0.3, "fpr": 0.8, "fnr": 0.7, "ohr": 0.1, "ucr": 0.0},
        ],
    }
    chosen = BestTest(1, (5, 10))
    for epoch in range(3):
        chosen.see(epoch, [{k: evaluated(k, **at[k][epoch]) for k in at}], numbered(epoch, 1))
    five, ten = (chosen.results()[k][0].metrics for k in (5, 10))
    best = {"precision": 0.4, "recall": 0.5, "f1": 0.3, "ndcg": 0.6, "fpr": 0.6, "fnr": 0.5}
    assert {name: five[name] for name in best} == best
    # Of equal precision the first epoch counts: not the third, whose rates look better.
    assert (five["ohr"], five["ucr"]) == pytest.approx((0.6, 0.8))
    assert (ten["precision"], ten["recall"], ten["ndcg"]) == (0.7, 0.3, 0.3)
    assert (ten["ohr"], ten["ucr"]) == pytest.approx((0.3, 0.7))
    # The model itself is that of the best precision at the first k.
    assert chosen.epoch.tolist() == [1]
    assert chosen.vectors is not None
    assert chosen.vectors.users.unique().tolist() == [1]


# ---- the protocols

SETTINGS = Settings(epochs=8, batch=64, lr=0.03, patience=2)


def trained(split: Split, protocol: str, **arguments: object) -> Fit:
    return train(
        split,
        MF(dim=8),
        DynamicSampler(),
        [0, 1],
        SETTINGS,
        protocol=protocol,
        ks=(3, 5),
        device="cpu",
        **arguments,  # type: ignore[arg-type]
    )


def shuffled(part: Interactions, avoid: Interactions) -> Interactions:
    """As many pairs, others: anything outside `avoid`."""
    free = np.ones((part.n_users, part.n_items), dtype=bool)
    free[avoid.users, avoid.items] = False
    free[part.users, part.items] = False
    users, items = np.nonzero(free)
    pick = np.random.default_rng(1).permutation(len(users))[: len(part)]
    return Interactions.from_pairs(users[pick], items[pick], n_users=part.n_users, n_items=part.n_items)


def test_honest_never_looks_at_test_before_the_end() -> None:
    split = random_split()
    assert split.validation is not None
    other = replace(split, test=shuffled(split.test, split.consumed))
    one, two = trained(split, "honest"), trained(other, "honest")
    assert one.epochs == two.epochs
    assert one.validation == two.validation
    assert one.model.best == two.model.best
    assert torch.equal(one.model.user_vectors, two.model.user_vectors)
    assert torch.equal(one.model.item_vectors, two.model.item_vectors)
    dropped = [{k: v for k, v in r.items() if k != "seconds"} for r in one.model.history]
    assert dropped == [{k: v for k, v in r.items() if k != "seconds"} for r in two.model.history]
    assert one.results[5][0].metrics["precision"] != two.results[5][0].metrics["precision"]


def test_honest_keeps_the_best_validation_epoch_and_its_seed() -> None:
    done = trained(random_split(), "honest")
    epochs, values = [], []
    for r in range(2):
        best = 0
        ndcg = [record["metrics"]["ndcg@10"][r] for record in done.model.history]
        for epoch, value in enumerate(ndcg):
            if epoch - max(best, 3) > 2:  # out of patience since the epoch before
                break
            best = epoch if value > ndcg[best] else best
        epochs.append(best + 1)
        values.append(ndcg[best])
    assert done.epochs == tuple(epochs)
    assert done.validation == pytest.approx(tuple(values))
    assert done.model.best == int(np.argmax(values))


def test_honest_masks_train_and_validation_when_test_is_evaluated() -> None:
    split = random_split()
    assert split.validation is not None
    table = trained(split, "honest").model.recommend(k=5)
    users, items = table["user"].to_numpy(), table["item"].to_numpy()
    assert not split.train.contains(users, items).any()
    assert not split.validation.contains(users, items).any()


def test_paper_does_not_depend_on_validation() -> None:
    """The same train and test with another validation part, and with none."""
    split = random_split()
    assert split.validation is not None
    fits = [
        trained(replace(split, validation=part), "paper", hot="honest")
        for part in (split.validation, shuffled(split.validation, split.consumed.union(split.test)), None)
    ]
    for other in fits[1:]:
        assert other.epochs == fits[0].epochs
        assert torch.equal(other.model.user_vectors, fits[0].model.user_vectors)
        for k in (3, 5):
            for mine, theirs in zip(other.results[k], fits[0].results[k], strict=True):
                assert mine.metrics == pytest.approx(theirs.metrics, nan_ok=True)
    assert fits[0].validation is None


def test_paper_trains_every_epoch_and_reports_the_best() -> None:
    split = random_split()
    done = trained(split, "paper")
    assert len(done.model.history) == 8
    for k in (3, 5):
        for r in range(2):
            for name in ("precision", "recall", "ndcg"):
                seen = [record["metrics"][f"{name}@{k}"][r] for record in done.model.history]
                assert done.results[k][r].metrics[name] == max(seen)
            best = int(np.argmax([record["metrics"][f"precision@{k}"][r] for record in done.model.history]))
            for name in ("ohr", "ocr", "uhr", "ucr"):
                at_best = done.model.history[best]["metrics"][f"{name}@{k}"][r]
                assert done.results[k][r].metrics[name] == pytest.approx(at_best, nan_ok=True)


def test_without_validation_the_last_epoch_counts() -> None:
    split = replace(random_split(), validation=None)
    done = trained(split, "honest")
    assert done.epochs == (8, 8)
    assert done.validation is None
    expected = after(8, loop(split.train, DynamicSampler(), [0, 1], SETTINGS.under("honest", MF(), None, BPR())))
    assert torch.equal(done.model.user_vectors, expected.users)


def test_on_epoch_hears_every_epoch() -> None:
    heard: list[tuple[int, int]] = []
    done = trained(random_split(), "paper", on_epoch=lambda n, most, record: heard.append((n, most)))
    assert heard == [(n, 8) for n in range(1, 9)]
    assert [record["epoch"] for record in done.model.history] == list(range(1, 9))


def test_the_usual_decay_falls_as_pairs_grow_where_every_row_moves() -> None:
    small, large = (simulate_log(n, 300, 20 * n, seed=0) for n in (400, 20_000))
    assert len(small) < USUAL_PAIRS < len(large)
    for encoder in (MF(), LightGCN()):
        assert Settings().under("paper", encoder, small, BPR()).weight_decay == encoder.weight_decay
        found = Settings().under("paper", encoder, large, BPR()).weight_decay
        assert found == pytest.approx(encoder.weight_decay * USUAL_PAIRS / len(large), rel=0.01)
    assert Settings(updates="sparse").under("paper", MF(), large, BPR()).weight_decay == MF.weight_decay
    assert Settings(weight_decay=0.1).under("paper", MF(), large, BPR()).weight_decay == 0.1


@pytest.mark.parametrize("batch", [7, 64])
def test_the_automatic_alpha_of_compiled_steps_is_that_of_the_formula(batch: int) -> None:
    """α follows the mean of what the probes won: over the positives of a batch, the last and smaller one too."""
    log = random_split().train
    assert len(log) % batch
    settings = Settings(batch=batch)
    found = []
    for engine in ("auto", "torch"):
        running = loop(log, AUCSampler(alpha="auto", probes=3), [0, 1], replace(settings, engine=engine))
        found.append((running.engine.name, running.run_epoch(0).sampler["alpha"]))
    assert [name for name, _ in found] == ["numba", "torch"]
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)
    assert (found[0][1] != 0.5).all()


def test_which_setting_is_blamed() -> None:
    parts = random_split()
    for settings, name in ((Settings(weight_decay=1e30), "--weight-decay"), (Settings(lr=1e30), "--lr")):
        with pytest.raises(RunError, match=rf"lower {name}, as 1e\+30 is probably too high"):
            train(parts, MF(dim=4), UniformSampler(), 1, settings)


def test_a_refit_trains_for_the_mean_of_the_best_epochs() -> None:
    """Not the largest, nor that of the seed that recommends: (1 + 2 + 6) / 3."""
    parts, settings = random_split(), Settings(epochs=6, patience=None)
    fitted = replace(train(parts, MF(dim=4), UniformSampler(), 3, settings), epochs=(1, 2, 6))
    method = Trained(UniformSampler(), encoder=MF(dim=4), settings=settings)
    assert len(method.refit(fitted, parts).history) == 3


def test_fit_calls_a_function_after_each_epoch() -> None:
    seen: list[tuple[int, int, float]] = []
    settings = Settings(epochs=2)
    eh.fit(
        random_split(), "rns", seeds=1, settings=settings, k=5,
        progress=lambda done, most, record: seen.append((done, most, record["loss"][0])),
    )  # fmt: skip
    assert [one[:2] for one in seen] == [(1, 2), (2, 2)]
    assert all(0 < loss < 1 for *_, loss in seen)


@pytest.mark.parametrize(("compiles", "epochs"), [(True, 5), (False, 1)])
def test_the_seconds_of_training_are_not_those_of_compiling(
    compiles: bool, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(progress, "_compiled_for", [])

    def wait(*_: Any) -> None:
        with progress.compiling() if compiles else nullcontext():
            now[0] += 100

    split = simulate_log(30, 20, 200, seed=0).split(seed=0)
    fit = train(split, MF(dim=8), UniformSampler(), 1, Settings(epochs=5, seconds=10), device="cpu", on_epoch=wait)
    assert len(fit.history) == epochs
    assert fit.seconds == (0 if compiles else 100)
