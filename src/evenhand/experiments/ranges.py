"""Where a parameter may lie in a search: a range of numbers, or one of a few values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from evenhand.utils.errors import InputError


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included; with `log` every order of magnitude counts the same."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(f"a range goes from a number up to a larger one, not {self}.")
        if self.log and self.low <= 0:
            raise InputError(f"a logarithmic range starts above 0, not {self}.")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise InputError(f"a range of whole numbers has whole ends, not {self}.")

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.tidy(self.low), self.tidy(self.high)

    def to_json(self) -> dict[str, Any]:
        low, high = self.ends
        return {"low": low, "high": high, "log": self.log, "integer": self.integer}

    def distribution(self) -> Any:
        """The same in Optuna's words."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if self.integer:
            return IntDistribution(int(self.low), int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)

    def tidy(self, value: float) -> float | int:
        """With four digits, so that what is trained is what a person can paste."""
        return int(value) if self.integer else min(max(float(f"{value:.4g}"), self.low), self.high)

    def nearest(self, value: Any) -> float | int:
        """The point of the range where a search starts that would like to start at `value`."""
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        inside = min(max(value, self.low), self.high) if number else self.low
        return int(inside) if self.integer else float(inside)

    def including(self, value: Any) -> Range:
        """Wide enough for `value`, where it is a number that may lie in such a range."""
        if self.nearest(value) == value or not isinstance(value, (int, float)) or (self.log and value <= 0):
            return self
        return replace(self, low=min(self.low, value), high=max(self.high, value))


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2 or len(set(map(repr, self.values))) != len(self.values):
            raise InputError(f"a choice is between two or more different values, not '{self}'.")

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def to_json(self) -> dict[str, Any]:
        return {"values": list(self.values)}

    def distribution(self) -> Any:
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)

    def tidy(self, value: Any) -> Any:
        return value

    def nearest(self, value: Any) -> Any:
        return value if value in self.values else self.values[0]

    def including(self, value: Any) -> Choice:
        return self if value in self.values else Choice((*self.values, value))
