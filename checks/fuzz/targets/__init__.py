"""Every reader by name: what it is given, and how sound input for it looks."""

from __future__ import annotations

from importlib.util import find_spec

from checks.fuzz.targets import archives, commands, documents, model_commands, models, searches, tables, texts
from checks.fuzz.targets.target import Target

rooms = [tables, archives, models, documents, texts, commands, model_commands, searches]
if find_spec("fastapi") is not None and find_spec("uvicorn") is not None:  # evenhand[serve]
    from checks.fuzz.targets import requests

    rooms.append(requests)

TARGETS: dict[str, Target] = {
    target.name: target
    for room in rooms
    for target in room.TARGETS
}  # fmt: skip
