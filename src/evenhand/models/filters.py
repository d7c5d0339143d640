"""Who gets a list and what may be in it: from ids of other systems to the model's indices, and back.

Lists of what is in stock, of whom to write to and of what somebody has returned come from other systems and name users
and items that a model has never seen. Those are counted in a note, and the rest counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.reading.columns import NoRowsError
from evenhand.data.reading.read import as_interactions
from evenhand.models.topk import top_by
from evenhand.utils.errors import InputError
from evenhand.utils.text import count

_NOTES = b"evenhand.notes"
"""Where a table of recommendations keeps its notes: in the metadata of its schema."""
_FALLBACK = "the popular items instead"
_SHOWN = 10
_COMPARED, _LONGEST = 50_000, 100
"""Ids among which a near one is looked for, and characters of such an id; comparing more would take seconds."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What a call of `recommend` asks for, in the model's own indices."""

    users: np.ndarray
    """int64: whom the model itself serves."""
    others: pa.Array
    """Ids of those who get the popular items instead, with `fallback`."""
    allowed: Tensor | None
    """bool [n_items]: what may be recommended to anyone; None where all may."""
    pairs: Interactions | None
    """What is left out for single users, over the users and items of the model."""
    pairs_of_others: Interactions | None
    """The same for `others`."""
    notes: tuple[str, ...]

    @staticmethod
    def of(
        known: Interactions,
        users: Any = None,
        exclude: Any = None,
        only: Any = None,
        exclude_pairs: Any = None,
        fallback: bool = False,
    ) -> Asked:
        notes: list[str] = []
        asked = known.user_ids if users is None else as_ids(users, "user")
        place = np.arange(known.n_users) if users is None else positions(asked, known.user_ids)
        strange = place < 0
        if strange.any():
            notes.append(f"{_counted(strange, 'user')} unknown to the model; {_FALLBACK if fallback else 'no list'}.")
        if fallback:
            new = ~strange & (known.activity[np.maximum(place, 0)] == 0)
            if new.any():
                notes.append(f"{_counted(new, 'user')} without history; {_FALLBACK}.")
            strange |= new
        others = asked.filter(pa.array(strange)) if fallback else asked[:0]
        allowed = _allowed(known.item_ids, exclude, only, notes)
        pairs = of_others = None
        if exclude_pairs is not None:
            with suppress(NoRowsError):
                given = as_interactions(exclude_pairs)
                for noun in ("user", "item"):
                    own, there = (getattr(log, f"{noun}_ids") for log in (given, known))
                    new = positions(own, there) < 0
                    if new.any():
                        notes.append(f"{_counted(new, noun, ' in the pairs to exclude')} unknown to the model.")
                pairs = _over(given, known.user_ids, known.item_ids)
                of_others = _over(given, others, known.item_ids) if len(others) else None
        return Asked(place[~strange], others, allowed, pairs, of_others, tuple(notes))

    def cut(self, begin: int, end: int, others: bool) -> Asked:
        """The same for some of the users, and with or without those who get the popular items."""
        if others:
            return replace(self, users=self.users[begin:end])
        return replace(self, users=self.users[begin:end], others=self.others[:0], pairs_of_others=None)

    def left_out(self, known: Interactions | None) -> Interactions | None:
        """All pairs that no list may hold: those of the log, if they are given, and those of single users."""
        if known is None or self.pairs is None:
            return self.pairs if known is None else known
        return known.union(self.pairs)

    def popular_lists(self, known: Interactions, k: int) -> pa.Table:
        """The k most popular of the allowed items for each of `others`; the score is the number of users."""
        n = len(self.others)
        pairs = self.pairs_of_others
        # Most have nothing left out, and share one list: that of an additional user.
        own = np.zeros(n, dtype=bool) if pairs is None else pairs.activity > 0
        rows = np.append(np.flatnonzero(own), n)
        counts = torch.from_numpy(known.popularity.astype(np.float32))
        exclude = None
        if pairs is not None:
            exclude = Interactions.from_pairs(pairs.users, pairs.items, n_users=n + 1, n_items=known.n_items)
        items, scores = top_by(
            lambda users: counts.repeat(len(users), 1), known.n_items, rows, k, exclude=exclude, only=self.allowed
        )
        slot = np.full(n, len(rows) - 1)
        slot[own] = np.arange(own.sum())
        named = Interactions.from_pairs([], [], user_ids=self.others, item_ids=known.item_ids)
        return list_table(named, np.arange(n), items[slot], scores[slot])


def with_notes(table: pa.Table, notes: Iterable[str]) -> pa.Table:
    """The table with more notes, for `notes_of` to find."""
    every = [*notes_of(table), *notes]
    if not every:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _NOTES: json.dumps(every).encode()})


def notes_of(table: pa.Table) -> tuple[str, ...]:
    """What a reader should know about these recommendations: ids that were not known, users without a list."""
    return tuple(json.loads((table.schema.metadata or {}).get(_NOTES, b"[]")))


def _allowed(item_ids: pa.Array, exclude: Any, only: Any, notes: list[str]) -> Tensor | None:
    if exclude is None and only is None:
        return None
    allowed = torch.full((len(item_ids),), only is None)
    for given, name, value in ((only, "only", True), (exclude, "exclude", False)):
        if given is None:
            continue
        asked = as_ids(given, "item")
        place = positions(asked, item_ids)
        if (place < 0).any():
            notes.append(f"{_counted(place < 0, 'item', f' in `{name}`')} unknown to the model.")
        allowed[place[place >= 0]] = value
        if name == "only" and not len(asked):
            raise InputError("nothing is left to recommend: `only` is empty, so no item is allowed.")
    if not allowed.any():
        raise InputError("nothing is left to recommend: `only` and `exclude` leave out every item.")
    return allowed


def _counted(mask: np.ndarray, noun: str, where: str = "") -> str:
    """`3 of 12 users are`, `1 of 1 user is`."""
    n = int(mask.sum())
    return f"{n:,} of {count(len(mask), noun)}{where} {'is' if n == 1 else 'are'}"


def _over(pairs: Interactions, user_ids: pa.Array, item_ids: pa.Array) -> Interactions:
    """Those of the pairs whose user and item are among the ids."""
    users = positions(pairs.user_ids, user_ids)[pairs.users]
    items = positions(pairs.item_ids, item_ids)[pairs.items]
    both = (users >= 0) & (items >= 0)
    return Interactions.from_pairs(users[both], items[both], user_ids=user_ids, item_ids=item_ids)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Recommendations of several calls as one table, with the notes of each."""
    table = pa.concat_tables([one.replace_schema_metadata() for one in tables])
    return with_notes(table, dict.fromkeys(note for one in tables for note in notes_of(one)))


def usable_history(source: Any, model: Interactions) -> Interactions:
    """A history over the model's items and the users who have any of them; its notes say what could not be used."""
    history = as_interactions(source)
    usable = (positions(history.item_ids, model.item_ids) >= 0)[history.items]
    left = np.bincount(history.users[usable], minlength=history.n_users) > 0
    if not left.any():
        raise InputError("none of the new users' items is known to the model; check the item column.")
    notes = list(history.notes)
    unknown = len(np.unique(history.items[~usable]))
    if unknown:
        notes.append(
            f"{count(unknown, 'item')} of the new users ({(~usable).sum():,} of "
            f"{count(len(history), 'pair')}) "
            + ("is unknown to the model and was" if unknown == 1 else "are unknown to the model and were")
            + " ignored."
        )
    if not left.all():
        names = listed(history.user_ids.filter(pa.array(~left)).to_pylist())
        notes.append(f"Left out, having no item that the model knows: {names}.")
    found = _over(history, history.user_ids.filter(pa.array(left)), model.item_ids)
    again = positions(found.user_ids, model.user_ids) >= 0
    if again.any():
        notes.append(
            f"{_counted(again, 'user')} known to the model already; scores come of the history given now, and what it "
            "knew of them is not recommended either."
        )
    return found.with_notes(*notes)


def with_earlier(history: Interactions, model: Interactions) -> Interactions:
    """The history, and what the model knew of the same users: neither is recommended again."""
    earlier = _over(model, history.user_ids, history.item_ids)
    return history.union(earlier).with_notes(*history.notes) if len(earlier) else history


def as_ids(given: Any, kind: str) -> pa.Array:
    """Ids in any form (one, a list, a numpy, pandas or Arrow array) as an Arrow array."""
    if isinstance(given, (pa.Array, pa.ChunkedArray)):
        return given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    if isinstance(given, (str, int)):
        given = [given]
    try:
        return pa.array(list(given))
    except (pa.ArrowException, TypeError):
        raise InputError(f"{kind}s must be ids of one type, integers or strings.") from None


def positions(asked: pa.Array, ids: pa.Array) -> np.ndarray:
    """int64: where each asked id stands in `ids`, -1 where it does not.

    Ids of another type are compared by their text, so that "17" out of a file means the item 17; "017" is another.
    """
    try:
        same = ids.type if _is_text(asked) == _is_text(ids) else pa.string()
        found = pc.index_in(asked.cast(same), value_set=ids.cast(same))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        found = pc.index_in(asked.cast(pa.string()), value_set=ids.cast(pa.string()))
    return np.asarray(found.fill_null(-1), dtype=np.int64)


def _is_text(ids: pa.Array) -> bool:
    return pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)


def known_position(given: Any, ids: pa.Array, kind: str) -> int:
    """Where one id stands; an unknown one is an error that names those spelled alike."""
    asked = as_ids([given], kind)
    place = int(positions(asked, ids)[0])
    if place < 0:
        raise InputError(f"1 unknown {kind}: {asked[0].as_py()!r}{_near(str(asked[0].as_py()), ids)}")
    return place


def listed(values: Iterable[Any]) -> str:
    """The first ten, and how many more there are.

    >>> listed(["a", "b"]), listed(range(12))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    all_of_them = list(values)
    some = ", ".join(repr(value) for value in all_of_them[:_SHOWN])
    rest = len(all_of_them) - _SHOWN
    return f"{some} and {rest:,} more" if rest > 0 else some


def _near(text: str, ids: pa.Array) -> str:
    """The end of the sentence: ids spelled alike; none for integers, which have no likeness."""
    if not pa.types.is_string(ids.type) or len(text) > _LONGEST:
        return "."
    if len(ids) > _COMPARED:
        ids = ids.filter(pc.starts_with(ids, text[:2], ignore_case=True))[:_COMPARED]
    by_lower = {name.lower(): name for name in ids.to_pylist()}
    near = get_close_matches(text.lower(), by_lower, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(by_lower[name]) for name in near)}?" if near else "."


def list_table(vocabulary: Interactions, users: np.ndarray, items: np.ndarray, scores: np.ndarray) -> pa.Table:
    """Lists by index, as `top_by` makes them, as a table with ids: user, item, score, rank."""
    real = items >= 0
    rank = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    return pa.table(
        {
            "user": vocabulary.user_ids.take(pa.array(np.repeat(users, real.sum(1)))),
            "item": vocabulary.item_ids.take(pa.array(items[real])),
            "score": pa.array(scores[real]),
            "rank": pa.array(rank[real].astype(np.int32)),
        }
    )
