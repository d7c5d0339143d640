"""The files that an audit leaves behind: refused early if they cannot be written, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from evenhand.audit.ci_output import junit
from evenhand.audit.document import to_json
from evenhand.audit.gates import Judged
from evenhand.audit.result import Audit
from evenhand.utils.atomic import atomic_file
from evenhand.utils.errors import InputError
from evenhand.utils.text import json_text


def check_target(path: str | None, force: bool) -> None:
    """Before any work is done."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{target} is a folder; name a file.")
    if target.exists() and not force:
        raise InputError(f"{target} exists already; choose another name or use --force.")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"cannot write to the folder {target.parent}.")


def save_audit(audit: Audit, path: str | Path) -> None:
    write_text(Path(path), json_text(to_json(audit)) + "\n")


def save_junit(judged: Sequence[Judged], path: str | Path) -> None:
    write_text(Path(path), junit(judged))


def write_text(path: Path, text: str) -> None:
    try:
        with atomic_file(path) as partial:
            partial.write_text(text, encoding="utf-8", newline="\n")
    except OSError as problem:
        raise InputError(f"cannot write {path}: {problem.strerror or problem}.") from problem
