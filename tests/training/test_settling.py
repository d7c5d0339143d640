"""What a trained method leaves open is settled on validation: L2 for inner products, the temperature for cosines."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.splits import Split
from evenhand.encoders import MF
from evenhand.methods import parse
from evenhand.objectives import BPR, BSL, BCLoss, Softmax
from evenhand.samplers import DynamicSampler, UniformSampler
from evenhand.training import early_stopping
from evenhand.training.method import Conditions, RunOptions, refitted_fit
from evenhand.training.settings import ProtocolName, Settings
from evenhand.training.trained import Trained
from evenhand.training.trainer import EpochLog, Trainer

SETTINGS = Settings(epochs=4, batch=512, lr=0.02)


@pytest.fixture(scope="module")
def split() -> Split:
    return eh.simulate(n_users=150, n_items=120, n_interactions=2400, seed=3).split


def method(**parts: object) -> Trained:
    return Trained(UniformSampler(), encoder=MF(dim=8), settings=SETTINGS, registered="rns", **parts)  # type: ignore[arg-type]


def test_the_l2_that_did_best_on_validation_is_taken(split: Split) -> None:
    conditions = Conditions.of(split, 2, device="cpu")
    fit = method().fit_under(conditions)
    pairs = len(split.train)
    decays = [float(f"{pull / (2 * pairs):.3g}") for pull in MF.pulls_tried]
    tried = [("l2", l2) for l2 in MF.l2_tried] + [("weight_decay", decay) for decay in decays]
    alone = {one: method().having(dict([one])).fit_under(replace(conditions, seeds=(0,))).validation for one in tried}
    best = max(alone, key=lambda one: alone[one])  # type: ignore[arg-type, return-value]
    # To the bit what asking for it would have given, for every seed.
    asked = method().having(dict([best])).fit_under(conditions)
    assert fit.validation == asked.validation
    assert np.array_equal(fit.model.vectors[1], asked.model.vectors[1])  # type: ignore[attr-defined]
    assert fit.model.info["settings"][best[0]] == best[1]
    (note,) = [note for note in fit.notes if "was chosen by NDCG@10 on validation" in note]
    assert note.startswith(f"rns: {best[0]} {best[1]:g} was chosen")
    assert all(f"{name} {value:g} ({alone[name, value][0]:.4f})" in note for name, value in tried)  # type: ignore[index]


@pytest.mark.parametrize(("name", "begins", "share"), [("rns", 5, 0.9), ("softmax", 3, 0.999)])
def test_forms_that_are_far_behind_are_not_trained_to_the_end(
    name: str, begins: int, share: float, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side or one after the other; what wins is what would have won, to the bit."""
    conditions = Conditions.of(split, 2, device="cpu")
    one = parse(name, MF(dim=8), replace(SETTINGS, epochs=6))
    trained, epoch = [0], Trainer.run_epoch

    def run_epoch(trainer: Trainer, number: int, pause: Callable[[], bool]) -> EpochLog | None:
        trained[-1] += len(trainer.seeds)
        return epoch(trainer, number, pause)

    monkeypatch.setattr(Trainer, "run_epoch", run_epoch)
    whole = one.under(conditions).fit_under(conditions)
    for constant, value in (("RACE_EPOCHS", begins), ("RACE_STEPS", 1), ("RACE_SHARE", share)):
        monkeypatch.setattr(early_stopping, constant, value)
    trained.append(0)
    fit = one.under(conditions).fit_under(conditions)
    assert trained[1] < trained[0]
    assert fit.validation == whole.validation
    assert np.array_equal(fit.model.vectors[0], whole.model.vectors[0])  # type: ignore[attr-defined]
    assert len(fit.history) == 6
    assert all(len(record["loss"]) == 2 for record in fit.history)
    assert all(len(values) == 2 for record in fit.history for values in record["metrics"].values())


def test_a_slow_starter_is_not_given_up() -> None:
    """Validation NDCG@10 (1e-4) of three L2 and a weight decay, as `rns` had it on Gowalla by popularity shift: the
    smallest L2 leads from epoch 50 on, by 15 % in the end, after it had .86 of the leader."""
    after = {
        1: (26, 25, 19, 20),
        10: (68, 70, 60, 51),
        14: (71, 78, 61, 55),
        20: (76, 89, 69, 56),
        30: (87, 98, 65, 53),
    }
    after |= {50: (109, 109, 58, 51), 60: (128, 117, 62, 54), 80: (139, 129, 64, 53), 100: (160, 137, 74, 54)}
    race = early_stopping.Race(steps=723)
    best, running = np.zeros(4), np.ones(4, dtype=bool)
    for epoch, values in after.items():
        best = np.where(running, np.maximum(best, values), best)
        running &= best >= race.least(epoch - 1, best.max())
    assert running.tolist() == [True, True, False, False]


def test_a_loss_that_weighs_hits_less_tries_less_l2(split: Split) -> None:
    conditions = Conditions.of(split, 1, device="cpu")
    tried = [[one.settings.l2 for one in parse(name).under(conditions).forms(conditions)] for name in ("rns", "ips-cn")]
    assert tried[1] == [1e-5, *tried[0]]


def test_a_decay_is_another_form_only_where_it_reaches_every_row(split: Split) -> None:
    conditions = Conditions.of(split, 1, device="cpu")

    def forms(updates: str) -> list[tuple[float | None, bool]]:
        several = method().having({"updates": updates}).forms(conditions)
        return [(one.settings.l2, bool(one.settings.weight_decay)) for one in several]

    assert forms("sparse") == [(l2, False) for l2 in MF.l2_tried]
    assert forms("dense") == [*forms("sparse"), *[(0.0, True)] * len(MF.pulls_tried)]


def test_with_one_seed_what_was_tried_is_the_fit(split: Split) -> None:
    conditions = Conditions.of(split, 1, device="cpu")
    began = time.perf_counter()
    fit = method().fit_under(conditions)
    assert 0 < fit.seconds <= time.perf_counter() - began  # and counts once
    used = fit.model.info["settings"]
    asked = method().having({name: used[name] for name in ("l2", "weight_decay") if used[name]}).fit_under(conditions)
    assert fit.validation == asked.validation
    assert fit.at(10)["ndcg"].values == asked.at(10)["ndcg"].values


def test_so_is_a_temperature(split: Split) -> None:
    conditions = Conditions.of(split, 1, device="cpu")
    values = {}
    for tau in (0.07, 0.12, 0.2):
        (values[tau],) = method(objective=Softmax(temperature=tau, shared=32)).fit_under(conditions).validation or ()
    fit = method(objective=Softmax(shared=32)).fit_under(conditions)
    assert fit.validation == (max(values.values()),)
    assert fit.model.info["objective"]["temperature"] == max(values, key=lambda tau: values[tau])


def test_so_is_the_weight_on_the_negatives_of_bsl() -> None:
    tried = [(one.temperature, one.negative_weight) for one in BSL().forms() if isinstance(one, BSL)]
    assert len(set(tried)) == len(tried) == 5
    assert {t for _, t in tried} == {0.95, 1.1, 1.25}
    assert [one.temperature for one in BSL(negative_weight=1.3).forms()] == [0.07, 0.12, 0.2]
    assert [(one.temperature, one.negative_weight) for one in BSL(0.1).forms() if isinstance(one, BSL)] == [
        (0.1, 0.95),
        (0.1, 1.1),
        (0.1, 1.25),
    ]
    assert BSL(0.1, negative_weight=0.9).forms() == (BSL(0.1, negative_weight=0.9),)
    assert BSL().closed() == BSL(0.15, negative_weight=1.1)
    assert len(BSL(similarity="inner").forms()) == 3


def test_so_is_the_temperature_of_bc_loss_which_then_recommends_by_cosine(split: Split) -> None:
    assert [(one.tau1, one.final) for one in BCLoss().forms()] == [(tau, "cosine") for tau in (0.07, 0.12, 0.2)]
    assert BCLoss(0.1, final="inner").forms() == (BCLoss(0.1, final="inner"),)
    assert BCLoss().closed() == BCLoss(0.07, final="inner")
    paper = method(objective=BCLoss(warm_up=1)).fit_under(Conditions.of(split, 1, protocol="paper", device="cpu"))
    asked = method(objective=BCLoss(0.07, warm_up=1, final="inner"))
    published = asked.fit_under(Conditions.of(split, 1, protocol="paper", device="cpu"))
    assert paper.at(10)["ndcg"].values == published.at(10)["ndcg"].values


@pytest.mark.parametrize("given", [{"l2": 0.0}, {"l2": 0.5}, {"weight_decay": 1e-5}])
def test_what_is_given_is_not_settled(split: Split, given: dict[str, float]) -> None:
    one = method().having(given)
    assert one.forms(Conditions.of(split, 1, device="cpu")) == [one]


def test_nothing_is_settled_without_a_validation_part_or_in_the_papers_protocol(split: Split) -> None:
    without = replace(split, validation=None)
    assert len(method().forms(Conditions.of(without, 1, device="cpu"))) == 1
    assert len(method().forms(Conditions.of(split, 1, "paper", device="cpu"))) == 1
    fit = method(objective=Softmax(shared=32)).fit_under(Conditions.of(without, 1, device="cpu"))
    assert fit.model.info["objective"]["temperature"] == 0.15
    assert Softmax(similarity="inner").closed().temperature == 1.0


def test_a_refit_takes_what_was_settled(split: Split) -> None:
    conditions = Conditions.of(split, 1, device="cpu")
    fit = method().fit_under(conditions)
    assert isinstance(fit.again, Trained)
    for model in (method().refit(fit, split, device="cpu"), refitted_fit(method(), fit, conditions).model):
        for name in ("l2", "weight_decay"):
            assert (model.info["settings"][name] or 0.0) == (getattr(fit.again.settings, name) or 0.0)


def test_an_interrupted_run_goes_on_where_it_was(split: Split, tmp_path: Path) -> None:
    conditions = Conditions.of(split, 2, device="cpu")
    whole = method().fit_under(conditions)
    seen = []

    def stop(done: int, total: int, news: object) -> None:
        seen.append(done)
        if len(seen) == 6:  # in the second run, after what was tried
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        method().fit_under(conditions, RunOptions(stop, tmp_path))
    assert method().fit_under(conditions, RunOptions(None, tmp_path, resume=True)).validation == whole.validation


def test_a_blend_fits_its_part_again_with_what_was_settled(split: Split) -> None:
    part = Trained(DynamicSampler(), encoder=MF(dim=8), settings=SETTINGS, registered="dns")
    blend = eh.Blend((eh.EASE(), part))
    _, final = blend.settle(split.train, split.validation, 0, Conditions.of(split, 1, device="cpu").device)
    for one in final.parts:
        assert not isinstance(one, Trained) or one.settings.weight_decay or one.settings.l2 in MF.l2_tried


def test_a_search_begins_with_the_usual_values() -> None:
    one = parse("rns").closed()
    assert one.parameters()["l2"] == MF.l2
    assert parse("softmax").closed().parameters()["temperature"] == 0.15


@pytest.mark.parametrize(
    ("users", "method", "rate"),
    [
        *((50, "rns", 0.001), (100_001, "rns", 0.003), (100_001, "softmax", 0.002)),
        *((50, "cause", 0.002), (100_001, "cause", 0.003)),
    ],
)
def test_the_rate_is_larger_where_only_rows_of_a_batch_move_and_for_two_tables(
    users: int, method: str, rate: float
) -> None:
    train = Interactions.from_pairs([0, 1], [0, 1], n_users=users, n_items=9)
    one = parse(method)
    assert isinstance(one, Trained)
    found = Settings().under("honest", MF(), train, one.objective).lr
    assert found == pytest.approx(rate)


@pytest.mark.parametrize(("pairs", "batch"), [(40, 32), (3200, 100), (32_768, 1024), (10**6, 1024)])
def test_a_small_log_has_smaller_batches(pairs: int, batch: int) -> None:
    users, items = np.divmod(np.arange(pairs), 1000)
    log = Interactions.from_pairs(users, items)

    def positives(given: Settings, protocol: ProtocolName) -> int | None:
        return given.under(protocol, MF(), log, BPR()).batch

    assert positives(Settings(), "honest") == batch
    assert positives(Settings(batch=512), "honest") == 512
    assert positives(Settings(), "paper") == 1024
