"""How much memory is left, asked before something large is made, and work in pieces that fit into some of it.

A refusal beats a killed process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    import torch

_CGROUP = Path("/sys/fs/cgroup")


def check_memory(needed: int, device: torch.device, what: str, instead: str) -> None:
    """Refuse what would not fit, with the estimate; where nothing is known about memory, go on."""
    left = available_bytes(device)
    if left is not None and needed > left:
        raise InputError(
            f"{what} needs about {gigabytes(needed)} of memory, but {gigabytes(left)} are free on "
            f"{device.type}; {instead}."
        )


def available_bytes(device: torch.device) -> int | None:
    """What a process may still take: of the GPU, or of main memory within the limits of a container and `ulimit -d`."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    known = [size for size in (_from_meminfo(), _from_cgroup(), _from_ulimit()) if size is not None]
    return min(known) if known else _from_sysconf()


def peak_bytes() -> int:
    """The most main memory that this process has held so far."""
    try:  # the highest of this process alone; the other figure may be that of whoever started it
        return _figure("/proc/self/status", "VmHWM")
    except (OSError, StopIteration):
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_shortage(problem: BaseException) -> bool:
    """Whether an error says that memory could not be had, be it main memory or a GPU's."""
    import torch

    if isinstance(problem, (MemoryError, torch.OutOfMemoryError)):
        return True
    words = ("not enough memory", "can't allocate memory")
    return isinstance(problem, RuntimeError) and any(some in str(problem) for some in words)


def gigabytes(size: int) -> str:
    """
    >>> gigabytes(1_234_000_000), gigabytes(12_300_000)
    ('1.2 GB', '12 MB')
    """
    return f"{size / 1e9:,.1f} GB" if size >= 10**8 else f"{size / 1e6:.0f} MB"


def slices_within(costs: np.ndarray, budget: int) -> Iterator[slice]:
    """Consecutive slices whose costs sum to at most `budget`; what alone costs more stands alone.

    >>> list(slices_within(np.array([2, 2, 9, 1]), 4))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    total = np.concatenate([[0], np.cumsum(costs)])
    begin = 0
    while begin < len(costs):
        end = int(np.searchsorted(total, total[begin] + budget, side="right")) - 1
        end = max(end, begin + 1)
        yield slice(begin, end)
        begin = end


def _from_meminfo() -> int | None:
    with suppress(OSError, StopIteration):
        return _figure("/proc/meminfo", "MemAvailable")
    return None


def _from_cgroup() -> int | None:
    try:
        limit, used = ((_CGROUP / f"memory.{name}").read_text(encoding="ascii") for name in ("max", "current"))
        return None if limit.strip() == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None


def _from_ulimit() -> int | None:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return None if limit == resource.RLIM_INFINITY else max(0, limit - _figure("/proc/self/status", "VmData"))
    except (ImportError, AttributeError, OSError, StopIteration):
        return None


def _figure(file: str, name: str) -> int:
    """Bytes that a line of this file names, where the system has such a file."""
    lines = Path(file).read_text(encoding="ascii", errors="replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _from_sysconf() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
