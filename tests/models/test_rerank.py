"""Re-ranking: each method against its formula in plain loops, its limits, and oddities of foreign lists."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.models.rerank import GRID, METHODS, Trial, best_trial, rerank_lists
from evenhand.models.rerank_rules import Popularity, popularity_groups
from evenhand.utils.errors import InputError
from run_cli import evenhand, write_log

Lists = dict[int, list[tuple[int, float]]]
"""user → candidates (item, score), in the order of the table."""


def table(lists: Lists, **more: Any) -> pa.Table:
    rows = [(user, item, score) for user, row in lists.items() for item, score in row]
    users, items, scores = zip(*rows, strict=True)
    columns = {"user": users, "item": items, "score": scores} | more
    return pa.table({name: list(values) for name, values in columns.items()})


def shown(found: pa.Table) -> dict[int, list[int]]:
    """user → items by rank."""
    lists: dict[int, list[int]] = {}
    for row in found.to_pylist():
        lists.setdefault(row["user"], []).append(row["item"])
        assert row["rank"] == len(lists[row["user"]])
    return lists


# The oracle: the formulas of docs/rerank.md, one candidate at a time.


def js(p: list[float], q: list[float]) -> float:
    total = 0.0
    for a, b in zip(p, q, strict=True):
        middle = (a + b) / 2
        total += (a * math.log2(a / middle) / 2 if a else 0) + (b * math.log2(b / middle) / 2 if b else 0)
    return total


def tier(counts: dict[int, int], item: int) -> int:
    count, total = counts.get(item, 0), sum(counts.values())
    hotter = sum(n for n in counts.values() if n > count)
    if not count or hotter >= 0.8 * total:
        return 2
    return 0 if hotter < 0.2 * total else 1


def mix(history: list[int], everybody: list[int], n: int) -> list[float]:
    groups = history or everybody
    return [groups.count(g) / len(groups) for g in range(n)]


def standardised(values: list[float]) -> list[float]:
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))
    return [(x - mean) / spread if max(values) > min(values) else 0.0 for x in values]


def oracle(method: str, train: Interactions, user: int, row: Any, strength: float, k: int) -> list[int]:
    row = sorted(row, key=lambda pair: -pair[1])
    items, scores = [item for item, _ in row], [score for _, score in row]
    counts = dict(enumerate(train.popularity.tolist()))
    low, high = min(scores), max(scores)
    relevance = [(s - low) / (high - low) if high > low else 1.0 for s in scores]
    history = train.row(user).tolist() if user < train.n_users else []
    if method == "compensated":
        fame = standardised([math.log1p(counts.get(item, 0)) for item in items])
        pairs = zip(standardised(relevance), fame, strict=True)
        values = [round((1 - strength) * z - strength * f, 12) for z, f in pairs]
        return [items[i] for i in sorted(range(len(items)), key=lambda i: -values[i])[:k]]

    hot = hot_items(train.popularity).tolist() + [False] * 100
    groups = {item: tier(counts, item) if method == "calibrated" else int(not hot[item]) for item in range(20)}
    n = 3 if method == "calibrated" else 2
    wanted = mix([groups[i] for i in history], [groups[i] for i in train.items.tolist()], n)
    picked: list[int] = []

    def value(i: int) -> float:
        mine = groups[items[i]]
        so_far = [groups[items[j]] for j in picked]
        if method == "calibrated":
            gain = -js(wanted, mix([*so_far, mine], [], n))
        elif method == "xquad":
            gain = wanted[mine] * (1 - so_far.count(mine) / max(len(so_far), 1))
        else:
            gain = wanted[mine] * math.prod(1 - (g == mine) for g in so_far)
        return round((1 - strength) * relevance[i] + strength * gain, 12)

    while len(picked) < min(k, len(items)):
        rest = [i for i in range(len(items)) if i not in picked]
        picked.append(max(rest, key=lambda i: (value(i), -i)))
    return [items[i] for i in picked]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Interactions, Lists]:
    """A small train part, and lists in which users 4 and 5 and items from 9 on are unknown to it."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=25))
    train = Interactions.from_pairs([u for u, _ in pairs], [i for _, i in pairs], n_users=4, n_items=9)
    scores = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(-3, 3, width=16))
    lists: Lists = {0: [(0, 0.5), (8, 0.25)]}
    for user in draw(st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=4)):
        items = draw(st.lists(st.integers(0, 11), unique=True, min_size=1, max_size=9))
        lists[user] = [(item, draw(scores)) for item in items]
    return train, lists


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=120, deadline=None)
@given(case=cases(), strength=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), k=st.integers(1, 10))
def test_every_method_does_what_its_formula_says(
    method: str, case: tuple[Interactions, Lists], strength: float, k: int
) -> None:
    train, lists = case
    found = shown(eh.rerank(table(lists), train, method, strength, k))
    assert found == {user: oracle(method, train, user, lists[user], strength, k) for user in sorted(lists)}


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=40, deadline=None)
@given(case=cases(), k=st.integers(1, 10))
def test_strength_zero_returns_the_order_that_came_in(method: str, case: tuple[Interactions, Lists], k: int) -> None:
    train, lists = case
    found = shown(eh.rerank(table(lists), train, method, 0.0, k))
    for user, row in lists.items():
        assert found[user] == [item for item, _ in sorted(row, key=lambda pair: -pair[1])][:k]


# A world whose answers can be seen: items 0…3 are hits, 4…19 are niches; user 0 likes niches, user 1 hits.


def world() -> tuple[Interactions, Lists]:
    pairs = [(user, item) for user in range(2, 40) for item in range(4)]
    pairs += [(0, item) for item in range(4, 8)] + [(1, item) for item in range(4)]
    train = Interactions.from_pairs([u for u, _ in pairs], [i for _, i in pairs], n_users=40, n_items=24)
    candidates = [(item, 1 - place / 10) for place, item in enumerate([0, 1, 2, 3, 8, 9, 10, 11])]
    return train, {0: candidates, 1: candidates}


def test_the_mix_follows_the_history() -> None:
    train, lists = world()
    found = shown(eh.rerank(table(lists), train, "calibrated", 1.0, k=4))
    assert found == {0: [8, 9, 10, 11], 1: [0, 1, 2, 3]}


def test_a_middle_strength_weighs_both() -> None:
    # Relevance falls by 1/7 a place. For user 0 the first pick is 1 - λ - λ JS = 0 (item 0) against
    # (1 - λ) 3/7 (item 8) at λ = ½; then item 0 at 0.5 - JS((0, 1), (½, ½)) / 2 against item 9 at 0.5 * 2/7.
    train, lists = world()
    assert js([0, 1], [0.5, 0.5]) == pytest.approx(0.311278)
    assert shown(eh.rerank(table(lists), train, "calibrated", 0.5, k=2))[0] == [8, 0]


def test_more_strength_never_shows_more_hits() -> None:
    train, lists = world()
    for method in ("calibrated", "xquad", "compensated"):
        hits = [sum(item < 4 for item in shown(eh.rerank(table(lists), train, method, s, k=4))[0]) for s in GRID]
        assert hits == sorted(hits, reverse=True)
        assert hits[0] == 4
        assert hits[-1] <= 2


def test_full_compensation_shows_the_least_popular_first() -> None:
    train = Interactions.from_pairs([0, 1, 2, 1, 2, 2], [0, 0, 0, 1, 1, 2])
    found = shown(eh.rerank(table({0: [(0, 9.0), (1, 5.0), (2, 1.0)]}), train, "compensated", 1.0))
    assert found == {0: [2, 1, 0]}


def test_binary_coverage_is_content_with_one_smooth_coverage_is_not() -> None:
    train, lists = world()
    binary, smooth = (shown(eh.rerank(table(lists), train, m, 0.8, k=4))[0] for m in ("xquad-binary", "xquad"))
    assert binary == [8, 0, 1, 2]
    # User 0 has cold items only. After 8, 0, 9 two of three are cold: 0.2 / 7 + 0.8 / 3 beats 0.2 * 6 / 7.
    assert smooth == [8, 0, 9, 10]


def test_ties_go_to_who_stood_higher() -> None:
    train, _ = world()
    same = {0: [(item, 1.0) for item in (9, 3, 8, 1)], 1: [(item, 1.0) for item in (1, 9, 3, 8)]}
    for method in METHODS:
        found = shown(eh.rerank(table(same), train, method, 0.0))
        assert found == {0: [9, 3, 8, 1], 1: [1, 9, 3, 8]}
    assert shown(eh.rerank(table(same), train, "compensated", 1.0)) == {0: [9, 8, 3, 1], 1: [9, 8, 1, 3]}


def test_scores_of_any_size_make_the_same_lists() -> None:
    train, lists = world()
    for method in METHODS:
        expected = shown(eh.rerank(table(lists), train, method, 0.4, k=4))
        for size, middle in ((1e300, 0), (1e-3, 4.0), (1.7e308, 0)):
            scaled = {
                user: [(item, middle + (score - 0.65) / 0.35 * size) for item, score in row]
                for user, row in lists.items()
            }
            assert shown(eh.rerank(table(scaled), train, method, 0.4, k=4)) == expected


def test_lists_of_unequal_length_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(0)
    train = Interactions.from_pairs(rng.integers(0, 30, 400), rng.zipf(1.5, 400) % 60, n_users=30, n_items=60)
    lists: Lists = {
        user: [(int(i), float(rng.normal())) for i in rng.permutation(60)[: 1 + 2 * user]] for user in range(30)
    }
    for method in METHODS:
        together = shown(eh.rerank(table(lists), train, method, 0.5, k=7))
        for user, row in lists.items():
            assert shown(eh.rerank(table({user: row}), train, method, 0.5, k=7))[user] == together[user]


# Popularity groups and mixes.


def test_groups_are_cut_by_share_of_interactions_and_ties_stay_together() -> None:
    assert popularity_groups(np.array([1, 1, 1, 1])).tolist() == [0, 0, 0, 0]
    assert popularity_groups(np.array([10, 10, 10, 70, 0])).tolist() == [1, 1, 1, 0, 2]
    assert popularity_groups(np.array([1, 3, 3, 3])).tolist() == [2, 0, 0, 0]


def test_users_without_history_get_everybodys_mix() -> None:
    train = Interactions.from_pairs([0, 1, 1, 1], [0, 0, 1, 2], n_users=3, n_items=4)
    sides = Popularity.of(train).sides
    assert sides.groups.tolist() == [0, 1, 1, 1, 1]
    assert sides.mixes.tolist() == [[1, 0], [1 / 3, 2 / 3], [1 / 2, 1 / 2], [1 / 2, 1 / 2]]


# What comes in and goes out.


def test_the_table_that_goes_out_keeps_scores_ids_and_seeds() -> None:
    train, lists = world()
    seeds = pa.concat_tables([table(lists, seed=[3] * 16), table({0: [(9, 0.3), (0, 0.2)]}, seed=[1] * 2)])
    found = eh.rerank(seeds, train, "calibrated", 1.0, k=2)
    assert found.column_names == ["user", "item", "score", "rank", "seed"]
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (0, 9, 0.3, 1, 1),
        (0, 0, 0.2, 2, 1),
        (0, 8, 0.6, 1, 3),
        (0, 9, 0.5, 2, 3),
        (1, 0, 1.0, 1, 3),
        (1, 1, 0.9, 2, 3),
    ]


def test_ranks_decide_the_order_and_stand_in_for_missing_scores() -> None:
    train, lists = world()
    ranks = [*range(1, 9)] * 2
    by_rank = table(lists, rank=ranks).drop_columns(["score"])
    found = rerank_lists(by_rank, train, "calibrated", 0.5, k=2)
    assert shown(found.table)[0] == [8, 0]  # The scores of this world fall evenly with the rank.
    assert found.table["score"].to_pylist()[:2] == [1 - 4 / 8, 1.0]
    assert "There are no scores, so relevance falls evenly with the rank." in found.notes

    contradicted = table(lists, rank=ranks[::-1])
    found = rerank_lists(contradicted, train, "calibrated", 0.0, k=2)
    assert shown(found.table) == {0: [11, 10], 1: [11, 10]}
    assert any(note.startswith("In 2 lists scores contradict ranks") for note in found.notes)


def test_odd_lists_are_reported() -> None:
    train, _ = world()
    odd: Lists = {0: [(0, 3.0), (99, 2.0), (0, 1.0), (4, 0.5)], 77: [(1, 1.0), (8, 0.5)]}
    found = rerank_lists(table(odd), train, "calibrated", 0.0, k=3)
    assert shown(found.table) == {0: [0, 99, 4], 77: [1, 8]}
    assert found.notes == (
        "Ignored 1 row naming an item already higher in the same list.",
        "Kept 1 item that train does not know; such items count as cold.",
        "Kept the lists of 1 user whom train does not know; everybody's mix of hits and niches stands in for theirs.",
        "Kept 1 candidate that the user has in train, as the lists had them.",
        "2 of 2 lists hold 3 candidates or fewer, so that only their order can change; give longer lists, "
        "such as 5 times k.",
    )


def test_rows_without_an_order_are_dropped_and_a_missing_score_beside_a_rank_is_filled_in() -> None:
    train, _ = world()
    found = rerank_lists(table({0: [(0, 1.0), (1, math.nan), (2, math.inf)]}), train, "calibrated", 0.0, k=3)
    assert shown(found.table) == {0: [0]}
    assert found.notes[0] == "Dropped 2 rows without a finite score."
    ranked = table({0: [(0, 1.0), (1, math.nan), (2, 0.5)]}, rank=[1, 2, 3])
    found = rerank_lists(ranked, train, "calibrated", 0.0, k=3)
    assert shown(found.table) == {0: [0, 1, 2]}
    assert found.table["score"].to_pylist() == pytest.approx([1.0, 2 / 3, 0.5])
    assert found.notes[0] == "In 1 list scores are missing; there relevance falls evenly with the rank."


def test_numbers_and_their_texts_are_the_same_ids() -> None:
    train, lists = world()
    texts = table(lists)
    texts = texts.set_column(0, "user", texts["user"].cast(pa.string()))
    found = eh.rerank(texts, train, "calibrated", 1.0, k=4)
    assert found["user"].to_pylist() == ["0"] * 4 + ["1"] * 4
    assert found["item"].to_pylist() == [8, 9, 10, 11, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"recs": table({0: [(0, math.inf)]})},
            "no usable row is left of the Table: dropped 1 row",
        ),
        ({"recs": table({0: [(0, 1.0)]}, rank=[None])}, "no usable row .* without a finite rank"),
        ({"recs": table({0: [(0, 1.0)]}).drop_columns(["score"])}, "neither a column 'rank' nor 'score'"),
        ({"recs": table({0: [(77, 1.0)]})}, "no item of the Table is in train .'77' is not"),
        ({"recs": table({99: [(0, 1.0)]})}, "no user of the Table is in train"),
        ({"recs": table({0: [(0, 1.0), (1, 0.5)]}, name=["a", "b"])}, "lists of 2 recommenders"),
        ({"method": "calibrate"}, "unknown re-ranking method 'calibrate'; did you mean 'calibrated'"),
        ({"strength": 1.5}, "strength is 1.5; it must lie between 0 and 1"),
        ({"strength": math.nan}, "strength is nan"),
        ({"k": 0}, "k must be a whole number from 1 on, not 0"),
        ({"k": 2.5}, "k must be a whole number from 1 on, not 2.5"),
        ({"strength": 0.5, "validation": world()[0]}, "exclude each other"),
        ({"validation": world()[0]}, "the validation part is empty, or holds only pairs of train"),
        (
            {"validation": Interactions.from_pairs([0, 1], [20, 20])},
            "no list holds an item that its user has in validation",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(change: dict[str, Any], message: str) -> None:
    train, lists = world()
    with pytest.raises(InputError, match=message):
        eh.rerank(**({"recs": table(lists), "train": train} | change))


# The choice on validation.


def test_the_choice_is_the_lowest_ohr_that_accuracy_allows() -> None:
    trials = [
        Trial(strength, ndcg, ohr, 0, 0)
        for strength, ndcg, ohr in (
            (0.0, 0.5, 0.9),
            (0.1, 0.496, 0.8),
            (0.2, 0.498, 0.8),
            (0.3, 0.494, 0.1),
            (0.4, 0.6, 0.95),
        )
    ]
    assert best_trial(trials, 0.01).strength == 0.1
    assert best_trial(trials, 0.0).strength == 0.0
    assert best_trial(trials, 0.02).strength == 0.3


def chosen_world() -> tuple[Interactions, Lists, Interactions]:
    train, lists = world()
    return train, lists, Interactions.from_pairs([0, 0, 1], [8, 9, 0], n_users=40, n_items=24)


def test_trials_are_what_evaluate_finds_and_validation_items_leave_the_lists() -> None:
    train, lists, validation = chosen_world()
    seeds = pa.concat_tables([table(lists, seed=[s] * 16) for s in (0, 1)])
    found = rerank_lists(seeds, train, "calibrated", k=3, validation=validation)
    split = eh.given_split(train, validation)
    for trial in found.trials:
        again = eh.rerank(seeds, train, "calibrated", trial.strength, k=3)
        metrics = eh.evaluate(again, split, k=3).at(3).metrics
        for name in ("ndcg", "ohr", "ocr", "ucr"):
            assert getattr(trial, name) == pytest.approx(metrics[name].mean)
    assert found.strength == best_trial(found.trials).strength > 0
    assert {8, 9} & set(shown(found.table.filter(pa.compute.equal(found.table["seed"], 0)))[0]) == set()
    assert found.notes[:2] == (
        "Left out 1 validation pair that train has too.",
        "Left out 4 candidates that the user has in validation.",
    )


def test_a_k_beyond_all_lists_shows_them_whole() -> None:
    train, lists, validation = chosen_world()
    found = rerank_lists(table(lists), train, "xquad", k=10**12, validation=validation)
    assert {user: len(items) for user, items in shown(found.table).items()} == {0: 6, 1: 8}
    split = eh.given_split(train, validation)
    expected = eh.evaluate(table(lists), split, k=24).at(24).metrics
    assert found.trials[0].ndcg == pytest.approx(expected["ndcg"].mean)


# The command.


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    train, lists, validation = chosen_world()
    write_log(train, tmp_path / "train.csv")
    write_log(validation, tmp_path / "validation.csv")
    pq.write_table(table(lists), tmp_path / "recs.parquet")
    return tmp_path


def test_the_command_writes_what_python_returns(desk: Path) -> None:
    ended = evenhand(
        *("rerank", desk / "recs.parquet", "--train", desk / "train.csv", "--to", desk / "better.csv"),
        *("--method", "xquad", "--strength", 0.5, "-k", 3, "--json"),
    )
    assert (ended.code, ended.err) == (0, "")
    document = ended.document
    assert (document["rows"], document["method"], document["strength"], document["k"]) == (6, "xquad", 0.5, 3)
    assert document["choice"] is None
    expected = eh.rerank(str(desk / "recs.parquet"), str(desk / "train.csv"), "xquad", 0.5, 3)
    assert pa.csv.read_csv(desk / "better.csv").to_pydict() == expected.to_pydict()


def test_the_command_shows_its_choice(desk: Path) -> None:
    given = ("rerank", desk / "recs.parquet", "--train", desk / "train.csv", "--to", desk / "better.parquet")
    given = (*given, "--validation", desk / "validation.csv", "--k", 3)
    document = evenhand(*given, "--json").document
    assert [one["strength"] for one in document["choice"]["trials"]] == list(GRID)
    assert document["choice"]["tolerance"] == 0.01
    message = evenhand(*given, "--force").out
    (line,) = [line for line in message.splitlines() if line.rstrip().endswith("chosen")]
    assert float(line.split()[0]) == document["strength"]
    assert "for at most 1 % of NDCG@3" in message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tolerance", 0.1), "--tolerance belongs to the choice on --validation"),
        (("--hot", "paper"), "--hot belongs to the choice on --validation"),
        (("--to", "better.txt"), "must end in .parquet, .csv, .tsv"),
        (("--method", "mmr"), "unknown re-ranking method 'mmr'"),
        (("--tolerance", 2, "--validation", "validation.csv"), "the tolerance is 2"),
    ],
)
def test_the_command_refuses_in_one_line(
    desk: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[object, ...], message: str
) -> None:
    monkeypatch.chdir(desk)
    ended = evenhand("rerank", "recs.parquet", "--train", "train.csv", "--to", "better.csv", *more)
    assert ended.code == 2
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not (desk / "better.csv").exists()


def test_lists_may_call_their_columns_otherwise_than_train(desk: Path) -> None:
    named = pq.read_table(desk / "recs.parquet")
    other = {"user": "userId", "item": "movieId"}
    pq.write_table(named.rename_columns([other.get(name, name) for name in named.column_names]), desk / "other.parquet")
    given = ("rerank", desk / "other.parquet", "--train", desk / "train.csv", "--to", desk / "better.csv")
    refused = evenhand(*given)
    assert refused.code == 2
    assert "did you mean 'userId'? Name it with columns= or --rec-user." in refused.err
    assert evenhand(*given, "--rec-user", "userId", "--rec-item", "movieId").code == 0
    expected = eh.rerank(str(desk / "recs.parquet"), str(desk / "train.csv"))
    assert pa.csv.read_csv(desk / "better.csv").to_pydict() == expected.to_pydict()


def test_an_existing_file_stays_unless_forced(desk: Path) -> None:
    to = desk / "better.csv"
    to.write_text("mine")
    given = ("rerank", desk / "recs.parquet", "--train", desk / "train.csv", "--to", to)
    refused = evenhand(*given)
    assert (refused.code, to.read_text()) == (2, "mine")
    assert evenhand(*given, "--force").code == 0
    assert to.read_text().startswith('"user","item","score","rank"\n0,0,')
