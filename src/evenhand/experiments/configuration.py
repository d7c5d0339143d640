"""Everything that made a result what it is, resolved and in plain JSON values.

Somebody who holds a table must be able to tell, without asking, which numbers, files and versions made it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.baselines.run import Challenger
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.experiments.compare import CompareResult
    from evenhand.experiments.entrants import Entrant
    from evenhand.samplers import Sampler


def configuration(result: CompareResult) -> dict[str, Any]:
    """What the contenders of a comparison share, the parameters of each, and the versions at work."""
    return {
        "protocol": result.protocol,
        "split": result.description,
        "ks": list(result.ks),
        "hot": asdict(result.hot) | {"description": result.hot.describe()},
        "seeds": list(result.seeds),
        "encoder": {"name": type(result.encoder).__name__.lower(), **asdict(result.encoder)},
        "settings": asdict(result.settings),
        "methods": {one.label: {"method": one.method, **_asked(one)} for one in result.contenders},
        "versions": dict(result.versions),
    }


def data_record(
    data: str, files: Iterable[Path], reading: Any, splitting: Any, *, groups: str | None = None
) -> dict[str, Any]:
    """Which data was read, how, and the fingerprint of every file; `reading`, `splitting` are dataclasses.

    Folders are left out of every name: people publish models, and a path tells on its owner.
    """
    read = [*files, *([Path(groups.rpartition(":")[0])] if groups else [])]
    held_out = asdict(splitting)
    if held_out.get("test"):
        held_out["test"] = Path(held_out["test"]).name
    return {
        "source": data if data == "-" else Path(data).name,
        "files": [_fingerprint(file) for file in read],
        "reading": asdict(reading),
        "splitting": held_out,
        "groups": Path(groups).name if groups else None,
    }


def _fingerprint(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
    except OSError as problem:
        raise InputError(f"{file} cannot be read: {problem.strerror}.") from problem
    return {"file": file.name, "bytes": file.stat().st_size, "sha256": digest.hexdigest()}


def _asked(one: Entrant) -> dict[str, Any]:
    if isinstance(one, Challenger):
        return {"parameters": asdict(one.baseline)}
    return {"sampler": _parameters(one.sampler)}


def _parameters(sampler: Sampler) -> dict[str, Any]:
    values = asdict(sampler)
    if values.get("groups") is not None:
        # A number for every item of the catalogue belongs in the file it came from.
        values["groups"] = {"groups": len(set(values["groups"])), "items": len(values["groups"])}
    return values
