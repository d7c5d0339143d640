"""What a target is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random

from checks.fuzz.inputs import mutated

SEEDS = Path(__file__).parents[1] / "seeds"


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    read: Callable[[bytes, Path], object]
    """Given an input and an empty folder; refuses with an `InputError`, asserts what is promised."""
    make: Callable[[Random, list[bytes]], bytes] = mutated
    """An input out of the seeds."""
    weight: float = 1.0
    """How many inputs it gets, compared with others; less where one takes long."""

    @cached_property
    def seeds(self) -> dict[str, bytes]:
        """Sound inputs, and those that once found a fault (`found-…`), by file name."""
        return {path.name: path.read_bytes() for path in sorted((SEEDS / self.name).iterdir())}

    def input(self, seed: int, number: int) -> bytes:
        """Input `number` of a run with this seed; the first ones are the seeds as they are."""
        held = list(self.seeds.values())
        if number < len(held):
            return held[number]
        return self.make(Random(f"{self.name} {seed} {number}"), held)
