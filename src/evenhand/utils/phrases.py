"""Numbers in sentences."""

from __future__ import annotations

_MOST_DIGITS = 18
"""What 64 bits hold; Python itself refuses to read some thousand."""


def whole_number(text: str) -> int | None:
    """What a person typed as a whole number from 0 on; None where it is none, or beyond all use.

    >>> whole_number("010"), whole_number("1.5"), whole_number("9" * 5000)
    (10, None, None)
    """
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def count(n: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "user"), count(1200, "user")
    ('1 user', '1,200 users')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
