"""Lines of items that are not sorted keep their order, and validation is the end of each line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from evenhand.data.interactions import Interactions
from evenhand.data.splits import given_split


def lines(path: Path, ordered: bool) -> Path:
    """Twenty users with ten items each, whose last item is item 100 or later."""
    draw = np.random.default_rng(0)
    with path.open("w") as file:
        for user in range(20):
            items = [*draw.permutation(60)[:9], 100 + user % 5]
            file.write(" ".join(map(str, [user, *(sorted(items) if ordered else items[::-1][1:] + items[-1:])])) + "\n")
    return path


def test_an_order_is_kept_and_the_end_of_each_line_held_out(tmp_path: Path) -> None:
    train = Interactions.read(lines(tmp_path / "train.txt", ordered=False))
    assert "which are in an order of their own: it was kept as time." in train.notes[0]
    assert sorted(set(np.round(train.timestamps, 6))) == pytest.approx([0.1 * place for place in range(1, 11)])
    test = Interactions.from_pairs([0], [0], user_ids=train.user_ids, item_ids=train.item_ids)
    split = given_split(train, test, validation=0.1)
    assert "by the time rule" in split.description
    assert split.validation is not None
    assert split.validation.activity.tolist() == [1] * 20
    assert min(split.validation.item_ids.to_pylist()[i] for i in split.validation.items) == 100
    # Asked for otherwise, it is otherwise.
    other = given_split(train, test, validation=0.1, validation_how="random")
    assert other.validation is not None
    assert min(other.validation.items) < 50


def test_sorted_lines_have_no_order(tmp_path: Path) -> None:
    train = Interactions.read(lines(tmp_path / "train.txt", ordered=True))
    assert train.timestamps is None
    test = Interactions.from_pairs([0], [0], user_ids=train.user_ids, item_ids=train.item_ids)
    assert "time" not in given_split(train, test, validation=0.1).description


def test_moments_are_no_order() -> None:
    train = Interactions.from_pairs([0, 0, 1, 1], [0, 1, 0, 2], timestamps=[5.0, 6.0, 7.0, 8.0])
    test = Interactions.from_pairs([0], [2])
    assert "time" not in given_split(train, test, validation=0.5).description
