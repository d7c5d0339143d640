"""The measuring instruments of benchmarks/claims, which must be right before they show anything."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.samplers.auc import posterior, prior

FOLDER = Path(__file__).parents[2] / "benchmarks" / "claims"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"claims_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


theorem, bias, calibration, beta = (script(n) for n in ("theorem", "bias", "calibration", "beta_diagnostics"))


def test_the_surrogate_by_hand() -> None:
    """Positives 1, negatives 0 and -1, the top half is {0}: ln σ(1) = -0.313262."""
    one, negatives = torch.tensor([1.0]), torch.tensor([-1.0, 0.0])
    assert theorem.surrogate(one, negatives, 0.5, mean=False) == pytest.approx(-0.313262, abs=1e-6)
    both = -0.313262 - 0.126928
    assert theorem.surrogate(one, negatives, 1.0, mean=False) == pytest.approx(both, abs=1e-6)
    assert theorem.surrogate(one, negatives, 1.0, mean=True) == pytest.approx(both / 2, abs=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.1])
def test_the_rule_with_the_indicator_is_the_derivative(gamma: float) -> None:
    for seed in range(5):
        world = theorem.make_world(seed, n_positives=7, n_unobserved=40)
        everything = torch.arange(40)
        found = theorem.rises(world, everything, gamma)
        assert torch.allclose(theorem.with_indicator(world, everything, gamma), found, atol=1e-4)


def test_at_gamma_1_the_theorem_adds_the_candidate_to_its_own_negatives() -> None:
    """Which costs ½·P(FN|x), and is why it misses the best candidate now and then."""
    world = theorem.make_world(0)
    everything = torch.arange(200)
    extra = 0.5 * (1 - world.true_negative)
    rule = theorem.by_theorem(world, everything, 1.0)
    assert torch.allclose(rule + extra, theorem.with_indicator(world, everything, 1.0))
    assert torch.allclose(rule, theorem.by_release(world, everything, 1.0))


def test_below_gamma_1_the_rule_promises_what_no_descent_gives() -> None:
    """Outside the top γ a true negative does not count, so that its descent can only lose."""
    world = theorem.make_world(1)
    order = world.unobserved.argsort(descending=True)
    outside = order[20:40]
    assert bool((theorem.by_theorem(world, outside, 0.1) > 0).any())
    assert bool((theorem.rises(world, outside, 0.1) <= 1e-6).all())


def test_all_labels_of_a_sure_world_are_the_label_of_x_alone() -> None:
    world = theorem.make_world(2, n_positives=5, n_unobserved=30)
    sure = theorem.World(world.positives, world.unobserved, torch.ones(30, dtype=torch.float64))
    candidates = torch.tensor([3, 8])
    drawn = theorem.rises_with_all_labels(sure, candidates, 0.5, draws=2, seed=0)
    assert torch.allclose(drawn, theorem.rises(sure, candidates, 0.5, mean=True))


def test_the_parts_of_the_error_by_hand() -> None:
    """Two training sets, two pairs with p = 1 and p = ½; g = (1, 0) and (1, 1)."""
    parts = bias.decompose(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 0.5]))
    assert parts.noise == 0.125  # (0 + ¼) / 2
    assert parts.mse == 0.25  # the second pair is wrong half the time
    assert parts.variance == 0.25  # of the second pair ½, with n - 1
    assert parts.bias == -0.125  # (0 + 0) / 2, less half the variance
    assert parts.fpr_true == 0.5
    assert parts.fnr == pytest.approx(0.125 / 0.75)
    assert parts.fpr_paper == pytest.approx(0.125 / 0.75)


def test_the_error_is_bias_variance_and_noise_and_its_two_kinds() -> None:
    rng = np.random.default_rng(0)
    preference = rng.random((9, 11))
    g = (rng.random((6, 9, 11)) < 0.2 + 0.5 * preference).astype(float)
    parts = bias.decompose(g, preference)
    assert parts.mse == pytest.approx(parts.bias + parts.variance + parts.noise)
    liked = preference.mean()
    assert parts.mse == pytest.approx((1 - liked) * parts.fpr_true + liked * parts.fnr)


def test_training_sets_are_drawn_again_from_one_world() -> None:
    world = eh.simulate(60, 50, 450, uniform_test=0)
    one, other = bias.training_sets(world, 2)
    assert not np.array_equal(one.train.keys, other.train.keys)
    assert abs(len(one.train) - 450) < 100
    popular = np.corrcoef(one.train.popularity, other.train.popularity)[0, 1]
    assert popular > 0.5


def test_reliability_by_hand() -> None:
    predicted, true = np.array([0.1, 0.2, 0.9, 1.0]), np.array([False, True, True, True])
    low, high = calibration.reliability(predicted, true, (0.0, 0.5, 1.0))
    assert (low.share, low.predicted, low.observed) == (0.5, pytest.approx(0.15), 0.5)
    assert (high.share, high.predicted, high.observed) == (0.5, pytest.approx(0.95), 1.0)
    assert calibration.calibration_error(predicted, true, bins=2) == pytest.approx((0.35 + 0.05) / 2)
    assert calibration.brier(predicted, true) == pytest.approx((0.01 + 0.64 + 0.01) / 4)


def test_auc_counts_ties_half() -> None:
    assert calibration.auc(np.array([1.0, 2.0]), np.array([0.0, 1.0])) == 0.875  # ½, 1; 1, 1


def test_confidence_is_the_sampler_s_for_every_pair_outside_the_log() -> None:
    world = eh.simulate(20, 30, 90, uniform_test=0)
    scores = np.random.default_rng(0).normal(size=(20, 30))
    asked = calibration.ask(world, world.log, scores)
    got = calibration.confidence(asked, world.log, 0.75, 0.05)
    tau = prior(torch.from_numpy(world.log.popularity), 0.05).double()
    seen = set(zip(world.log.users.tolist(), world.log.items.tolist(), strict=True))
    n = 0
    for u in range(20):
        for i in range(30):
            if (u, i) in seen:
                continue
            rank = torch.tensor((scores[u] <= scores[u, i]).sum() / 31)
            assert got[n] == pytest.approx(float(posterior(rank, tau[i], 0.75)))
            assert asked.true_negative[n] == (not world.truth(u, i))
            n += 1
    assert n == len(got)


def test_negatives_are_counted_in_three_ways() -> None:
    """User 0 draws item 2 (hot, false) twice and item 0 once; user 1 draws item 1 once."""
    users, items = np.array([0, 0, 0, 1]), np.array([2, 2, 0, 1])
    found = beta.count(users, items, np.array([False, False, True]), np.array([2]))
    assert (found.hot, found.false) == (0.5, 0.5)
    assert (found.hot_user, found.false_user) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert (found.hot_distinct, found.false_distinct) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


def test_the_plain_loop_learns_and_draws_no_training_item() -> None:
    split = eh.simulate(200, 60, 1500, uniform_test=0).split
    epochs = list(beta.negatives_by_epoch(split, eh.AUCSampler(ecdf=16), 2))
    assert len(epochs) == 2
    for users, items in epochs:
        assert len(users) == len(split.train) // beta.BATCH * beta.BATCH
        assert not np.isin(users * split.n_items + items, split.train.keys).any()


def test_the_page_has_the_tables_that_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    printed_tables = script("printed_tables")
    printed_tables.places()
    printed_tables.lower_hot_rate()
    page = (FOLDER.parents[1] / "docs" / "claims.md").read_text(encoding="utf-8")
    printed = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(printed) == 2 + 8 + 2 + 9
    assert all(line in page.splitlines() for line in printed)


def test_standings_of_one_column_by_hand() -> None:
    """Yahoo, MF, top 20, precision: bc-loss .0773, dns .0769, rns .0755, auc-ns .0753."""
    found = script("printed_tables").standings("precision")
    (one,) = [s for s in found if (s.dataset, s.encoder, s.k) == ("yahoo-r3", "mf", 20)]
    assert (one.value, one.place, one.best, one.best_value) == (0.0753, 4, "bc-loss", 0.0773)


def test_eighteen_columns_a_metric() -> None:
    for metric in ("precision", "ohr"):
        assert len({(s.dataset, s.encoder, s.k) for s in script("printed_tables").standings(metric)}) == 18


def test_lower_is_better_for_rates_of_error() -> None:
    """auc-ns .5671 against rns .6324: .0653 better; on Yahoo with LightGCN .8427 against .8394: worse."""
    found = {where[:3]: where[3] for where in script("printed_tables").better_than("rns", "ohr")}
    assert found["ml-100k", "mf", 5] == 0.0653
    assert found["yahoo-r3", "lightgcn", 5] == -0.0033


def test_hot_lists_err_as_often_as_hot_items_do() -> None:
    """ML-100K, MF, top 5: OHR .5671 and 1 - .4324 = .5676; FairStatic .5353 and .6481."""
    assert script("printed_tables").hot_error_beyond_error()[0] == ("ml-100k", "mf", 5, -0.0005)
    assert script("printed_tables").hot_error_beyond_error("fairstatic")[0] == ("ml-100k", "mf", 5, -0.1128)
