"""An audit worked by hand and checked against other libraries; its slices, examples and sentences."""

import doctest
import importlib
import inspect
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import evenhand as eh
from audit_lists import LISTS, TEST, TRAIN, pairs
from evenhand.audit import run_audit, sweep
from evenhand.audit.result import Audit, from_json, to_json
from evenhand.audit.slices import by_values
from evenhand.metrics.catalogue import METRICS
from run_cli import small_log

ROOMS = ("audit.slices", "audit.findings", "audit.gates", "audit.measures", "cli.show")


def table(rows: dict[str, str], **more: Any) -> pa.Table:
    users, items = zip(*pairs(rows), strict=True)
    return pa.table({"user": list(users), "item": list(items)} | more)


def lists(rows: dict[str, str] = LISTS) -> pa.Table:
    return table(rows, rank=[rank for items in rows.values() for rank in range(1, len(items) + 1)])


def audited(recs: Any = None, **more: Any) -> Audit:
    given = {"train": table(TRAIN), "test": table(TEST), "k": (3, 4), "hot": 2} | more
    return eh.audit({"mine": lists()} if recs is None else recs, **given)


@pytest.fixture(scope="module")
def found() -> Audit:
    return audited()


@pytest.mark.parametrize("room", ROOMS)
def test_the_examples_in_the_docstrings_hold(room: str) -> None:
    result = doctest.testmod(importlib.import_module(f"evenhand.{room}"))
    assert result.attempted > 0
    assert result.failed == 0


def _js(p: list[float], q: list[float]) -> float:
    """As in a textbook, item by item (there are fewer than ten, so each is a part of its own)."""
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    total = 0.0
    for a, b in zip(p, q, strict=True):
        m = (a + b) / 2
        total += (a * math.log2(a / m) if a else 0) / 2 + (b * math.log2(b / m) if b else 0) / 2
    return math.sqrt(total)


B = 1 / math.log2(3)
# Counts of 4, 4, 2 and six times 1: their law is 1 + 9 / (14 ln 2), and the propensity's exponent half of 1 + that.
E = 1 + 9 / (28 * math.log(2))
# At k = 4 the hits are ann 2 (ranks 2, 3), bob 2 (1, 2), cat 1 (1), dan 0, eve 1 (1); dan has 3 items.
BY_HAND = {
    "precision": (2 / 4 + 2 / 4 + 1 / 4 + 0 + 1 / 4) / 5,
    "recall": (2 / 2 + 2 / 3 + 1 / 1 + 0 + 1 / 2) / 5,
    # Weights: a and b 1, c 2^E, others with a pair 4^E, h 100. Hits: ann d e, bob c e, cat b, eve a.
    "recall_even": (2 * 4**E + 2**E + 4**E + 2) / (2 * 4**E + 2**E + 4**E + 100 + 1 + 2**E + 4**E + 1 + 4**E),
    "f1": (4 / 6 + 4 / 7 + 2 / 5 + 0 + 2 / 6) / 5,
    "ndcg": ((B + 1 / 2) / (1 + B) + (1 + B) / (1 + B + 1 / 2) + 1 + 0 + 1 / (1 + B)) / 5,
    "fpr": 1 - (2 / 4 + 2 / 4 + 1 / 4 + 0 + 1 / 4) / 5,
    "fnr": 1 - (2 / 2 + 2 / 3 + 1 / 1 + 0 + 1 / 2) / 5,
    # Neither wanted nor had: ann fghij, bob fgij, cat cdfghij, dan dehij, eve dehij.
    "fpr_true": (2 / 5 + 2 / 4 + 3 / 7 + 3 / 5 + 3 / 5) / 5,
    "hit_rate": 4 / 5,
    "mrr": (1 / 2 + 1 + 1 + 0 + 1) / 5,
    # Hot in the lists: bob c (hit), cat b (hit) and c, eve a (hit).
    "ohr": (0 + 0 + 1 / 2 + 0 + 0) / 5,
    "ohr_defined": (0 + 1 / 2 + 0) / 3,
    "ohr_pooled": 1 / 4,
    "ocr": (2 / 4 + 2 / 3 + 2 / 2 + 3 / 3 + 3 / 3) / 5,
    "ocr_defined": (2 / 4 + 2 / 3 + 2 / 2 + 3 / 3 + 3 / 3) / 5,
    "ocr_pooled": 12 / 15,
    # Wanted and hot: bob c, cat b, dan c (missed), eve a. Wanted and cold: ann d e, bob e h, dan g, eve f.
    "uhr": (0 + 0 + 0 + 1 + 0) / 5,
    "uhr_defined": 1 / 4,
    "uhr_pooled": 1 / 4,
    "ucr": (0 + 1 / 2 + 0 + 1 + 1) / 5,
    "ucr_defined": (0 + 1 / 2 + 1 + 1) / 4,
    "ucr_pooled": 3 / 6,
    # Of the wanted items shown: 3 of 4 hot, 3 of 6 cold; the std over the mean of .75 and .5.
    "popreo": np.std([3 / 4, 3 / 6]) / np.mean([3 / 4, 3 / 6]),
    # Popularity: a and b 4, c 2, h 0, all others 1.
    "arp": (4 / 4 + 5 / 4 + 8 / 4 + 2 / 3 + 6 / 4) / 5,
    "popularity_lift": (4 / 4 + 5 / 4 + 8 / 4 + 2 / 3 + 6 / 4) / (10 / 3 + 9 / 3 + 5 / 2 + 9 / 3 + 7 / 3) - 1,
    "aplt": (4 / 4 + 3 / 4 + 2 / 4 + 3 / 3 + 3 / 4) / 5,
    "aclt": (4 + 3 + 2 + 3 + 3) / 5,
    # Items that could be shown: hot 0 + 1 + 2 + 1 + 1, cold 7 + 6 + 6 + 6 + 6; shown are 4 and 15.
    "poprsp": np.std([4 / 5, 15 / 31]) / np.mean([4 / 5, 15 / 31]),
    # Slots: a 1, b 1, c 2, d 4, e 4, f 3, g 2, h 2, i 0, j 0.
    "gini": sum(abs(x - y) for x in (1, 1, 2, 4, 4, 3, 2, 2, 0, 0) for y in (1, 1, 2, 4, 4, 3, 2, 2, 0, 0))
    / (2 * 10 * 19),
    "entropy": -sum(n / 19 * math.log2(n / 19) for n in (1, 1, 2, 4, 4, 3, 2, 2)),
    "coverage": 8 / 10,
    # Ten items are ten deciles: a b c d e f g i j h.
    "js_distance": _js([1, 1, 2, 4, 4, 3, 2, 0, 0, 2], [1, 1, 2, 1, 2, 1, 1, 0, 0, 1]),
    "exposure_gap": sum(
        abs(shown / 19 - wanted / 10)
        for shown, wanted in zip([1, 1, 2, 4, 4, 3, 2, 0, 0, 2], [1, 1, 2, 1, 2, 1, 1, 0, 0, 1], strict=True)
    )
    / 2,
    # The most popular tenth is a, the less popular half f g i j h.
    "top_tenth_share": 1 / 19,
    "top_tenth_ratio": (1 / 19) / (1 / 10),
    "tail_share": 7 / 19,
    "tail_ratio": (7 / 19) / (3 / 10),
    # d, e and f have 11 of 19 slots, d and e 8.
    "items_for_half": 3,
}


def test_every_metric_is_worked_by_hand() -> None:
    assert set(BY_HAND) == set(METRICS)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_hand_worked_table(found: Audit, name: str) -> None:
    assert found.row("mine", 4).metrics[name].value == pytest.approx(BY_HAND[name], abs=1e-12)


# Printed by benchmarks/reference_metrics.py.
REFERENCE = {
    "precision": 0.4,  # RecTools 0.19.0 Precision, LensKit 2025.8.1 Precision, torchmetrics 1.9.0
    "recall": 0.6333333333,  # RecTools Recall, LensKit Recall, torchmetrics retrieval_recall
    "hit_rate": 0.8,  # RecTools HitRate, LensKit Hit, torchmetrics retrieval_hit_rate
    "mrr": 0.7,  # RecTools MRR, LensKit RecipRank, torchmetrics retrieval_reciprocal_rank
    # RecTools NDCG(divide_by_achievable=True), torchmetrics retrieval_normalized_dcg; LensKit's NDCG does not
    # discount the second rank and gives 0.6151.
    "ndcg": 0.6143868467,
    "arp": 1.4666666667,  # RecTools AvgRecPopularity, RecBole 1.2.1 AveragePopularity
    "coverage": 0.7,  # RecTools CatalogCoverage(normalize=True), RecBole ItemCoverage
    "gini": 0.5133333333,  # LensKit ListGini, RecBole GiniIndex
    "aplt": 0.7333333333,  # RecBole TailPercentage with the same long tail
    "entropy": 2.5735572623,  # SciPy 1.17.1 stats.entropy(base=2); RecBole ShannonEntropy × items / ln 2
    "js_distance": 0.3092351850,  # SciPy spatial.distance.jensenshannon(base=2)
}


@pytest.mark.parametrize("name", REFERENCE)
def test_other_libraries_agree(found: Audit, name: str) -> None:
    assert found.row("mine", 3).metrics[name].value == pytest.approx(REFERENCE[name], abs=1e-9)


def test_every_metric_is_there_within_its_range_and_interval(found: Audit) -> None:
    for row in found.rows:
        assert tuple(row.metrics) == tuple(METRICS)
        for name, estimate in row.metrics.items():
            low, high = estimate.low, estimate.high
            assert low is not None
            assert high is not None
            assert METRICS[name].low <= low <= estimate.value <= high <= METRICS[name].high, name


def test_the_confusion_adds_up(found: Audit) -> None:
    one = next(c for c in found.confusion if c.k == 4)
    assert (one.hits_hot, one.hits_cold, one.wrong_hot, one.wrong_cold) == (3, 3, 1, 12)
    assert (one.missed_hot, one.missed_cold) == (1, 3)


def test_exposure_and_demand_by_decile(found: Audit) -> None:
    # In order of popularity a b c d e f g i j h, one item each.
    assert found.k == 3
    slots = [1, 1, 2, 4, 4, 2, 0, 0, 0, 1]
    assert found.exposure[0].share == pytest.approx([n / 15 for n in slots])
    assert found.demand["test"] == pytest.approx([n / 10 for n in (1, 1, 2, 1, 2, 1, 1, 0, 0, 1)])
    assert found.demand["train"] == pytest.approx([n / 16 for n in (4, 4, 2, 1, 1, 1, 1, 1, 1, 0)])
    assert found.exposure[0].lorenz[0] == (0, 0)
    assert found.exposure[0].lorenz[-1] == (1, 1)


def test_without_a_test_only_exposure_is_measured(found: Audit) -> None:
    alone = audited(test=None)
    names = [name for name, metric in METRICS.items() if metric.group == "exposure"]
    assert list(alone.row("mine", 4).metrics) == names
    assert alone.confusion == ()
    assert alone.data["test_interactions"] is None
    assert any("Without a test" in note for note in alone.notes)
    # h is not in train, so the catalogue has nine items, and h stands outside it.
    assert alone.row("mine", 4).metrics["coverage"].value == pytest.approx(7 / 9)
    assert alone.row("mine", 4).metrics["aplt"].value == found.row("mine", 4).metrics["aplt"].value
    assert alone.row("mine", 4).metrics["js_distance"].value == pytest.approx(
        # What those with a list have had, so not fay's i and j.
        _js([1, 1, 2, 4, 4, 3, 2, 0, 0], [4, 4, 2, 1, 1, 1, 1, 0, 0])
    )


def test_slices_of_users_are_the_audit_of_those_users(found: Audit) -> None:
    group = {"ann": "x", "bob": "x", "cat": "y", "dan": "y", "eve": "y", "fay": "y"}
    users = pa.table({"user": list(group), "group": list(group.values())})
    sliced = audited(users_file=users, slice_by=["group"])
    for part in ("x", "y"):
        row = next(r for r in sliced.slices if r.by == "group" and r.part == part)
        theirs = {user: items for user, items in TEST.items() if group[user] == part}
        alone = audited({"mine": lists({user: LISTS[user] for user in theirs})}, test=table(theirs)).row("mine", 3)
        assert row.of == "users"
        assert row.size == len(theirs)
        for name, estimate in row.metrics.items():
            # The part's own test would change neither popularity nor what is hot.
            assert estimate.value == pytest.approx(alone.metrics[name].value), (part, name)
            if name != "popularity_lift":
                assert estimate.low == pytest.approx(alone.metrics[name].low), (part, name)


def test_slices_of_items_share_out_slots_and_wishes() -> None:
    kinds = pa.table({"item": list("abcdefghij"), "kind": list("xxyyyzzzzz")})
    sliced = audited(items_file=kinds, slice_by=["kind"], k=4)
    rows = {row.part: row.metrics for row in sliced.slices if row.by == "kind"}
    assert rows["x"]["share_of_slots"].value == pytest.approx(2 / 19)
    assert rows["y"]["share_of_demand"].value == pytest.approx(5 / 10)
    assert rows["y"]["precision"].value == pytest.approx(4 / 10)  # ann d e, bob c e of 10 slots
    assert rows["y"]["recall"].value == pytest.approx(4 / 5)
    assert rows["z"]["recall"].value == 0
    deciles = [row for row in sliced.slices if row.by == "item popularity"]
    assert len(deciles) == 10
    assert deciles[0].part == "decile 1 (most popular)"


def test_taste_goes_by_the_share_of_hot_items(found: Audit) -> None:
    # ann 1, bob 2/3, cat 1/2, dan 2/3, eve 2/3 hot; fay has no list and no wish.
    parts = {row.part.split(" (")[0]: row.size for row in found.slices if row.by == "taste"}
    assert parts == {"niche": 1, "diverse": 3, "blockbuster": 1}
    activity = {row.part: row.size for row in found.slices if row.by == "user activity"}
    assert activity == {"2–3 train items": 5}  # the first quarter's last user has 3, as all others


def test_an_attribute_of_many_numbers_is_cut_into_quarters() -> None:
    ages = [str(age) for age in range(20, 40)]
    cut = by_values("age", [*ages, None, "39"])
    assert cut.labels == ("20 to 25", "26 to 30", "31 to 35", "36 to 39", "not given")
    assert cut.sizes().tolist() == [6, 5, 5, 5, 1]
    assert by_values("age", ["3", "3", "1.5"]).labels == ("1.5", "3")  # few numbers: one part each
    # Equal numbers stay together: half of all are 7.
    tied = by_values("n", [*["7"] * 20, *map(str, range(8, 28))])
    assert tied.labels == ("7", "8 to 17", "18 to 27", "not given")
    names = by_values("town", [*(f"town {n}" for n in range(20)), "town 3", "nan"])
    assert len(names.labels) == 12
    assert names.labels[-1] == "all others"


def test_examples_say_why_and_mark_what_was_wanted() -> None:
    titles = pa.table({"item": list("abcdefghij"), "name": [f"Film {c}" for c in "ABCDEFGHIJ"]})
    shown = audited({"mine": lists(), "other": lists()}, items_file=titles, title="name").examples
    assert len({example.user for example in shown}) == len(shown) >= 3
    cat = next(example for example in shown if example.user == "cat")
    assert "niche" in cat.why
    assert [(s.item, s.title, s.hot, s.wanted) for s in cat.lists["mine"]] == [
        ("b", "Film B", True, True),
        ("c", "Film C", True, False),
        ("d", "Film D", False, False),
    ]
    assert set(cat.lists) == {"mine", "other"}
    assert [s.item for s in cat.history] == ["a", "e"]
    assert [s.item for s in cat.wanted] == ["b"]


def test_a_long_history_is_cut_and_its_length_reported() -> None:
    long = TRAIN | {"ann": "".join(map(chr, range(0x100, 0x100 + 45)))}
    shown = audited({"mine": lists()}, train=table(long)).examples
    ann = next(example for example in shown if example.user == "ann")
    assert (len(ann.history), ann.n_history) == (20, 45)
    assert (len(ann.wanted), ann.n_wanted) == (2, 2)


def test_json_and_back(found: Audit) -> None:
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    row = document["rows"][0]
    assert (row["name"], row["encoder"], row["method"], row["k"]) == ("mine", None, None, 3)
    precision = row["metrics"]["precision"]
    assert precision["mean"] == pytest.approx(0.4)
    assert precision["values"] == [precision["mean"]]
    assert precision["std"] is None
    assert precision["low"] < 0.4 < precision["high"]
    again = from_json(document)
    assert to_json(again) == to_json(found)
    assert again.row("mine", 4) == found.row("mine", 4)


def test_findings_have_numbers_and_say_if_chance_explains_them() -> None:
    worse = {user: items[::-1] for user, items in LISTS.items()}
    both = audited({"mine": lists(), "other": lists(worse)})
    assert len(both.findings) == 5
    sentences = [finding.sentence for finding in both.findings]
    assert sentences[0].startswith("That mine is more accurate than other, by 0.")
    assert sentences[0].endswith("may be chance (too few users to tell).")
    assert sentences[1].startswith("The most popular tenth of the items has 10.0 % of the demand and gets ")
    assert sentences[2].startswith("Of the hot items that mine shows in its top 3, 25.0 % [")
    assert "too few users" in sentences[3]
    assert [finding.certain for finding in both.findings] == [False, None, None, False, False]


def test_the_same_lists_twice_do_not_differ() -> None:
    split, recs = simulated()
    twice = eh.audit({"a": recs, "b": recs}, split.train, split.test, k=(3, 5))
    assert {c.p for c in twice.contrasts if not math.isnan(c.p)} == {1.0}
    assert {c.metric for c in twice.contrasts if math.isnan(c.p)} == {"ohr_pooled"}  # few lists hold a hot item
    assert {c.difference.value for c in twice.contrasts} == {0.0}


def test_so_few_users_give_no_verdict() -> None:
    best = {user: TEST.get(user, "a") for user in TRAIN}
    found = audited({"best": lists(best), "none": lists(dict.fromkeys(TRAIN, "j"))})
    assert found.row("best", 3).metrics["ndcg"].value == 1.0
    assert found.row("none", 3).metrics["ndcg"].value == 0.0
    assert all(math.isnan(contrast.p) for contrast in found.contrasts)


def test_the_winner_comes_first_and_sentences_agree_with_the_numbers() -> None:
    split, recs = simulated()
    better = pa.table(
        {
            "user": split.test.user_ids.take(pa.array(split.test.users)),
            "item": split.test.item_ids.take(pa.array(split.test.items)),
            "score": np.ones(len(split.test)),
        }
    )
    found = eh.audit({"mine": recs, "theirs": better}, split.train, split.test, k=5)
    sentences = [finding.sentence for finding in found.findings]
    assert sentences[0].startswith("theirs is more accurate than mine, by ")
    assert "beyond chance" in sentences[0]
    own = found.row("theirs", 5).metrics
    assert f"the top 5 of theirs; half of its slots go to {own['items_for_half'].value:.0f} of 80 items" in sentences[1]
    assert f"theirs shows in its top 5, {100 * own['ohr_pooled'].value:.1f} %" in sentences[2]
    gap = next(c for c in found.contrasts if c.metric == "ohr_pooled").difference.value
    assert sentences[4].startswith(f"theirs errs less often in the hot items it shows than mine, by {abs(gap):.4f}")


def test_what_may_be_chance_is_not_said_as_a_fact() -> None:
    other = {user: items[::-1] for user, items in LISTS.items()}
    found = audited({"mine": lists(), "other": lists(other), "same": lists()})
    contrast = next(c for c in found.contrasts if (c.metric, c.k, c.b) == ("ndcg", 3, "other"))
    assert not contrast.beyond_uncertainty
    # Against the best of the others, which shows the very same lists.
    sentences = [finding.sentence for finding in found.findings]
    assert (sentences[0], sentences[-1]) == (
        "mine and same have the same NDCG@3.",
        "mine and same have the same pooled OHR@3.",
    )
    split, recs = simulated()
    shuffled = recs.set_column(2, "score", pa.array(np.random.default_rng(6).random(len(recs))))
    sentence = eh.audit({"a": recs, "b": shuffled}, split.train, split.test, k=5).findings[0].sentence
    assert sentence.startswith("That ")
    assert "may be chance (p = " in sentence


def test_the_lists_of_one_user_have_no_interval() -> None:
    found = audited({"mine": lists({"ann": LISTS["ann"]}), "other": lists({"ann": "bfde"})})
    metrics = found.row("mine", 3).metrics
    for name in ("popularity_lift", "gini", "entropy", "coverage", "js_distance", "ocr_pooled"):
        assert metrics[name].low is None, name
    assert metrics["precision"].low is not None  # others want something too, and are shown nothing
    lift = next(c for c in found.contrasts if (c.metric, c.k) == ("popularity_lift", 3))
    assert math.isnan(lift.p)


def test_audit_is_a_plain_function_whatever_was_imported() -> None:
    importlib.import_module("evenhand.audit.result")
    import evenhand

    assert inspect.isfunction(evenhand.audit)
    assert evenhand.audit is eh.audit is run_audit.audit
    assert eh.audit(lists(), table(TRAIN), k=3).systems == ("recommendations",)
    assert eh.audit(lists(), train=table(TRAIN), k=3).ks == (3,)


def simulated() -> tuple[eh.Split, pa.Table]:
    split = small_log().split(test=0.3, validation=0, seed=1)
    generator = np.random.default_rng(5)
    users = [f"{user}" for user in range(60) for _ in range(8)]
    items = [f"{item}" for _ in range(60) for item in generator.choice(80, 8, replace=False)]
    return split, pa.table({"user": users, "item": items, "score": generator.random(480)})


def test_what_evaluate_measures_too_is_the_same() -> None:
    split, recs = simulated()
    # An audit looks at everybody's list for exposure, `evaluate` at those of users with a test item.
    wanting = split.test.user_ids.filter(pa.array(split.test.activity > 0)).cast(pa.string())
    recs = recs.filter(pc.is_in(recs["user"], value_set=wanting))
    audit = eh.audit({"mine": recs}, train=split.train, test=split.test, k=(2, 8))
    for row in eh.evaluate(recs, split, k=(2, 8)).rows:
        found = audit.row("mine", row.k).metrics
        for name, summary in row.metrics.items():
            assert found[name].value == pytest.approx(summary.mean, nan_ok=True), name


def test_blocks_and_the_order_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    split, recs = simulated()
    whole = eh.audit({"mine": recs}, train=split.train, test=split.test, k=(2, 8))
    for size, smaller in (("SLOTS", 40), ("PAIRS", 45)):
        monkeypatch.setattr(sweep, f"CHUNK_{size}", smaller)
    shuffled = recs.take(np.random.default_rng(0).permutation(len(recs)))
    parts = eh.audit({"mine": shuffled}, train=split.train, test=split.test, k=(2, 8))
    for one, other in zip(whole.rows, parts.rows, strict=True):
        for name, estimate in one.metrics.items():
            assert other.metrics[name].value == pytest.approx(estimate.value, nan_ok=True), name
            if METRICS[name].of_sums is None:  # other draws fall to other users
                assert other.metrics[name].low == pytest.approx(estimate.low), name
    assert [row.size for row in whole.slices] == [row.size for row in parts.slices]
    assert whole.examples == parts.examples
    assert repr(parts) == "Audit(mine; top 2, 8; against train and test)"
