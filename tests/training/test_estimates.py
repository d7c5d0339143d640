"""What is said before training: the engine, the memory and what would fit instead; and judging a sample."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import MF, LightGCN
from evenhand.experiments.fit import explained
from evenhand.methods import METHODS, parse
from evenhand.objectives import BPR
from evenhand.samplers import AUCSampler, UniformSampler
from evenhand.training import estimates as training_memory
from evenhand.training.estimates import Work, check_fits, work_of
from evenhand.training.evaluation import Evaluator
from evenhand.training.method import Conditions
from evenhand.training.run import train
from evenhand.training.settings import Settings
from evenhand.training.trainer import Trainer
from evenhand.utils import memory
from evenhand.utils.errors import InputError, RunError
from run_cli import TINY, evenhand

CPU = torch.device("cpu")
LARGE = Work(
    n_users=1_000_000,
    n_items=200_000,
    pairs=20_000_000,
    held_out=2_000_000,
    seeds=4,
    encoder=MF(dim=64),
    sampler=AUCSampler(ecdf="exact"),
    settings=Settings(),
    objective=BPR(),
    device="cpu",
)


def split(n_users: int = 60) -> Split:
    generator = np.random.default_rng(0)
    dense = generator.random((n_users, 40)) < 0.3
    users, items = dense.nonzero()
    return Interactions.from_pairs(users, items, n_users=n_users, n_items=40).split(seed=0)


# ---- the estimate


def test_the_needs_by_hand() -> None:
    """Plain MF with the plain engine, two seeds, three users and items, pairs counted once."""
    work = Work(2, 1, 10, 4, 2, MF(dim=8), UniformSampler(), Settings(batch=5, engine="torch"), BPR(), "cpu")
    tables = 2 * (2 + 1) * 8 * 4
    assert work.needs() == {
        "tables": tables,
        "Adam's mean and square": 2 * tables,
        "best epoch so far": tables,
        "gradients": tables + 3 * (3 * 5 * 2 * 8) * 4,
        # Two orders, a sort, users and items in both widths, a distribution; three numbers a user.
        "pairs and their order": 2 * 10 * 8 + 10 * (5 * 8 + 2 * 4) + 10 * 8 + 3 * 2 * 8,
        "evaluation": 2 * 1 * 4 + (2 * 10 + 4) * 16,
    }
    assert work.total == sum(work.needs().values())


def test_exact_ranks_need_a_copy_of_the_items_and_sampled_ones_hardly_anything() -> None:
    exact, sampled = LARGE.needs()["ranks"], replace(LARGE, sampler=AUCSampler(ecdf=64)).needs()["ranks"]
    assert exact - sampled >= 4 * (200_000 - 64) * 64 * 4
    assert "ranks" not in replace(LARGE, sampler=UniformSampler()).needs()


def test_every_seed_costs_its_tables_and_its_order() -> None:
    more = replace(LARGE, seeds=5).total - LARGE.total
    assert more >= 4 * 1_200_000 * 64 * 4 + 20_000_000 * 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)])
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_the_engine_is_the_one_that_training_takes(method: str, encoder: Any, engine: Any) -> None:
    one, parts = parse(method), split()
    settings = Settings(engine=engine).under("honest", encoder)
    loop = Trainer(
        parts.train,
        encoder,
        [one.sampler],
        [0],
        settings,
        CPU,
        hot=np.zeros(40, bool),
        objective=one.objective,
    )
    work = work_of(parts.train, None, encoder, [one.sampler], settings, one.objective, CPU)
    assert work.engine == loop.engine.name
    assert work.sparse == loop.optimisers[0].lazy


def test_on_a_gpu() -> None:
    fused = replace(LARGE, device="cuda")
    assert fused.engine == "triton"
    assert fused.needs()["gradients"] == 2 * fused.needs()["tables"]
    assert replace(fused, sampler=AUCSampler(alpha="auto")).engine == "graph"
    assert replace(fused, encoder=LightGCN(), settings=Settings(deterministic=True)).engine == "torch"


# ---- the refusal


def free(monkeypatch: pytest.MonkeyPatch, size: float | None) -> None:
    monkeypatch.setattr(training_memory, "available_bytes", lambda _: None if size is None else int(size))


def test_what_fits_passes_and_the_unknown_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, LARGE.total)
    check_fits(LARGE, CPU)
    free(monkeypatch, None)
    check_fits(LARGE, CPU)


def test_the_refusal_names_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, LARGE.total - 1)
    with pytest.raises(InputError) as caught:
        check_fits(LARGE, CPU)
    total, largest = memory.gigabytes(LARGE.total), memory.gigabytes(LARGE.needs()["Adam's mean and square"])
    assert str(caught.value) == (
        f"training needs about {total} of memory ({largest} for Adam's mean and square), but {total} are "
        "free on cpu; --ecdf 64 or --seeds 2 would fit."
    )


@pytest.mark.parametrize(
    ("smaller", "way"),
    [
        (replace(LARGE, seeds=1), "; --seeds 1 or --dim 8 would fit"),
        (replace(LARGE, seeds=1, encoder=MF(dim=4)), "; --seeds 1 --dim 4 would fit"),
    ],
)
def test_the_mildest_ways_come_first(monkeypatch: pytest.MonkeyPatch, smaller: Work, way: str) -> None:
    free(monkeypatch, smaller.total)
    with pytest.raises(InputError) as caught:
        check_fits(LARGE, CPU)
    assert way in str(caught.value)


def test_where_nothing_fits_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1000)
    with pytest.raises(InputError, match="take a machine with more, or leave out rare items"):
        check_fits(LARGE, CPU)


def test_training_asks_before_it_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    free(monkeypatch, 1000)
    with pytest.raises(InputError, match="training needs about"):
        train(split(), MF(dim=4), UniformSampler(), 1, Settings(epochs=1))
    ended = evenhand("train", "demo", "--out", tmp_path / "model", *TINY)
    assert ended.code == 2
    assert "training needs about" in ended.err
    assert len(ended.err.strip().splitlines()) == 1


# ---- judging a sample of users


def test_a_sample_of_users_is_evaluated_like_the_whole() -> None:
    parts = split()
    assert parts.validation is not None
    g = torch.Generator().manual_seed(0)
    vectors = torch.randn(1, 60, 4, generator=g), torch.randn(1, 40, 4, generator=g)
    whole = Evaluator(parts.validation, parts.train, np.zeros(40, bool), (10,))
    some = replace(whole, sample=7)
    assert len(some.users) == 7
    assert set(some.users) < set(whole.users)
    assert np.array_equal(some.users, np.sort(some.users))
    per_user = dict(zip(whole.users, whole(vectors)[0][10].per_user("ndcg"), strict=True))
    assert some(vectors)[0][10].per_user("ndcg").tolist() == [per_user[u] for u in some.users]
    assert some.notes == (f"Each epoch was evaluated on a sample of 7 of {len(whole.users)} users; test on all.",)
    assert replace(whole, sample=1000).notes == whole.notes == ()
    assert np.array_equal(replace(whole, sample=1000).users, whole.users)


def test_a_run_stops_on_the_sample_and_tests_on_all() -> None:
    parts = split()
    fitted = train(parts, MF(dim=4), UniformSampler(), 2, Settings(epochs=2, eval_users=5))
    assert fitted.notes[-1].startswith("Each epoch was evaluated on a sample of 5 of ")
    test_users = int((parts.test.activity > 0).sum())
    assert len(fitted.results[10][0].users.users) == test_users
    assert fitted.model.info["settings"]["eval_users"] == 5


def test_the_papers_protocol_evaluates_everybody() -> None:
    with pytest.raises(InputError, match="eval_users is for the honest protocol"):
        train(split(), MF(dim=4), UniformSampler(), 1, Settings(epochs=1, eval_users=5), protocol="paper")
    with pytest.raises(InputError, match="eval_users must be a whole number of at least 1, not 0"):
        Settings(eval_users=0)


# ---- the command line


def test_explain_says_what_will_be_done() -> None:
    encoder, settings = MF(dim=8), Settings(eval_users=5)
    methods = [parse(text, encoder, settings) for text in ("auc-ns:ecdf=64", "rns")]
    lines = list(explained(Conditions.of(split(), 2, device="cpu"), methods, encoder, settings))
    assert lines[0].startswith("data: 60 users × 40 items; pairs: train ")
    assert "20 without a better one, by NDCG@10 of 5 of " in lines[2]
    assert lines[4] == "encoder: mf with vectors of length 8; 2 seeds, side by side, on cpu"
    l2 = "L2 on the rows of a batch, alike for rare and popular items, that validation prefers of 0.001, 0.01, 0.08"
    one = methods[1].having({"updates": "sparse"})
    sparse = list(explained(Conditions.of(split(), 2, device="cpu"), [one], encoder, settings))
    assert sparse[5].startswith(f"rns: engine numba; 32 positives a step, sparse updates; {l2}; memory about ")
    l2 += ", or of weight decays on every row of 3, 5, 10 over twice the pairs"
    said = f"engine numba; 32 positives a step, dense updates; {l2}; "
    assert f"{said}ranks from 64 draws, off by at most 0.17 with 95% confid" in lines[5]
    assert lines[6].startswith(f"rns: {said}memory about ")


class Mine(UniformSampler):
    """Somebody's own sampler, which compiled steps cannot know."""


def test_a_sampler_of_ones_own_is_announced_with_the_engine_that_it_gets() -> None:
    parts, settings = split(), Settings().under("honest", MF(dim=4))
    for device, engine in (("cpu", "torch"), ("cuda", "graph")):
        work = work_of(parts.train, None, MF(dim=4), [Mine()], settings, BPR(), torch.device(device))
        assert work.engine == engine
    hot = np.zeros(40, bool)
    assert Trainer(parts.train, MF(dim=4), [Mine()], [0], settings, CPU, hot=hot).engine.name == "torch"


def test_one_replica_that_follows_alpha_decides_the_engine_of_all() -> None:
    samplers = [AUCSampler(), AUCSampler(alpha="auto")]
    work = work_of(split().train, None, MF(dim=4), samplers, Settings(), BPR(), torch.device("cuda"))
    assert work.engine == "graph"


def test_explain_on_the_command_line() -> None:
    ended = evenhand(
        "compare",
        "demo",
        "--methods",
        "rns,popular",
        "--explain",
        *TINY,
        "--engine",
        "torch",
        "--device",
        "cpu",
    )
    assert ended.code == 0
    assert "rns: engine torch; 256 positives a step, dense updates; L2 " in ended.out
    assert "popular: fitted on train once" in ended.out
    ended = evenhand(
        "compare",
        "demo",
        "--methods",
        "rns",
        "--explain",
        "--json",
        "--eval-users",
        50,
        *TINY,
        "--device",
        "cpu",
    )
    assert "rns: engine numba; 256 positives a step, dense updates" in ended.err
    assert ended.document["configuration"]["settings"]["eval_users"] == 50
    assert any("evaluated on a sample of 50 of" in note for note in ended.document["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "troch"), "did you mean 'torch'"),
        (("--updates", "spars"), "did you mean 'sparse'"),
        (("--updates", "sparse", "--encoder", "lightgcn"), "sparse updates need an encoder"),
        (("--eval-users", 0), "eval_users must be a whole number of at least 1"),
        (("--eval-users", 9, "--protocol", "paper"), "--eval-users belongs to the honest protocol"),
    ],
)
def test_wrong_options_are_reported_in_one_line(arguments: tuple[object, ...], message: str) -> None:
    ended = evenhand("compare", "demo", "--methods", "rns", *TINY, *arguments)
    assert ended.code == 2
    assert message in ended.err


def test_above_a_stated_number_a_sample_is_evaluated_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from evenhand.training import evaluation

    for name, value in (("SCORES_EACH_EPOCH", 7 * split().n_items), ("FEWEST_USERS", 1)):
        monkeypatch.setattr(evaluation, name, value)
    sampled = train(split(), MF(dim=4), UniformSampler(), 1, Settings(epochs=1))
    assert any("7 of" in note for note in sampled.notes)
    whole = train(split(), MF(dim=4), UniformSampler(), 1, Settings(epochs=1, eval_users=10_000))
    assert not any(" of " in note and "users" in note for note in whole.notes)


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (MemoryError(), "there is not enough memory for this; lower --dim, --batch or --seeds, or use --ecdf 64."),
        (torch.OutOfMemoryError("CUDA out of memory."), "there is not enough memory for this; lower --dim"),
        (RuntimeError("sizes of tensors must match"), None),
    ],
)
def test_memory_that_runs_out_in_training_is_one_sentence(
    problem: Exception, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(Trainer, "run_epoch", no_room)
    with pytest.raises(RunError if told else RuntimeError, match=told or "must match") as raised:
        train(split(), MF(dim=4), UniformSampler(), 1, Settings(epochs=1))
    assert isinstance(raised.value, RunError) == bool(told)
