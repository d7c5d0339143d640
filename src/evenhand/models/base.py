"""What every model can do, whatever its scores are made of: recommend, take in new users, be saved.

`FactorModel` is made of vectors, `ItemWeightModel` of weights between items, `BlendModel` of other models; whoever has
one need not ask which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.data.spread_log import SpreadLog
from evenhand.models.filters import (
    Asked,
    known_position,
    list_table,
    positions,
    usable_history,
    with_earlier,
    with_notes,
)
from evenhand.models.topk import TABLE_SLOT, Score, check_lists, top_by
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import count

if TYPE_CHECKING:
    from evenhand.models.factors import FactorModel
    from evenhand.models.new_items import NewItems


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Model(ABC):
    """A fitted recommender.

    A new kind says how it scores (`scorer`), what it is made of (`tensors`), what is like an item (`most_similar`) and
    how it takes in other users (`with_users`); lists, fold-in, saving and export follow. `folder` knows all kinds.
    """

    known: Interactions
    """Train and validation pairs: the vocabulary of users and items, and what is not recommended again."""
    seeds: tuple[int, ...]
    best: int = 0
    """Position of the replica that did best on validation: the one that recommends."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """How it came to be: method, settings, protocol, data, versions. Plain JSON values."""
    history: tuple[Mapping[str, Any], ...] = ()
    """One record an epoch: loss, diagnostics and metrics, each one value a replica."""
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Results on test: {"10": {"ndcg": {"mean": …, "std": …, "values": […]}, …}, …}; empty without a test."""
    titles: pa.Array | None = None
    """string [n_items]: what people call the items, null where that is not known; None without any."""

    seen: ClassVar[Interactions | None] = None
    """The pairs that scores are made of, where they are made of pairs: those of train."""
    likeness: ClassVar[str]
    """What the score of a similar item is."""

    def __repr__(self) -> str:
        method, known = self.info.get("method", self.kind), self.known
        return f"{type(self).__name__}({method}: {count(known.n_users, 'user')} × {count(known.n_items, 'item')})"

    @property
    @abstractmethod
    def kind(self) -> str:
        """Which form of model this is, in its folder's config.json."""

    @property
    @abstractmethod
    def explained(self) -> str:
        """One sentence on what a score is, for the model card."""

    @property
    def uses_times(self) -> bool:
        """Whether scores depend on when users had what, so that a folder keeps the timestamps."""
        return False

    @abstractmethod
    def scorer(self, replica: int) -> Score:
        """What scores the whole catalogue for users by index."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """What the folder's model.safetensors holds."""

    @abstractmethod
    def damage(self) -> str | None:
        """What is wrong with the tensors, as a folder that was changed may have them; None where all fits."""

    @abstractmethod
    def most_similar(self, place: int, k: int, replica: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices and scores of the k items most like the item of this index, best first; fewer where there are."""

    @abstractmethod
    def with_users(self, history: Interactions) -> Self:
        """The same model for other users, who interacted with these of its items."""

    @abstractmethod
    def with_items(self, added: NewItems) -> Self:
        """The same model with more items, which are mixtures of its own."""

    def recommend(
        self,
        users: Any = None,
        k: int = 20,
        *,
        seed: int | Literal["all"] | None = None,
        known: bool = False,
        exclude: Any = None,
        only: Any = None,
        exclude_pairs: Any = None,
        fallback: bool = False,
    ) -> pa.Table:
        """The k best items of the given users (ids; None means all): user, item, score, rank.

        `seed` picks a replica by its seed, "all" takes each and adds a column seed; `known=True` lets
        items through that the user has already interacted with. Items in `exclude` are never recommended, with
        `only` no others are (ids in any form); `exclude_pairs` (a table or file of user, item) leaves items out for
        single users. Ids that the model does not know are counted in `evenhand.notes_of(table)`. With `fallback`,
        users whom it does not know or who have no history get the most popular of the allowed items, marked in a
        column fallback. Equal scores come in the order of the items' ids.
        """
        asked = Asked.of(self.known, users, exclude, only, exclude_pairs, fallback)
        return with_notes(self.lists(asked, k, seed=seed, known=known, fallback=fallback), asked.notes)

    def lists(
        self,
        asked: Asked,
        k: int,
        *,
        seed: int | Literal["all"] | None = None,
        known: bool = False,
        fallback: bool = False,
    ) -> pa.Table:
        """What `recommend` answers, once it is known for whom and out of what."""
        replicas = range(len(self.seeds)) if seed == "all" else [self.replica(seed)]
        if isinstance(k, int):
            check_lists(len(asked.users) * len(replicas), min(k, self.known.n_items), TABLE_SLOT)
        left_out = asked.left_out(None if known else self.known)
        tables = []
        for one in replicas:
            found = self.best_items(asked.users, k, exclude=left_out, only=asked.allowed, replica=one)
            tables.append(list_table(self.known, asked.users, *found))
        if fallback:
            popular = asked.popular_lists(self.known, k)
            tables = [_joined(one, popular) for one in tables]
        if seed == "all":
            tables = [
                t.append_column("seed", pa.array(np.full(len(t), s))) for s, t in zip(self.seeds, tables, strict=True)
            ]
        return pa.concat_tables(tables)

    def similar(self, item: Any, k: int = 10, *, seed: int | None = None) -> pa.Table:
        """The k items most like this one, best first: item, score (see `likeness`); fewer where fewer are like it."""
        place = known_position(item, self.known.item_ids, "item")
        if not 1 <= k < self.known.n_items:
            raise InputError(f"k must lie between 1 and the {self.known.n_items - 1:,} other items, not {k}.")
        items, scores = self.most_similar(place, k, self.replica(seed))
        return pa.table({"item": self.known.item_ids.take(pa.array(items)), "score": pa.array(scores)})

    def titled(self, table: pa.Table, titles: pa.Array | None = None) -> pa.Table:
        """The table with the title of every item beside it: this model's, or the given one for each of its items."""
        titles = self.titles if titles is None else titles
        if titles is None:
            return table
        place = table.column_names.index("item") + 1
        found = positions(table["item"].combine_chunks(), self.known.item_ids)
        return table.add_column(place, "title", titles.take(pa.array(found)))

    def scores(self, users: np.ndarray) -> Tensor:
        """[n, n_items]: what the recommending replica thinks of every item, for users by index."""
        return self.scorer(self.best)(users)

    def fold_in(self, history: Any) -> Self:
        """This model with other users: those of `history`, scored by what they interacted with.

        `history` is an `Interactions`, a file or a table with columns user and item. No training takes
        place and the items stay as they are. `known.notes` of the result says what could not be used.
        """
        folded = self.with_users(usable_history(history, self.known))
        return folded.having(known=with_earlier(folded.known, self.known))

    def with_new_items(self, source: Any, *, item: str = "item", attributes: Any = None, exposure: float = 1.0) -> Self:
        """This model with the items of a file or table that nobody has yet, from their attributes, without training.

        `source` has a column of ids (`item`) and attributes of known *and* new items: categories (several with |
        between them, or a list), numbers, texts, or vectors. All columns count, or those named in `attributes`, as
        `["genre", "title:text"]`; a kind is category, number, text or vector. New items together get `exposure` times
        the place in lists that as many known ones have on average.
        """
        from evenhand.models.new_items import with_new_items

        return with_new_items(self, source, item=item, attributes=attributes, exposure=exposure)

    def on_cpu(self) -> Self:
        """The same with its tensors in main memory."""
        return self

    def _of_users(self, history: Interactions, **changes: Any) -> Self:
        """The same with these users, and with what else that changes."""
        info = {**self.info, "folded_in": history.n_users}
        return self.having(known=history, info=info, metrics={}, **changes)

    def for_requests(self) -> Self:
        """The same for a server: the recommending replica alone, laid out so that one user at a time is fast."""
        return self

    def having(self, **changes: Any) -> Self:
        """The same with other `info`, `metrics` or whatever else it holds."""
        return replace(self, **changes)

    def as_vectors(self) -> FactorModel:
        """The same ranking as inner products of vectors, for systems that want those; refused where there is none."""
        method = str(self.info.get("method", "this kind")).partition(":")[0]
        raise InputError(
            f"a model of {method} has no vectors to export; write its lists with `evenhand recommend --out`, "
            "or train als or another method that has vectors."
        )

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model folder, whole or not at all; one that exists is only replaced with `force`."""
        if isinstance(self.known, SpreadLog):  # several processes hold it, and each writes its part
            from evenhand.models.spread_files import write_parts

            write_parts(self, Path(folder), force)
            return
        from evenhand.models.folder import write_model

        write_model(self, folder, force=force)

    def replica(self, seed: int | None) -> int:
        """The position of a seed's replica; of the best one for None."""
        if seed is None:
            return self.best
        if seed not in self.seeds:
            raise InputError(f"the model has no seed {seed}; it has {', '.join(map(str, self.seeds))}.")
        return self.seeds.index(seed)

    def best_items(
        self, users: np.ndarray, k: int, *, exclude: Interactions | None, only: Tensor | None, replica: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Items and scores [n, k] of users by index, as `top_by` makes them; scores must be finite."""
        items, scores = top_by(self.scorer(replica), self.known.n_items, users, k, exclude=exclude, only=only)
        # Scores that are no numbers: infinite ones, and those that a list is shorter by than it must be.
        left = self.known.n_items if only is None else int(only.sum())
        least = np.minimum(items.shape[1], left - (0 if exclude is None else exclude.activity[users]))
        wrong = np.isposinf(scores).any(1) | ((items >= 0).sum(1) < least)
        if wrong.any():
            raise InputError(
                f"the model's scores are not finite for {int(wrong.sum()):,} of {len(users):,} users: its numbers "
                "are damaged or ran away in training; train it again, with a lower --lr if need be."
            )
        return items, scores


def _joined(own: pa.Table, popular: pa.Table) -> pa.Table:
    """Both, marked in a column fallback; users are texts where the ids asked for have another type than the model's."""
    parts = [t.append_column("fallback", pa.array(np.full(len(t), t is popular))) for t in (own, popular)]
    if own["user"].type != popular["user"].type:
        parts = [part.set_column(0, "user", part["user"].cast(pa.string())) for part in parts]
    return pa.concat_tables(parts)


def described(part: Any) -> dict[str, Any]:
    """A frozen dataclass for `Model.info`: its class as `kind` and its fields by name."""
    return {"kind": type(part).__name__, **{f.name: getattr(part, f.name) for f in fields(part)}}


def from_description(base: Any, description: Mapping[str, Any]) -> Any:
    """What `described` wrote down: one of the subclasses of `base` that are imported."""
    kinds: dict[str, type] = {}
    found = list(base.__subclasses__())
    for kind in found:  # those nearest to the base first; of equal names the first counts
        kinds.setdefault(kind.__name__, kind)
        found += kind.__subclasses__()
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in description.items() if name != "kind"}
    if description["kind"] not in kinds:
        raise unknown("kind of sampler or objective", description["kind"], kinds)
    return kinds[description["kind"]](**values)
