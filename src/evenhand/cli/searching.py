"""From option texts to a search: what is held, what is varied, and the folder it lives in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.cli.options import Sampling, Training
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import parse_integer

if TYPE_CHECKING:
    from evenhand.experiments.search_space import Space
    from evenhand.experiments.tune import SideBySide
    from evenhand.training.method import Method

JOURNAL = "trials.log"
REPORT = "front.html"
_OWN = (JOURNAL, "best.json", "trials.parquet", REPORT)


def flags_given(training: Training, sampling: Sampling) -> set[str]:
    """Parameters that a person set by a flag, so that a search leaves them alone."""
    given = asdict(training) | asdict(sampling)
    return {name for name, value in given.items() if value is not None and value is not False}


def fixed_values(method: Method, texts: Sequence[str], training: Training, sampling: Sampling) -> dict[str, Any]:
    """What flags and `--fix key=value` hold."""
    from evenhand.methods import parse_value

    known = method.parameters()
    fixed = {name: known[name] for name in flags_given(training, sampling) & set(known)}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"--fix is written key=value, not '{text}'.")
        _check_option(method, name)
        if name in fixed:
            raise InputError(f"{name} is given twice, by a flag and by --fix; leave one out.")
        fixed[name] = parse_value(value)
    return fixed


def searched_ranges(method: Method, texts: Sequence[str]) -> Space:
    """What `--range` asks for."""
    from evenhand.experiments.search_space import parse_range

    found = {}
    for text in texts:
        name, span = parse_range(text, method)
        _check_option(method, name)
        if name in found:
            raise InputError(f"--range {name} is given twice; leave one out.")
        found[name] = span
    return found


def trials_at_once(text: str) -> SideBySide:
    """What `--side-by-side` asks for."""
    if text == "auto":
        return "auto"
    number = parse_integer(text)
    if not number:
        raise InputError(f"--side-by-side takes a number from 1 on, or auto, not '{text}'.")
    return number


@contextmanager
def search_folder(out: str, force: bool, local: bool) -> Iterator[Path]:
    """Yields the file for the trials. A search that is in the folder goes on, or with force begins again."""
    from evenhand.experiments.output import check_folder
    from evenhand.utils.atomic import remove_abandoned
    from evenhand.utils.locks import one_process

    folder = Path(out)
    remove_abandoned(folder / JOURNAL)
    own = any((folder / name).exists() for name in _OWN)
    check_folder(folder, force or own)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if force and local:
            with one_process(folder):
                for name in _OWN:
                    (folder / name).unlink(missing_ok=True)
            folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot write to {folder}: {problem.strerror}.") from problem
    try:
        yield folder / JOURNAL
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
        raise


def check_model(model: str | None, out: str, refit: bool, force: bool) -> None:
    """Refuse a place for the model that could not be written to after the search, before it begins."""
    from evenhand.experiments.output import check_folder, checkpoints_beside
    from evenhand.models.folder import check_ours

    if model is None:
        if refit:
            raise InputError("--refit is for the model that --model writes; name a folder for it.")
        return
    folder, search = Path(model).resolve(), Path(out).resolve()
    if folder == search or folder in search.parents:
        raise InputError(f"--model {model} holds the folder of the search; name another one for the model.")
    unfinished = checkpoints_beside(model).is_dir()
    if folder.is_dir() and any(folder.iterdir()) and not force and not unfinished:
        # Not a word of --force, which would begin the search again.
        raise InputError(f"{model} already holds files; name another folder for the model.")
    check_folder(model, force=True)
    check_ours(folder)


def _check_option(method: Method, name: str) -> None:
    """Refuse what the other commands have no option for, as nobody could use what is found."""
    known = method.parameters()
    if name not in known:
        raise unknown(f"parameter of '{method.label}'", name, known)
    options = {f.name for group in (Training, Sampling) for f in fields(group)}
    settings = method.components().get("settings")
    if settings is not None and name in {f.name for f in fields(settings)} - options:
        raise InputError(f"{name} has no option on the command line; search it from Python, with tune().")
