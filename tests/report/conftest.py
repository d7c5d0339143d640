"""One browser for all pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from in_browser import chromium

    with chromium() as one:
        yield one
