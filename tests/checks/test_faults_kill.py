"""The short form of `make torture`: processes killed at file operations and at random moments.

A run that goes on ends as if nothing had happened, nothing that was safe is done twice, and every file that
can be seen is the old one or the new one.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from checks.faults.life import forked, import_everything
from checks.faults.served import served
from checks.faults.stories import Stage, Tally
from checks.faults.works import Work, make_inputs

from made_once import made_once
from prepared import Program

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/fd").is_dir(), reason="needs fork and /proc"
)

FIT = "--seeds 1 --dim 8 --batch 4096 --device cpu"
WORKS = [
    Work("train", f"train {{in}}/log.csv --method dns --epochs 3 --out {{out}}/model {FIT}", again="--resume",
         older=f"train {{in}}/log.csv --method rns --epochs 1 --out {{out}}/model {FIT}", trains=True,
         together=True, within_epochs=True),
    Work("tune", f"tune {{in}}/log.csv --method dns --epochs 1 --trials 3 --out {{out}}/search {FIT}",
         trains=True),
    Work("tune --model", f"tune {{in}}/log.csv --method dns --epochs 2 --trials 1 --out {{out}}/search {FIT} "
         "--model {out}/model --refit", trains=True),
    Work("recipe", "train {in}/log.csv --recipe best --budget 1h --device cpu --out {out}/model", again="--resume",
         trains=True),
    Work("reproduce", "reproduce overall --data-dir {in}/paper --methods rns --seeds 1 --epochs 2 "
         "--device cpu --out {out}/tables", trains=True),
    Work("export", "export {in}/model --to parquet --out {out}/vectors", again="--force", together=True,
         older="export {in}/model --to parquet --out {out}/vectors --seed 1"),
    Work("recommend", "recommend {in}/model -k 9 --out {out}/recs.csv", again="--force",
         older="recommend {in}/model -k 5 --out {out}/recs.csv"),
]  # fmt: skip
AIMED, AT_RANDOM = 5, 1
LONG = ("recipe", "tune --model")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the forked processes have no others
    import_everything()
    yield made_once(tmp_path_factory, "torture", lambda folder: make_inputs(folder, tmp_path_factory.mktemp("scratch")))
    torch.set_num_threads(threads)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_killed_here_and_there(work: Work, inputs: Path, tmp_path: Path) -> None:
    stage = Stage.of(work, inputs, tmp_path / "home")
    draw = random.Random(work.name)
    total = Tally()
    aimed = min(2 if work.name in LONG else AIMED, stage.operations)
    operations = sorted(draw.sample(range(1, stage.operations + 1), aimed))
    for operation in operations:
        total.add(stage.story(forked, lambda life, at=operation: {"at_operation": at} if life == 0 else {}))
    assert total.kills == len(operations)
    for _ in range(AT_RANDOM):
        moment = draw.uniform(0, stage.seconds)
        total.add(stage.story(forked, lambda life, moment=moment: {"after": moment} if life == 0 else {}))
    assert total.clean, total


def torture(inputs: Path) -> None:
    """Its main program, with inputs that are there."""
    from checks.faults import __main__ as program

    def make_inputs(folder: Path, _: Path) -> None:
        import_everything()
        folder.symlink_to(inputs)

    with patch.object(program, "make_inputs", make_inputs):
        program.main()


def test_ranks_are_killed(inputs: Path) -> None:
    """In a process of its own: what has used OpenMP cannot be copied and use it again."""
    asked = ["--only", "train over 2 ranks", "--kills", "1", "--aimed", "1"]
    asked += ["--add=--batch 2048 --k 10 --epochs 3"]  # ranks wait for each other at every step and for every k
    threads = {"NUMBA_NUM_THREADS": "1"}
    with Program(partial(torture, inputs), *asked, cwd=Path(__file__).parents[2], environment=threads) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    kills, runs, equal = re.search(r"\| \*\*all\*\* \| (\d+) \| (\d+) \| (\d+) \|", out).groups()  # type: ignore[union-attr]
    assert int(kills) >= 4
    assert runs == equal


def test_a_server_and_who_replaces_its_model_are_killed(inputs: Path, tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs evenhand[serve]")
    total = served(inputs, tmp_path / "home", 3, random.Random(0), print)
    assert total.kills >= 3
    assert total.clean, total


def test_what_is_lost_is_noticed(inputs: Path, tmp_path: Path) -> None:
    """The measure itself: a run that starts over instead of going on is found out."""
    work = replace(WORKS[0], older=None, again="--force", within_epochs=False)
    stage = Stage.of(work, inputs, tmp_path / "home")
    ends = iter([{"at_operation": stage.operations // 2}, {}])
    tally = stage.story(forked, lambda life: next(ends))
    assert tally.lost_epochs > 0


def test_a_search_killed_while_it_begins(inputs: Path, tmp_path: Path) -> None:
    """Its journal is there with whole lines or not at all, so that whoever looks at it finds no broken file."""
    stage = Stage.of(WORKS[1], inputs, tmp_path / "home")
    total = Tally()
    for operation in range(1, 9):
        total.add(stage.story(forked, lambda life, at=operation: {"at_operation": at} if life == 0 else {}))
    assert total.kills == 8
    assert total.clean, total
