"""The real launcher: `torchrun` starts the processes, and starts them again when one of them is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.utils.world import World
from ranks import free_port, on_ranks
from run_cli import evenhand

KILLED_ONCE = """
import os, signal
from evenhand.cli import main
from evenhand.training.checkpoints import Checkpoints
from evenhand.training.engines import sharded

Checkpoints.due = Checkpoints.due_within = lambda self: self.folder is not None
sharded.POSITIVES_A_STRIDE = 1
run, done = sharded.ShardedEngine.run, [0]

def counted(self, plan, first, last):
    done[0] += 1
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and done[0] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(self, plan, first, last)

sharded.ShardedEngine.run = counted
main()
"""


def torchrun(*arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    address = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    environment = {**os.environ, "EVENHAND_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*launcher, *address, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=180
    )


def command(world: World, *arguments: str) -> int:
    return evenhand(*arguments).code


@pytest.mark.skipif(sys.platform == "win32", reason="torchrun needs a POSIX system here")
def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    log, script = tmp_path / "log.parquet", tmp_path / "killed_once.py"
    write_table(simulate_log(200, 100, 2000, seed=1).to_table(), log)
    script.write_text(KILLED_ONCE, encoding="utf-8")
    asked = ("--method", "rns", "--epochs", "2", "--seeds", "1", "--dim", "4", "--batch", "512", "--no-refit")
    ended = torchrun(script, "train", log, "--out", tmp_path / "killed", *asked, restarts=1)
    assert ended.returncode == 0, ended.stderr
    assert "Model written to" in ended.stdout
    assert ended.stdout.count("Model written to") == 1
    (code,) = on_ranks(1, command, "train", str(log), "--out", str(tmp_path / "plain"), *asked)
    assert code == 0
    models = [eh.load(tmp_path / name).vectors for name in ("killed", "plain")]  # type: ignore[attr-defined]
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(*models, strict=True))
