"""The real launcher: `torchrun` starts the processes, and starts them again when one of them is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.simulate import simulate_log
from evenhand.data.write import write_table
from evenhand.utils.world import World
from prepared import Program
from ranks import free_port, on_ranks
from run_cli import Ended, evenhand

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


def launcher() -> None:
    from torch.distributed.run import main

    main()


def torchrun(*arguments: object, restarts: int = 0) -> Ended:
    asked = ["--nproc-per-node", 2, "--max-restarts", restarts]
    address = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    environment = {"EVENHAND_TIMEOUT": "60", "OMP_NUM_THREADS": "1"}
    with Program(launcher, *asked, *address, *arguments, environment=environment) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode is not None
    return Ended(process.returncode, out, err)


def command(world: World, *arguments: str) -> int:
    return evenhand(*arguments).code


@pytest.mark.skipif(sys.platform == "win32", reason="torchrun needs a POSIX system here")
def test_a_killed_process_is_started_again_and_the_run_goes_on(tmp_path: Path) -> None:
    log, script = tmp_path / "log.parquet", tmp_path / "killed_once.py"
    write_table(simulate_log(200, 100, 2000, seed=1).to_table(), log)
    script.write_text(KILLED_ONCE, encoding="utf-8")
    asked = ("--method", "rns", "--epochs", "2", "--seeds", "1", "--dim", "4", "--batch", "512", "--no-refit")
    ended = torchrun(script, "train", log, "--out", tmp_path / "killed", *asked, restarts=1)
    assert ended.code == 0, ended.err
    assert "Model written to" in ended.out
    assert ended.out.count("Model written to") == 1
    (code,) = on_ranks(1, command, "train", str(log), "--out", str(tmp_path / "plain"), *asked)
    assert code == 0
    models = [eh.load(tmp_path / name).vectors for name in ("killed", "plain")]  # type: ignore[attr-defined]
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(*models, strict=True))
