"""What a recipe has finished, kept in a folder, so that a run that is interrupted goes on where it stopped."""

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
from evenhand.training.method import Method
from evenhand.utils.atomic import atomic_file

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
        place = self._place(one.asked or one.method)
        assert one.fitted is not None
        if place is not None:
            record = {"ndcg": one.ndcg, "seconds": one.seconds, "epochs": list(one.epochs)}
            self._write(place, one.fitted, record | {"recency": one.method.parameters().get("recency", 0)})

    @staticmethod
    def _write(place: Path, part: Part, record: dict[str, Any]) -> None:
        if sum(tensor.numel() * tensor.element_size() for tensor in part.tensors().values()) > _LARGEST:
            return
        part.on_cpu().save(place / "model", force=True)
        with atomic_file(place / "part.json") as path:
            path.write_text(json.dumps(record), encoding="utf-8")

    def model(self, one: Tried) -> Part:
        """The fitted part, read again where an earlier run wrote it."""
        if one.fitted is None:
            place = self._place(one.asked or one.method)
            assert place is not None
            one.fitted = load(place / "model")  # type: ignore[assignment]
        assert one.fitted is not None
        return one.fitted

    def fitted(self, method: Method, fit: Callable[[], Part]) -> Part:
        """A part with nothing left to choose: read again where an earlier run finished it, else fitted and kept."""
        place = self._place(method)
        if place is not None and self.find(method) is not None:
            return cast("Part", load(place / "model"))
        part = fit()
        if place is not None:
            self._write(place, part, {"ndcg": None, "seconds": 0.0, "epochs": []})
        return part

    def how_to_go_on(self, finished: int) -> str:
        """What a person reads who stopped it."""
        if self.folder is None:
            return f"stopped after {finished} parts."
        return f"stopped; {finished} finished parts are kept, and --resume goes on with them."

    def _place(self, method: Method) -> Path | None:
        if self.folder is None:
            return None
        plain = method.having({"seconds": None}) if method.side_by_side else method
        text = json.dumps([plain.description(), *self.fitted_to], sort_keys=True, default=str)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:16]
