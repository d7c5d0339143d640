"""Options that belong together are declared once, as a dataclass, and reach a command as one value.

Typer reads a command's signature and knows nothing of such groups, so a parameter whose type is a dataclass
is shown to it as that class's fields.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command as Typer should see it: every field of its dataclass parameters is an option of its own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _fields_as_parameters(groups[name])
        else:
            parameters.append(_parameter(name, hints[name], parameter.default))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def quietable(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option --quiet."""
    inner = flattened(command)
    hint = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]

    @functools.wraps(inner)
    def call(*, quiet: bool, **given: Any) -> None:
        from evenhand.utils import progress

        progress.quiet(quiet)
        inner(**given)

    parameters = [*inspect.signature(inner).parameters.values(), _parameter("quiet", hint, False)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _fields_as_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        _parameter(
            field.name,
            hints[field.name],
            inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in fields(group)
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    # By keyword only, so that options without a default may follow those with one.
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
