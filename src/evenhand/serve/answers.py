"""What one loaded model answers to one request, and how the newest model of a folder takes its place.

Ids come as texts, and lookups do not grow with the catalogue. A model is replaced while requests go on, and kept where
its successor is damaged.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.base import Model
from evenhand.models.factors import load
from evenhand.models.folder import FILES
from evenhand.models.topk import first_list
from evenhand.utils.errors import InputError
from evenhand.utils.text import count, one_line

_AT_ONCE = 4096
"""Ids that become Python objects together; no request waits longer than that while a new model is loaded."""
LOG = logging.getLogger("evenhand.serve")
Signature = tuple[tuple[int, int, int, int] | None, ...]


class RefusedError(Exception):
    """A request that gets no list: an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Answers:
    """A model with the tables that single requests need, made once."""

    def __init__(self, model: Model, card: str = "", version: str = "") -> None:
        self.model = model.for_requests()
        self.card, self.version = card, version
        """The card's Markdown; what tells this model from others."""
        self._known = known = model.known
        self._users, self._items = _places(known.user_ids), _places(known.item_ids)
        self._popular = np.argsort(-known.popularity, kind="stable")
        self._warm_up()

    @staticmethod
    def of_folder(folder: Path) -> Answers:
        """Read, checked and ready to answer."""
        model, card = load(folder), ""
        with suppress(OSError):  # the card is for people; a model does without
            card = (folder / "README.md").read_text("utf-8", "replace")
        return Answers(model, card, _version(folder))

    @property
    def description(self) -> dict[str, Any]:
        return {
            "method": str(self.model.info.get("method", self.model.kind)),
            "users": self._known.n_users,
            "items": self._known.n_items,
            "version": self.version,
        }

    def recommend(
        self,
        user: object | None,
        history: Sequence[object] | None,
        k: int,
        *,
        exclude: Sequence[object] | None = None,
        only: Sequence[object] | None = None,
        known: bool = False,
        fallback: bool = True,
    ) -> dict[str, Any]:
        """The k best items for a user whom the model knows, or for anybody by a history; else the popular ones."""
        notes: list[str] = []
        allowed = self._allowed(exclude, only, notes)
        place = None if user is None else self._users.get(str(user))
        earlier = self._known.row(place) if place is not None else np.empty(0, np.int32)
        given = np.empty(0, np.int64) if history is None else np.unique(self._found(history, "history", notes))
        if len(given):
            served = self.model.with_users(_one_user(given, self._known.item_ids))
            left_out = _one_user(np.union1d(given, earlier), self._known.item_ids)
            items, scores = _best(served, 0, k, None if known else left_out, allowed)
        elif len(earlier) and place is not None:
            items, scores = _best(self.model, place, k, None if known else self._known, allowed)
        else:
            notes.append(_why_popular(user, place, history))
            if not fallback:
                raise RefusedError(404, notes[-1])
            items = self._popular if allowed is None else self._popular[allowed.numpy()[self._popular]]
            items, scores = items[:k], self._known.popularity[items[:k]]
        return {
            "user": user,
            "fallback": not len(given) and not len(earlier),
            "items": self._listed(items, scores),
            "notes": notes,
            "model": self.version,
        }

    def similar(self, item: object, k: int) -> dict[str, Any]:
        place = self._items.get(str(item))
        if place is None:
            raise RefusedError(404, f"the model does not know the item {str(item)!r}.")
        if self._known.n_items < 2:
            raise RefusedError(404, "the model knows no other item.")
        try:
            found = self.model.most_similar(place, min(k, self._known.n_items - 1), self.model.best)
        except InputError as problem:
            raise RefusedError(404, str(problem)) from None
        return {"item": item, "items": self._listed(*found), "likeness": self.model.likeness, "model": self.version}

    def _listed(self, items: np.ndarray, values: np.ndarray) -> list[dict[str, Any]]:
        chosen, titles = pa.array(items), self.model.titles
        columns = {"item": self._known.item_ids.take(chosen)} | (
            {} if titles is None else {"title": titles.take(chosen)}
        )
        return pa.table({**columns, "score": values, "rank": np.arange(1, len(items) + 1)}).to_pylist()

    def _allowed(
        self, exclude: Sequence[object] | None, only: Sequence[object] | None, notes: list[str]
    ) -> Tensor | None:
        """bool [n_items]: what may be recommended; None where everything may."""
        if exclude is None and only is None:
            return None
        allowed = torch.full((self._known.n_items,), only is None)
        for given, name in ((only, "only"), (exclude, "exclude")):
            if given is not None:
                allowed[torch.from_numpy(self._found(given, name, notes))] = name == "only"
        if not allowed.any():
            raise RefusedError(404, "nothing is left to recommend: `only` and `exclude` leave out every item.")
        return allowed

    def _found(self, ids: Sequence[object], name: str, notes: list[str]) -> np.ndarray:
        """int64: where those of the items stand that the model knows; the others are counted in a note."""
        places = [self._items.get(str(one), -1) for one in ids]
        found = np.array([place for place in places if place >= 0], dtype=np.int64)
        if strange := len(places) - len(found):
            verb = "is" if strange == 1 else "are"
            notes.append(f"{strange:,} of {count(len(places), 'item')} in `{name}` {verb} unknown to the model.")
        return found

    def _warm_up(self) -> None:
        """One request of each kind: compiles and fills what is kept, so that no first user waits for it."""
        import evenhand.models.compiled_rows  # noqa: F401, the selection uses it where it is loaded

        ids = self._known.item_ids
        if not len(ids):
            return
        with suppress(InputError, RefusedError):
            self.recommend(None, [ids[0].as_py()], 1)
        with suppress(RefusedError):
            self.similar(ids[0].as_py(), 1)


def _places(ids: pa.Array) -> dict[str, int]:
    found: dict[str, int] = {}
    for begin in range(0, len(ids), _AT_ONCE):
        found.update((str(one), place) for place, one in enumerate(ids[begin : begin + _AT_ONCE].to_pylist(), begin))
    return found


def _best(
    model: Model, row: int, k: int, exclude: Interactions | None, only: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    k = min(k, model.known.n_items)
    return first_list(model.best_items(np.array([row]), k, exclude=exclude, only=only, replica=model.best))


def _one_user(items: np.ndarray, item_ids: pa.Array) -> Interactions:
    """The history of one user: ascending items by index."""
    bounds = np.array([0, len(items)], dtype=np.int64)
    return Interactions(user_ids=pa.array([0]), item_ids=item_ids, indptr=bounds, items=items.astype(np.int32))


def _why_popular(user: object, place: int | None, history: Sequence[object] | None) -> str:
    if place is not None:
        return f"the user {str(user)!r} has no history."
    if history is not None:
        return "the history holds no item that the model knows."
    return (
        "neither a user nor a history is given." if user is None else f"the model does not know the user {str(user)!r}."
    )


def _version(folder: Path) -> str:
    return hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()[:12]


class HotModel:
    """Looks at the folder's files every few seconds and loads in a thread of its own what has changed.

    Requests take `current` once and keep it to their end; the older model is let go of with the last of them.
    """

    def __init__(self, folder: str | Path, *, every: float = 1.0) -> None:
        self.folder = Path(folder)
        self._seen: Signature = ()
        self.current = self._load()
        self.loaded_at = time.time()
        self.problem: str | None = None
        """Why the folder's present content is not served; None where it is."""
        self.on_reload: Callable[[bool], None] = lambda worked: None
        self._every, self._stop = every, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def look(self) -> None:
        """Load the folder if any of its files has changed since the last look."""
        if signature(self.folder) == self._seen:
            return
        try:
            self.current = self._load()
        except (InputError, OSError, MemoryError) as problem:
            self.problem = one_line(problem)
            LOG.warning("the new model was not loaded, the older one goes on: %s", self.problem)
        else:
            self.loaded_at, self.problem = time.time(), None
            LOG.info("model %s loaded", self.current.version)
        self.on_reload(self.problem is None)

    def _load(self) -> Answers:
        """What the folder holds, read again where it was replaced meanwhile: tensors, card and version are of one."""
        while True:
            self._seen = signature(self.folder)
            try:
                found = Answers.of_folder(self.folder)
            except (InputError, OSError):
                if signature(self.folder) == self._seen:
                    raise
            else:
                if signature(self.folder) == self._seen:
                    return found

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.look()
            except Exception:  # the next look may do better, and requests go on
                LOG.exception("looking for a new model failed")


def signature(folder: Path) -> Signature:
    """What changes when any file of the model is replaced; missing files are None."""
    try:
        here = os.open(folder, os.O_RDONLY)  # all files of one folder, even if another takes its name meanwhile
    except OSError:
        return ()
    try:
        seen: list[tuple[int, int, int, int] | None] = []
        for name in FILES:
            try:
                found = os.stat(name, dir_fd=here)
                seen.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size))
            except OSError:
                seen.append(None)
        return tuple(seen)
    finally:
        os.close(here)
