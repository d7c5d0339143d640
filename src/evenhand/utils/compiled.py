"""Functions compiled by numba at their first call. Importing this module loads numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """No lock is held while it runs; kept on disk for the next process wherever there is a place for it."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            # Neither the package's folder nor the user's cache can be written to.
            return njit(nogil=True, **options)(function)

    return decorate
