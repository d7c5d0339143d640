"""Recommendations of any system, against train and test: how accurate, how biased, how certain.

The room and its one function share a name, so the room can be called: `eh.audit({"mine": table}, train=…)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from evenhand.audit.result import Audit

__all__ = ["Audit", "audit"]


def audit(recs: Any, train: Any, test: Any = None, **options: Any) -> Audit:
    """See `evenhand.audit.run_audit.audit`, which this calls."""
    from evenhand.audit.run_audit import audit as run

    return run(recs, train, test, **options)


class _Room(ModuleType):
    """Once any part of the room is imported, `evenhand.audit` is the room; calling it must still audit."""

    def __call__(self, recs: Any, train: Any, test: Any = None, **options: Any) -> Audit:
        return audit(recs, train, test, **options)


sys.modules[__name__].__class__ = _Room
