"""What a baseline is: a few checked parameters that, fitted to a log, score the whole catalogue for any user."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from evenhand.data.interactions import Interactions
from evenhand.models.blend_model import BlendModel
from evenhand.models.factors import FactorModel
from evenhand.models.id_lookup import known_positions, list_table
from evenhand.models.item_weights import ItemTable, ItemWeightModel
from evenhand.models.topk import top_by
from evenhand.utils.errors import InputError
from evenhand.utils.progress import OnEpoch
from evenhand.utils.text import one_line

LARGEST = 10**9
"""Parameters beyond this are mistakes, and leave 32 bits when they are multiplied."""


@dataclass(frozen=True)
class Baseline(ABC):
    """What a practitioner would pick instead. Subclasses add parameters and check them in `__post_init__`."""

    seeded: ClassVar[bool] = False
    """Whether two seeds give two results; what is deterministic is fitted once."""

    @property
    def name(self) -> str:
        """As the registry and the command line call it."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """The name, with the parameters that differ from their defaults."""
        chosen = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        return ":".join([self.name, *(f"{name}={value}" for name, value, usual in chosen if value != usual)])

    @property
    def info(self) -> dict[str, Any]:
        """What a model says about how it came to be."""
        return {"method": self.label, "rival": {"name": self.name, **asdict(self)}}

    @abstractmethod
    def fit(self, train: Interactions, seed: int = 0, device: str | torch.device = "cpu") -> Fitted:
        """Learn from the pairs of `train`; ratings and times are not looked at."""

    def fit_in_steps(
        self,
        train: Interactions,
        seed: int,
        device: str | torch.device,
        on_step: OnEpoch | None,
        held: Interactions | None = None,
    ) -> Fitted:
        """The same; a baseline that takes several steps tells `on_step` how many are done.

        One that has something to settle does so on the pairs `held`, if there are any, else on some of
        `train`.
        """
        return self.fit(train, seed, device)


class Fitted(ABC):
    """A baseline that has seen its train part: a `Recommender` that can also answer with a table."""

    train: Interactions

    @abstractmethod
    def scores(self, users: np.ndarray) -> Tensor:
        """[n, n_items] for users by index: a new tensor, which the caller may write to."""

    @property
    def vectors(self) -> tuple[Tensor, Tensor] | None:
        """User and item vectors whose products are the scores, where there are such."""
        return None

    @abstractmethod
    def model(self, known: Interactions | None = None) -> FactorModel | ItemWeightModel | BlendModel:
        """As a model, which can be saved and loaded; `known` is not recommended again, train unless given."""

    def recommend(self, users: Any = None, k: int = 20, *, exclude: Interactions | None = None) -> pa.Table:
        """The k best items of the given users (ids; None means all): user, item, score, rank.

        Left out are the pairs of `exclude`, which are those of train unless given.
        """
        wanted = np.arange(self.train.n_users)
        if users is not None:
            wanted = known_positions(users, self.train.user_ids, "user")
        exclude = self.train if exclude is None else exclude
        items, scores = top_by(self.scores, self.train.n_items, wanted, k, exclude=exclude)
        return list_table(self.train, wanted, items, scores)


@dataclass(frozen=True, eq=False)
class FittedItems(Fitted):
    """A baseline whose users are what they touched, and whose items say something about each other."""

    baseline: Baseline
    train: Interactions
    table: ItemTable

    def scores(self, users: np.ndarray) -> Tensor:
        return self.table.scores(self.train, users)

    def model(self, known: Interactions | None = None) -> ItemWeightModel:
        on_cpu = {name: tensor.cpu() for name, tensor in self.table.tensors().items()}
        return ItemWeightModel(
            type(self.table).from_tensors(on_cpu),
            known=self.train if known is None else known,
            touched=self.train,
            info=self.baseline.info,
        )


@contextmanager
def solvable(baseline: Baseline) -> Iterator[None]:
    """Equations without a solution within the digits there are come of parameters that are no good."""
    try:
        yield
    except torch.linalg.LinAlgError as problem:  # type: ignore[attr-defined]
        raise InputError(f"'{baseline.label}' has no solution on this data; raise l2.") from problem


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """A parameter that counts something."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, not {value}.")
    _check_size(name, value)


def check_number(name: str, value: Any, *, zero: bool) -> None:
    """A finite number, positive or (with `zero`) at least 0."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value < math.inf
    if not is_number or not value >= 0 or (value == 0 and not zero):
        raise InputError(f"{name} must be a {'number of at least 0' if zero else 'positive number'}, not {value}.")
    _check_size(name, value)


def _check_size(name: str, value: float) -> None:
    if value > LARGEST:
        raise InputError(f"{name} may be up to {LARGEST:,}, not {one_line(value, 30)}.")
