"""The two ways evenhand says that it cannot go on: the input is wrong, or a run failed."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from evenhand.utils.text import one_line

_LONGEST_NAME = 100
"""Characters of a name that is compared with others; the time for that grows with their square."""


class InputError(ValueError):
    """Something a person gave is wrong. The message is one sentence that says what, where, and what to do."""


class RunError(RuntimeError):
    """The input was fine, but the work could not be completed."""


class StoppedError(RunError):
    """A person stopped the work; the message says how far it came, what was saved and how to go on."""

    def __init__(self, done: str, rest: str) -> None:
        super().__init__(f"{done}; {rest}.")
        self.done = done


class DivergedError(RunError):
    """Training left the numbers; the message has no full stop, so that the caller can say what is kept."""


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that does not exist, offering the nearest one that does.

    >>> str(unknown("method", "auc-n", ["auc-ns", "rns"]))
    "unknown method 'auc-n'; did you mean 'auc-ns'? Known: auc-ns, rns."
    """
    names, given = sorted(known), str(name)
    near = get_close_matches(given.lower(), names, n=1, cutoff=0.5) if len(given) <= _LONGEST_NAME else []
    hint = f"did you mean '{near[0]}'? " if near else ""
    return InputError(f"unknown {kind} '{given}'; {hint}Known: {', '.join(names)}.")


@contextmanager
def written_by_us(place: object, what: str, instead: str) -> Iterator[None]:
    """For reading files of our own, which somebody may have changed: any error in the block becomes one sentence."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        reason = one_line(f"{type(problem).__name__}: {problem}", 200)
        raise InputError(f"{place} holds {what} that evenhand did not write ({reason}); {instead}.") from problem
