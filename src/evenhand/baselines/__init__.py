"""What a user would pick instead of a trained sampler: the same split, the same tables, no negatives.

`BASELINES` is their registry: a name → a class, what it does, and where it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from evenhand.baselines.als import ALS
from evenhand.baselines.base import Baseline, Fitted
from evenhand.baselines.blend import Blend
from evenhand.baselines.ease import EASE
from evenhand.baselines.gfcf import GFCF
from evenhand.baselines.itemknn import ItemKNN
from evenhand.baselines.popular import Popular

__all__ = ["ALS", "BASELINES", "EASE", "GFCF", "Baseline", "BaselineKind", "Blend", "Fitted", "ItemKNN", "Popular"]


@dataclass(frozen=True)
class BaselineKind:
    """A line of the registry."""

    name: str
    baseline: type[Baseline]
    summary: str
    source: str

    def parameters(self) -> dict[str, Any]:
        """Parameter names and their defaults."""
        return {f.name: f.default for f in fields(self.baseline)}


BASELINES: Mapping[str, BaselineKind] = {
    kind.name: kind
    for kind in (
        BaselineKind("popular", Popular, "the items most users touched, for everyone", "–"),
        BaselineKind("itemknn", ItemKNN, "items like those the user touched", "Sarwar et al. 2001"),
        BaselineKind("gfcf", GFCF, "two steps along the graph, and its smoothest directions", "Shen et al. 2021"),
        BaselineKind("ease", EASE, "a linear item-to-item model in closed form", "Steck 2019"),
        BaselineKind("als", ALS, "matrix factorisation over all cells", "Hu et al. 2008"),
        BaselineKind("blend", Blend, "ease, als and auc-ns, each user's scores added up", "evenhand"),
    )
}
