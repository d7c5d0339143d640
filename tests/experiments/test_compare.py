"""What a comparison concludes, on hand-made results and on small real ones."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from evenhand.experiments.compare import compare
from evenhand.experiments.verdict import headline_k, verdict
from evenhand.methods import parse
from evenhand.metrics.catalogue import HEADLINE, METRICS
from evenhand.metrics.evaluate import UserMetrics
from evenhand.training.evaluation import Result
from evenhand.training.run import Fit
from evenhand.training.settings import Settings
from evenhand.utils.errors import InputError
from run_cli import one_thread, small_log

N_USERS = 40


def users_with(ndcg: float, gap: float, spread: float, k: int = 10) -> UserMetrics:
    """Users whose values alternate around the means by ± spread; all slots beyond the gap are as demand is."""
    sign = np.where(np.arange(N_USERS) % 2, 1.0, -1.0)
    slots = np.column_stack([gap + spread * sign, 1 - gap - spread * sign])
    demand = np.tile([0.0, 1.0], (N_USERS, 1))
    return UserMetrics(k, np.arange(N_USERS), {"ndcg": ndcg + spread * sign}, {"slots": slots, "demand": demand})


def fit_with(
    ndcg: Sequence[float],
    gap: Sequence[float],
    validation: Sequence[float] | None,
    spread: float = 0.0,
    k: int = 10,
) -> Fit:
    """A fit with one seed a value; nothing else of it is looked at."""
    results = [Result({"ndcg": n, HEADLINE: g}, users_with(n, g, spread, k)) for n, g in zip(ndcg, gap, strict=True)]
    chosen = None if validation is None else tuple(validation)
    return Fit(None, {k: results}, chosen, (1,) * len(ndcg), 0.0, ())  # type: ignore[arg-type]


def evaluated(fits: dict[str, Fit], protocol: Any = "honest", ks: Sequence[int] = (10,)) -> str:
    methods = [parse(label) for label in fits]
    return verdict(methods, fits, protocol, ks)


def test_honest_chooses_on_validation_even_if_test_disagrees() -> None:
    fits = {
        "rns": fit_with([0.20, 0.20], [0.9, 0.9], [0.10, 0.10]),
        "dns": fit_with([0.30, 0.30], [0.7, 0.7], [0.11, 0.11]),
        "pns": fit_with([0.25, 0.25], [0.8, 0.8], [0.12, 0.12]),
    }
    assert evaluated(fits).startswith("Best on validation: pns, against random negatives: 25.0 % more accurate")
    assert evaluated(fits, "paper").startswith("Best on test, as in the paper: dns, against")


def test_without_a_validation_part_it_says_that_test_chose() -> None:
    fits = {
        "rns": fit_with([0.20], [0.9], None),
        "dns": fit_with([0.30], [0.7], None),
    }
    assert evaluated(fits).startswith("Best on test: dns, against")


def test_the_sentence_in_full() -> None:
    fits = {
        "rns": fit_with([0.20, 0.20, 0.20], [0.90, 0.90, 0.90], [0.1] * 3),
        "dns:candidates=2": fit_with([0.25, 0.251, 0.249], [0.70, 0.701, 0.699], [0.2] * 3),
    }
    tests = "a paired t test over 3 seeds and a bootstrap over 40 users"
    assert evaluated(fits) == (
        "Best on validation: dns:candidates=2, against random negatives: "
        f"25.0 % more accurate (NDCG@10 0.2500, was 0.2000), beyond the uncertainty by {tests}; "
        f"20.0 points of exposure nearer to demand (Exposure gap@10 0.7000, was 0.9000), "
        f"beyond the uncertainty by {tests}."
    )


def test_a_difference_that_seeds_reverse_is_within_the_uncertainty() -> None:
    fits = {
        "rns": fit_with([0.20, 0.30, 0.20], [0.9, 0.8, 0.9], [0.1] * 3),
        "dns": fit_with([0.30, 0.20, 0.22], [0.8, 0.9, 0.9], [0.2] * 3),
    }
    sentence = evaluated(fits)
    assert "more accurate" in sentence
    assert sentence.count("within the uncertainty") == 2
    assert "beyond" not in sentence


def test_with_one_seed_the_verdict_rests_on_users_alone() -> None:
    fits = {"rns": fit_with([0.2], [0.6], [0.1]), "dns": fit_with([0.1], [0.8], [0.2])}
    sentence = evaluated(fits)
    assert "50.0 % less accurate (NDCG@10 0.1000, was 0.2000), beyond the uncertainty by a bootstrap" in sentence
    assert "20.0 points of exposure farther from demand" in sentence
    assert "t test" not in sentence


def test_random_negatives_may_win_or_be_absent() -> None:
    fits = {"rns": fit_with([0.3], [0.5], [0.3]), "dns": fit_with([0.2], [0.5], [0.2])}
    assert evaluated(fits) == (
        "Best on validation: rns, random negatives themselves: no other method was more accurate."
    )
    del fits["rns"]
    assert evaluated(fits) == (
        "Best on validation: dns. Add rns to the methods to see how it compares with random negatives."
    )


def test_a_baseline_without_a_hit_and_an_undefined_rate_give_no_odd_numbers() -> None:
    fits = {"rns": fit_with([0.0], [0.9], [0.0]), "dns": fit_with([0.2], [0.8], [0.2])}
    sentence = evaluated(fits)
    assert ": more accurate (NDCG@10 0.2000, was 0.0000)" in sentence
    assert "inf" not in sentence
    fits["dns"] = fit_with([0.2], [math.nan], [0.2])
    assert "exposure gap@10 is undefined" in evaluated(fits)
    assert "nan" not in evaluated(fits)


def test_the_headline_is_at_ten_or_else_at_the_shortest_list() -> None:
    assert headline_k((5, 10, 20)) == 10
    assert headline_k((20, 3)) == 3
    fits = {"rns": fit_with([0.2], [0.6], [0.1], k=3), "dns": fit_with([0.1], [0.8], [0.2], k=3)}
    assert "NDCG@3" in evaluated(fits, ks=(3, 20))


# On trained models.

SMALL = Settings(epochs=3, batch=256)
SPLIT = small_log().split(test=0.2, validation=0.1)


def run(methods: Sequence[str] = ("rns", "auc-ns:ecdf=16"), **options: Any) -> Any:
    from evenhand.encoders import MF

    given: dict[str, Any] = {"encoder": MF(dim=8), "seeds": 2, "settings": SMALL, "device": "cpu"}
    with one_thread():
        return compare(SPLIT, methods, **(given | options))


def without_seconds(document: dict[str, Any]) -> str:
    training = {
        label: {key: value for key, value in one.items() if key != "seconds"}
        for label, one in document["training"].items()
    }
    return json.dumps(document | {"training": training}, allow_nan=False)


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_a_repeated_comparison_gives_the_same_document(protocol: str) -> None:
    first, second = (run(protocol=protocol).to_json() for _ in range(2))
    assert without_seconds(first) == without_seconds(second)


def test_a_method_scores_the_same_whoever_it_is_compared_with() -> None:
    alone, among = run(["dns"]), run(["rns", "dns", "pns"])
    for k in (5, 10, 20):
        assert alone.row("dns", k).to_json() == among.row("dns", k).to_json()


def test_rows_hold_every_metric_of_every_k_in_the_order_asked() -> None:
    found = run(["dns:candidates=2", "rns"], k=(20, 3, 3))
    assert [(row.name, row.method, row.encoder, row.k) for row in found.rows] == [
        ("dns:candidates=2", "dns", "mf", 3),
        ("dns:candidates=2", "dns", "mf", 20),
        ("rns", "rns", "mf", 3),
        ("rns", "rns", "mf", 20),
    ]
    for row in found.rows:
        assert set(METRICS) <= set(row.metrics)
        for summary in row.metrics.values():
            assert len(summary.values) == 2
            assert summary.mean == pytest.approx(sum(summary.values) / 2, nan_ok=True)
    with pytest.raises(InputError, match="no row 'pns' at k = 3"):
        found.row("pns", 3)


def test_the_paper_protocol_reports_the_best_test_epoch() -> None:
    found = run(["rns"], protocol="paper", k=10)
    history = found.fits["rns"].model.history
    assert len(history) == SMALL.epochs
    best = [max(record["metrics"]["ndcg@10"][seed] for record in history) for seed in range(2)]
    assert list(found.row("rns", 10).metrics["ndcg"].values) == best


def test_other_tests_are_evaluated_with_the_same_models() -> None:
    found = run(["rns", "dns"], other_tests={"again": SPLIT.test})
    assert [row.to_json() for row in found.other_tests["again"]] == [row.to_json() for row in found.rows]


def test_the_configuration_is_resolved() -> None:
    resolved = run(["rns", "auc-ns:beta=0.1"], hot="0.2").to_json()["configuration"]
    assert resolved["encoder"] == {"name": "mf", "dim": 8}
    assert resolved["seeds"] == [0, 1]
    assert resolved["ks"] == [5, 10, 20]
    assert resolved["hot"]["share"] == 0.2
    assert resolved["settings"]["epochs"] == 3
    assert resolved["settings"]["lr"] == Settings().lr
    assert resolved["methods"]["rns"] == {"method": "rns", "sampler": {}}
    sampler = resolved["methods"]["auc-ns:beta=0.1"]["sampler"]
    assert (sampler["beta"], sampler["candidates"], sampler["ecdf"]) == (0.1, 5, "auto")
    assert {"evenhand", "torch", "numpy", "python"} <= set(resolved["versions"])


@pytest.mark.parametrize(
    ("methods", "message"), [([], "name at least one"), (["rns", "dns", "rns"], "named once only")]
)
def test_what_cannot_be_compared_is_refused(methods: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(methods)
