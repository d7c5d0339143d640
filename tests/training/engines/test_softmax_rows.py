"""Compiled rows of the softmax: their bits are those of the process that compiled them, and of one that loads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DIGEST = """
import hashlib
import numpy as np
from evenhand.training.engines.softmax_rows import place_columns, softmax_rows

rng = np.random.default_rng(0)
users, n = 40, 1000
indptr, items = np.arange(users + 1) * 20, rng.integers(0, 5000, 20 * users).astype(np.int32)
column, following = np.full(5000, -1, np.int32), np.empty(n, np.int32)
place_columns(rng.integers(0, 5000, n), column, following)
digest, nothing = hashlib.sha256(), np.empty(0, np.float32)
for prior in (nothing, rng.uniform(0.1, 1, n).astype(np.float32)):
    x, own = rng.uniform(-1, 1, (users, n)).astype(np.float32), rng.uniform(-1, 1, users).astype(np.float32)
    margin = np.empty(users, np.float32)
    softmax_rows(
        x, own, np.float32(5), nothing, prior, np.float32(0.75), np.arange(users), indptr, items, column, following,
        margin,
    )
    digest.update(x.tobytes() + margin.tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_who_compiled_the_code(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    compiled, loaded = (
        subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, env=environment, check=True)
        for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbc"))
    assert compiled.stdout == loaded.stdout
