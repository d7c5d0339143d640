"""Every reader by name: what it is given, and how sound input for it looks."""

from __future__ import annotations

from checks.fuzz.targets import archives, commands, documents, model_commands, models, searches, tables, texts
from checks.fuzz.targets.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for room in (tables, archives, models, documents, texts, commands, model_commands, searches)
    for target in room.TARGETS
}  # fmt: skip
