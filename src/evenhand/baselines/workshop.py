"""What a blend or a recipe has finished, kept in a folder, so that an interrupted run goes on where it stopped.

A part that is trained has checkpoints there as long as it is not finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evenhand.data.describe import fingerprint
from evenhand.data.interactions import Interactions
from evenhand.models.blend_model import Part
from evenhand.models.factors import load
from evenhand.training.checkpoints import discard
from evenhand.training.method import Fit, Method
from evenhand.training.trained import Trained
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import StoppedError
from evenhand.utils.text import count

if TYPE_CHECKING:
    from evenhand.baselines.recipe import Tried

_LARGEST = 2**30
"""Bytes up to which a fitted part is written; a larger one is fitted again."""


class Workshop:
    """Finished parts by what they are, and the data and seed they were fitted to; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, pairs: Interactions, held: Interactions, seed: int) -> None:
        self.folder = folder
        self.fitted_to = [fingerprint(pairs), fingerprint(held), seed] if folder is not None else []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def find(self, method: Method) -> dict[str, Any] | None:
        """What is known of a part that an earlier run finished."""
        place = self._place(method)
        if place is None or not (place / "part.json").is_file():
            return None
        try:
            found = json.loads((place / "part.json").read_text(encoding="utf-8"))
            return found if isinstance(found, dict) and {"ndcg", "seconds", "epochs"} <= set(found) else None
        except (OSError, ValueError):
            return None

    def keep(self, one: Tried) -> None:
        """Write a part, its record last: a part without one was not finished."""
        assert one.fitted is not None
        record = {"ndcg": one.ndcg, "seconds": one.seconds, "epochs": list(one.epochs)}
        recency = one.method.parameters().get("recency", 0)
        self._write(one.asked or one.method, one.fitted, record | {"recency": recency})

    def _write(self, method: Method, part: Part, record: dict[str, Any]) -> None:
        place = self._place(method)
        if place is None or sum(one.numel() * one.element_size() for one in part.tensors().values()) > _LARGEST:
            return
        part.on_cpu().save(place / "model", force=True)
        with atomic_file(place / "part.json") as path:
            path.write_text(json.dumps(record), encoding="utf-8")
        discard(place / "checkpoints")

    def checkpoints(self, method: Method) -> Path | None:
        """Where a part that is trained keeps its own."""
        place = self._place(method)
        return None if place is None else place / "checkpoints"

    def limited(self, method: Method, seconds: float) -> Method:
        """The method with so many seconds to train; where an earlier run had begun it, with those of that run."""
        place = self._place(method)
        if place is not None:
            begun = place / "seconds.json"
            try:
                seconds = float(json.loads(begun.read_text(encoding="utf-8")))
            except (OSError, TypeError, ValueError):
                place.mkdir(parents=True, exist_ok=True)
                with atomic_file(begun) as path:
                    path.write_text(json.dumps(seconds), encoding="utf-8")
        return method.having({"seconds": seconds})

    def model(self, one: Tried) -> Part:
        """The fitted part, read again where an earlier run wrote it."""
        if one.fitted is None:
            place = self._place(one.asked or one.method)
            assert place is not None
            one.fitted = load(place / "model")  # type: ignore[assignment]
        assert one.fitted is not None
        return one.fitted

    def fitted(self, method: Method, fit: Callable[[Path | None], Fit]) -> Fit:
        """A part, read again where an earlier run finished it, else fitted and kept."""
        place, kept = self._place(method), self.find(method)
        if place is not None and kept is not None:
            again = Trained.from_description(kept["again"]) if kept.get("again") else None
            return Fit(load(place / "model"), {}, None, epochs=tuple(kept["epochs"]), again=again)
        found = fit(self.checkpoints(method))
        record: dict[str, Any] = {"ndcg": None, "seconds": 0.0, "epochs": list(found.epochs)}
        if isinstance(found.again, Trained):  # what was left open is settled
            record["again"] = found.again.description()
        if "again" in record or found.again in (None, method):
            self._write(method, cast("Part", found.model), record)
        return found

    def stopped(self, finished: int) -> StoppedError:
        """What a person reads who stopped it."""
        rest = "nothing was saved" if self.folder is None else "they are kept: go on with --resume"
        return StoppedError(f"stopped after {count(finished, 'part')}", rest)

    def _place(self, method: Method) -> Path | None:
        if self.folder is None:
            return None
        plain = method.having({"seconds": None}) if method.side_by_side else method
        text = json.dumps([plain.description(), *self.fitted_to], sort_keys=True, default=str)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
