"""What a user would pick instead of a trained sampler: the same split, the same tables, no negatives.

`RIVALS` is their registry: a name → a class, what it does, and where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from evenhand.rivals.als import ALS
from evenhand.rivals.base import Fitted, Rival
from evenhand.rivals.blend import Blend
from evenhand.rivals.ease import EASE
from evenhand.rivals.itemknn import ItemKNN
from evenhand.rivals.popular import Popular

__all__ = ["ALS", "EASE", "RIVALS", "Blend", "Fitted", "ItemKNN", "Popular", "Rival", "RivalKind"]


@dataclass(frozen=True)
class RivalKind:
    """A line of the registry."""

    name: str
    rival: type[Rival]
    summary: str
    source: str

    def parameters(self) -> dict[str, Any]:
        """Parameter names and their defaults."""
        return {f.name: f.default for f in fields(self.rival)}


RIVALS: Mapping[str, RivalKind] = {
    kind.name: kind
    for kind in (
        RivalKind("popular", Popular, "the items most users touched, for everyone", "–"),
        RivalKind("itemknn", ItemKNN, "items like those the user touched", "Sarwar et al. 2001"),
        RivalKind("ease", EASE, "a linear item-to-item model in closed form", "Steck 2019"),
        RivalKind("als", ALS, "matrix factorisation over all cells", "Hu et al. 2008"),
        RivalKind("blend", Blend, "ease, als and auc-ns, each user's scores added up", "evenhand"),
    )
}
