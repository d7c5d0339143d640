"""Numbers in sentences."""

from __future__ import annotations


def count(n: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "user"), count(1200, "user")
    ('1 user', '1,200 users')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
