from fractions import Fraction
from math import floor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.reading.read import read_interactions
from evenhand.data.splits import Split, given_split, split_interactions
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

Pairs = set[tuple[object, object]]
HOWS = ["random", "per-user", "leave-last-out", "time"]


def pairs(data: Interactions | None) -> Pairs:
    if data is None:
        return set()
    table = data.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def log(rows: list[tuple[int, int, int]]) -> Interactions:
    users, items, times = zip(*rows, strict=True)
    return Interactions.from_pairs(users, items, timestamps=times)


logs = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 15), st.integers(0, 9)),
    min_size=1,
    max_size=80,
    unique_by=lambda row: row[:2],
)
shares = st.integers(1, 99).map(lambda percent: percent / 100)


def split_or_none(data: Interactions, **options: Any) -> Split | None:
    """None where a part would be empty, which is an error of its own."""
    try:
        return split_interactions(data, **options)
    except InputError as error:
        if "is empty" not in str(error):
            raise
        return None


@pytest.mark.parametrize("how", HOWS)
@given(rows=logs, test=shares, validation=st.just(0.0) | shares, seed=st.integers(0, 5), order=st.randoms())
def test_parts_are_disjoint_and_whole_and_repeatable(how, rows, test, validation, seed, order) -> None:
    data = log(rows)
    options = {"test": test, "validation": validation, "seed": seed, "how": how}
    split = split_or_none(data, **options)
    if split is None:
        return
    assert (split.validation is None) == (validation == 0)
    parts = [pairs(split.train), pairs(split.validation), pairs(split.test)]
    assert parts[0] | parts[1] | parts[2] == pairs(data)
    assert sum(map(len, parts)) == len(data)
    assert pairs(split.consumed) == parts[0] | parts[1]
    order.shuffle(rows)
    again = split_interactions(log(rows), **options)
    assert [pairs(again.train), pairs(again.validation), pairs(again.test)] == parts


@pytest.mark.parametrize("how", HOWS)
@given(rows=logs)
def test_ratings_and_times_stay_with_their_pairs(how, rows) -> None:
    users, items, times = zip(*rows, strict=True)
    split = split_or_none(Interactions.from_pairs(users, items, ratings=times, timestamps=times), how=how)
    if split is None:
        return
    when = {(user, item): time for user, item, time in rows}
    for part in (split.train, split.validation, split.test):
        for row in part.to_table().to_pylist():
            assert when[row["user"], row["item"]] == row["timestamp"] == row["rating"]


@given(rows=logs, test=shares, validation=st.just(0.0) | shares, seed=st.integers(0, 5))
def test_random_takes_the_shares_of_all_pairs(rows, test, validation, seed) -> None:
    split = split_or_none(log(rows), test=test, validation=validation, seed=seed)
    if split is not None:
        assert len(split.test) == round(test * len(rows))
        assert len(split.consumed) - len(split.train) == round(validation * (len(rows) - len(split.test)))


@given(rows=logs, test=shares, validation=st.just(0.0) | shares)
def test_per_user_takes_each_users_share_rounded_down(rows, test, validation) -> None:
    split = split_or_none(log(rows), test=test, validation=validation, how="per-user")
    if split is None:
        return
    for user in range(split.n_users):
        n = sum(1 for row in rows if row[0] == user)
        n_test = floor(Fraction(str(test)) * n)
        assert len(split.test.row(user)) == n_test
        assert len(split.train.row(user)) == n - n_test - floor(Fraction(str(validation)) * (n - n_test))


@given(rows=logs, validation=st.sampled_from([0.0, 0.1]))
def test_leave_last_out_takes_the_last_of_each_user(rows, validation) -> None:
    split = split_or_none(log(rows), validation=validation, how="leave-last-out")
    last: Pairs = set()
    before: Pairs = set()
    for user in {row[0] for row in rows}:
        own = sorted((time, item) for other, item, time in rows if other == user)
        if len(own) >= (3 if validation else 2):
            last.add((user, own[-1][1]))
            if validation:
                before.add((user, own[-2][1]))
    assert (split is None) == (not last)
    if split is not None:
        assert pairs(split.test) == last
        assert pairs(split.validation) == before


def assert_nearest_cut(early: list[float], late: list[float], share: float) -> None:
    """`late` is the last share of both, up to the nearest change of moment where there is one."""
    times = sorted(early + late)
    target = len(times) - round(share * len(times))
    changes = [cut for cut in range(1, len(times)) if times[cut - 1] < times[cut]]
    assert max(early) <= min(late)
    if changes:
        assert max(early) < min(late)
        assert abs(len(early) - target) == min(abs(cut - target) for cut in changes)
    else:
        assert len(early) == target


@given(rows=logs, test=shares, validation=st.just(0.0) | shares)
def test_time_cuts_between_moments_as_near_to_the_share_as_it_can(rows, test, validation) -> None:
    split = split_or_none(log(rows), test=test, validation=validation, how="time")
    if split is None:
        return
    train, late = split.train.timestamps.tolist(), split.test.timestamps.tolist()
    middle = [] if split.validation is None else split.validation.timestamps.tolist()
    assert_nearest_cut(train + middle, late, test)
    if middle:
        assert_nearest_cut(train, middle, validation)


def test_time_divides_one_moment_by_seed_and_says_so() -> None:
    data = log([(user, item, 5) for user in range(10) for item in range(10)])
    split = split_interactions(data, validation=0, seed=1, how="time")
    assert len(split.test) == 20
    assert len(set(split.test.users.tolist())) > 4  # not simply the last two users
    assert split.notes == ("The test part starts amid pairs of one moment, divided by split seed 1.",)


def test_seeds_differ_and_test_does_not_depend_on_validation() -> None:
    data = log([(user, item, 0) for user in range(20) for item in range(20)])
    one, other = split_interactions(data, seed=0), split_interactions(data, seed=1)
    assert pairs(one.test) != pairs(other.test)
    assert pairs(split_interactions(data, seed=0, validation=0).test) == pairs(one.test)


def test_a_split_is_fixed_for_good() -> None:
    """Worked out once: published numbers rest on it, so no change of ours or of numpy may move it."""
    data = log([(user, item, 0) for user in range(3) for item in range(3)])
    split = split_interactions(data, test=0.3, validation=0.3, seed=0)
    assert split.description == "random: test 30 % of the pairs, validation 30 % of the rest, split seed 0"
    assert pairs(split.test) == {(0, 1), (0, 2), (1, 0)}
    assert pairs(split.validation) == {(2, 0), (2, 2)}


def test_items_only_in_test_are_noted() -> None:
    data = log([(0, 0, 1), (0, 1, 2), (1, 1, 3), (2, 2, 4)])
    split = split_interactions(data, test=0.25, validation=0, how="time")
    assert split.notes == ("1 item and 1 user of the test part never occur in train; they are kept.",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "test share is 0;"),
        ({"test": 1.0}, "test share is 1;"),
        ({"validation": 1}, "validation share is 1;"),
        ({"validation": -0.1}, "validation share is -0.1;"),
        ({"test": float("nan")}, "test share is nan;"),
        ({"seed": -1}, "split seed is -1;"),
        ({"how": "peruser"}, "did you mean 'per-user'"),
        ({"how": "time"}, "needs timestamps"),
        ({"how": "leave-last-out"}, "needs timestamps"),
        ({"test": 0.01, "validation": 0.5}, "the test part of the random split is empty"),
        ({"test": 0.99}, "the train part of the random split is empty"),
        ({"validation": 0.01}, "the validation part of the random split is empty"),
    ],
)
def test_mistakes_are_reported(options, message) -> None:
    with pytest.raises(InputError, match=message):
        split_interactions(Interactions.from_pairs([0, 0, 1, 1], [0, 1, 0, 1]), **options)


def test_missing_timestamps_are_reported() -> None:
    data = Interactions.from_pairs([0, 0], [0, 1], timestamps=[1.0, float("nan")])
    with pytest.raises(InputError, match="but 1 have none"):
        split_interactions(data, how="time")


def with_ids(rows: list[tuple[object, object]], **columns: list[float]) -> Interactions:
    users, items = zip(*rows, strict=True)
    table = pa.table({"user": list(users), "item": list(items), **columns})
    return read_interactions(table, allow_small=True)


ids = st.integers(-5, 12) | st.integers(2**40, 2**40 + 3)
id_pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=40, unique=True)


@given(train=id_pairs, test=id_pairs, as_text=st.booleans())
def test_given_parts_share_one_sorted_vocabulary(train, test, as_text) -> None:
    if as_text:
        train, test = ([(f"u{u}", f"i{i}") for u, i in part] for part in (train, test))
    left = set(test) - set(train)
    if not left:
        with pytest.raises(InputError, match="the test part is empty"):
            given_split(with_ids(train), with_ids(test))
        return
    split = given_split(with_ids(train), with_ids(test))
    assert pairs(split.train) == set(train)
    assert pairs(split.test) == left
    for side, vocabulary in enumerate((split.train.user_ids, split.train.item_ids)):
        assert vocabulary.to_pylist() == sorted({row[side] for row in train + test})
    assert split.train.user_ids.equals(split.test.user_ids)
    assert split.train.item_ids.equals(split.test.item_ids)
    repeated = len(set(test) & set(train))
    sentence = "1 test pair also occurs in train; it is left out."
    if repeated != 1:
        sentence = f"{repeated} test pairs also occur in train; they are left out."
    assert (sentence in split.notes) == bool(repeated)
    new = [len({row[side] for row in left} - {row[side] for row in train}) for side in (1, 0)]
    items, users = count(new[0], "item"), count(new[1], "user")
    strangers = f"{items} and {users} of the test part never occur in train; they are kept."
    assert (strangers in split.notes) == any(new)


def test_given_parts_keep_ratings_and_times() -> None:
    train = with_ids([(5, 9), (3, 9), (5, 2)], rating=[1.0, 2.0, 3.0], timestamp=[10, 20, 30])
    split = given_split(train, with_ids([(4, 1)], rating=[5.0], timestamp=[40]))
    rows = split.train.to_table().to_pylist()
    assert [tuple(row.values()) for row in rows] == [(3, 9, 2.0, 20.0), (5, 2, 3.0, 30.0), (5, 9, 1.0, 10.0)]
    assert split.test.ratings.tolist() == [5.0]


def test_validation_is_drawn_from_train_or_given() -> None:
    train = with_ids([(user, item) for user in range(10) for item in range(10)])
    test = with_ids([(0, 50)])
    drawn = given_split(train, test, validation=0.2, seed=3)
    assert len(drawn.validation) == 20
    assert pairs(drawn.consumed) == pairs(train)
    assert pairs(given_split(train, test, validation=0.2, seed=3).train) == pairs(drawn.train)
    assert pairs(given_split(train, test, validation=0.2, seed=4).train) != pairs(drawn.train)

    given_part = given_split(train, with_ids([(0, 50), (0, 60)]), validation_part=with_ids([(1, 1), (0, 60)]))
    assert pairs(given_part.validation) == {(0, 60)}
    assert pairs(given_part.test) == {(0, 50)}
    assert given_part.notes[:2] == (
        "1 validation pair also occurs in train; it is left out.",
        "1 test pair also occurs in train or validation; it is left out.",
    )
    with pytest.raises(InputError, match="not both"):
        given_split(train, test, validation=0.1, validation_part=test)


NOTE = "The {} ids of {} are integers, elsewhere strings; all count as strings here."


def test_integers_beside_strings_count_as_strings(tmp_path) -> None:
    """Ids as two text files spell them: the test file happens to hold integers alone."""
    (tmp_path / "train.csv").write_text("user,item\n9,a1\n9,5\n10,5\n2,10\n")
    (tmp_path / "test.csv").write_text("user,item\n10,10\n9,5\n2,-7\n")
    train, test = (read_interactions(tmp_path / f"{name}.csv") for name in ("train", "test"))
    split = given_split(train, test)
    assert pairs(split.train) == {(9, "a1"), (9, "5"), (10, "5"), (2, "10")}
    assert pairs(split.test) == {(10, "10"), (2, "-7")}
    assert split.train.user_ids.to_pylist() == [2, 9, 10]
    assert split.test.item_ids.to_pylist() == ["-7", "10", "5", "a1"]
    assert split.notes == (
        NOTE.format("item", "test"),
        "1 test pair also occurs in train; it is left out.",
        "1 item and 0 users of the test part never occur in train; they are kept.",
    )


@given(train=id_pairs, test=id_pairs, validation=id_pairs)
def test_a_part_of_strings_makes_all_strings_and_keeps_each_pair(train, test, validation) -> None:
    new = [("u", "i")]  # no integer, so that this part reads as strings and is not empty
    written = [(str(user), str(item)) for user, item in test] + new
    split = given_split(with_ids(train), with_ids(written), validation_part=with_ids([*validation, (-9, -9)]))
    as_text = [{(str(user), str(item)) for user, item in part} for part in (train, [*validation, (-9, -9)])]
    assert pairs(split.train) == as_text[0]
    assert pairs(split.validation) == as_text[1] - as_text[0]
    assert pairs(split.test) == set(written) - as_text[0] - as_text[1]
    assert split.notes[:2] == tuple(NOTE.format(kind, "train and validation") for kind in ("user", "item"))


def test_the_published_split_of_movielens(shared_data) -> None:
    folder = shared_data / "ml-100k"
    split = given_split(read_interactions(folder / "paper_train.csv"), read_interactions(folder / "paper_test.csv"))
    assert (len(split.train), len(split.test), split.n_users, split.n_items) == (80_000, 20_000, 943, 1_682)
    assert split.notes == ("35 items and 0 users of the test part never occur in train; they are kept.",)
