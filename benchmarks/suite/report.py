"""What a run of the benchmark found, as a table for people and as JSON for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from suite.turns import Ratio, Timing


@dataclass
class Section:
    """One question, what was timed to answer it, and the answer as ratios."""

    name: str
    title: str
    about: str
    unit: str = "s"
    scale: float = 1
    """What seconds are multiplied with to be printed in this unit."""
    times: dict[str, Timing] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Whatever else was found, by name."""
    notes: list[str] = field(default_factory=list)

    def text(self) -> str:
        wide = max([34, *map(len, self.times), *(len(one.text) for one in self.ratios), *map(len, self.facts)])
        lines = [f"\n{self.title}", f"  {self.about}"]
        if self.times:
            lines.append(f"  {'':{wide}} {'best, ' + self.unit:>12}   rounds")
        for name, timing in self.times.items():
            rounds = "  ".join(_number(self.scale * one) for one in timing.rounds)
            lines.append(f"  {name:{wide}} {_number(self.scale * timing.best):>12}   {rounds}")
        if self.ratios:
            lines.append(f"  {'':{wide}} {'ratio':>12}   within a round")
        for one in self.ratios:
            lines.append(f"  {one.text:{wide}} {one.value:12.2f}   {one.low:.2f} to {one.high:.2f}")
        lines += [f"  {name:{wide}} {_shown(value)}" for name, value in self.facts.items()]
        return "\n".join([*lines, *(f"  - {note}" for note in self.notes)])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "about": self.about,
            "seconds": {name: {"best": one.best, "rounds": list(one.rounds)} for name, one in self.times.items()},
            "ratios": [asdict(one) for one in self.ratios],
            "facts": self.facts,
            "notes": self.notes,
        }


def machine(threads: int) -> dict[str, Any]:
    """Everything that a reader needs to judge a number: processor, threads, versions, and how busy it was."""
    import numba
    import numpy as np
    import torch

    import evenhand

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {
            "evenhand": evenhand.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numba": numba.__version__,
            "numpy": np.__version__,
        },
    }


def machine_text(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return (
        f"{found['processor']}, {found['cores']} cores, {found['threads']} threads, load {found['load']} "
        f"at the start\n{versions}"
    )


def _processor() -> str:
    """The model's name as the system tells it."""
    cpu_facts = Path("/proc/cpuinfo")
    lines = cpu_facts.read_text().splitlines() if cpu_facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _number(value: float) -> str:
    return f"{value:.4f}" if value < 1 else f"{value:.3f}" if value < 100 else f"{value:,.0f}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, list):
        return "  ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
