"""SIGTERM and Ctrl-C end every command in one line; standard output of any kind costs no results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.baselines import EASE, Popular, recipe
from evenhand.cli import main, show
from evenhand.encoders import MF
from evenhand.objectives import Softmax
from evenhand.samplers import UniformSampler
from evenhand.training.settings import Settings
from evenhand.training.trained import Trained
from evenhand.training.trainer import Trainer
from evenhand.utils import progress
from prepared import Program
from run_cli import evenhand, small_log, write_log

LONG = (
    "--protocol",
    "paper",
    "--epochs",
    "1000000",
    "--dim",
    "8",
    "--seeds",
    "2",
    "--methods",
    "rns",
    "--k",
    "5",
    "--quiet",
)


def interrupted(log: Path, out: Path, number: int, *more: str) -> tuple[int, str]:
    """`compare` asked to stop when it has written a checkpoint: exit code and standard error."""
    older = set(out.glob(".checkpoints/*/*.safetensors"))
    process = Program(main, "compare", log, *LONG, "--out", out, *more)
    until = time.monotonic() + 120
    while set(out.glob(".checkpoints/*/*.safetensors")) <= older and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1]
    assert process.returncode is not None
    return process.returncode, err


def epochs_saved(out: Path) -> int:
    (newest,) = sorted(out.glob(".checkpoints/*/*.safetensors"))[-1:]
    content = newest.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return len(json.loads(header["__metadata__"]["evenhand"])["facts"]["history"])


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_a_scheduler_that_stops_a_training_finds_everything_saved(tmp_path: Path) -> None:
    log, out = write_log(small_log(), tmp_path / "log.csv"), tmp_path / "run"
    code, err = interrupted(log, out, signal.SIGTERM)
    assert code == 143, err
    assert err.count("\n") == 1
    assert err.startswith("evenhand: stopped after ")
    assert err.endswith("everything is saved: go on with --resume.\n")
    before = epochs_saved(out)
    assert f"stopped after {before} epoch" in err
    code, err = interrupted(log, out, signal.SIGINT, "--resume")
    assert code == 130
    assert epochs_saved(out) >= before


class Epochs:
    """Counts the epochs that are trained in this process; at the one of number `ends` SIGTERM comes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.ends = 0, -1
        real = Trainer.run_epoch

        def counted(trainer: Any, *arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self.ends:
                os.kill(os.getpid(), signal.SIGTERM)
            return real(trainer, *arguments, **named)

        monkeypatch.setattr(Trainer, "run_epoch", counted)


def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that is done soon, whatever the clock says."""
    softmax = Trained(UniformSampler(), Softmax(), MF(dim=4), Settings(epochs=4, patience=9, batch=256), "softmax")
    families = {"popular": [Popular()], "ease": [EASE(l2=20)], "softmax": [softmax]}
    monkeypatch.setattr(recipe, "candidates", lambda *_: {name: list(each) for name, each in families.items()})


SHORT = "--epochs 6 --patience 9 --dim 4 --batch 256 --lr 0.005"
LONG_WORK = {
    "train": (f"train LOG --method dns --no-refit --seeds 2 {SHORT} --out OUT", "--resume"),
    "train, fitted to everything": (f"train LOG --method dns --seeds 1 {SHORT} --out OUT", "--resume"),
    "compare --refit": (f"compare LOG --methods dns,auc-ns --refit --seeds 1 {SHORT} --k 5 --out OUT", "--resume"),
    "compare --tune": (f"compare LOG --methods dns --tune 2 --seeds 1 {SHORT} --k 5 --out OUT", "--resume"),
    "blend": ("train LOG --method blend:parts=popular+ease+dns --seeds 1 --out OUT --quiet", "--resume"),
    "recipe": ("train LOG --recipe best --budget 10m --out OUT", "--resume"),
    "tune": (f"tune LOG --method dns --trials 3 {SHORT} --out OUT", ""),
    "tune --model": (f"tune LOG --method dns --trials 2 {SHORT} --out OUT --model OUT.model", ""),
    "tune --model --refit": (f"tune LOG --method dns --trials 1 {SHORT} --out OUT --model OUT.model --refit", ""),
    "update": ("update MODEL NEWER --epochs 6 --out OUT", ""),
    "update of a blend": ("update BLEND NEWER --out OUT", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, a newer one, and two models of the first."""
    folder, log = tmp_path_factory.mktemp("shop"), small_log()
    write_log(log, folder / "newer.csv")
    write_log(log.take(np.arange(len(log)) % 7 > 0), folder / "log.csv")
    for name, method in (("model", "dns"), ("blend", "blend:parts=popular+dns:shares=0.3+0.7")):
        short = SHORT.split() if name == "model" else []
        made = evenhand("train", folder / "log.csv", "--method", method, "--seeds", "1", *short, "--out", folder / name)
        assert made.code == 0, made.err
    return folder


EARLIER = ("blend", "recipe", "train, fitted to everything", "tune --model --refit")


WHEN = [*((work, 1) for work in LONG_WORK), *((work, 4) for work in EARLIER), ("recipe", 6)]
"""How many epochs before the end; six before that of the recipe its search is at work."""


@pytest.mark.parametrize(("work", "back"), WHEN)
def test_work_that_is_stopped_late_goes_on(
    work: str, back: int, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM in one of the last epochs; then no epoch but that one is trained again, and the end is the same."""
    few_candidates(monkeypatch)
    text, again = LONG_WORK[work]
    places = {"LOG": "log.csv", "NEWER": "newer.csv", "MODEL": "model", "BLEND": "blend"}

    def run(out: str, more: str = "") -> Any:
        words = [str(shop / places.get(word, "")) if word in places else word for word in f"{text} {more}".split()]
        return evenhand(*(word.replace("OUT", str(tmp_path / out)) for word in words))

    epochs = Epochs(monkeypatch)
    whole = run("whole")
    assert whole.code == 0, whole.err
    most, epochs.count, epochs.ends = epochs.count, 0, epochs.count - back
    ended = run("stopped")
    assert ended.code == 143, ended.err
    assert epochs.count == epochs.ends  # what was being trained heard it: no other epoch began
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("evenhand: stopped")
    assert ("go on with --resume." if again else "run the same command again to go on.") in ended.err
    finished = run("stopped", again)
    assert finished.code == 0, finished.err
    assert epochs.count <= most + (7 if work == "tune" else 1)  # a trial begins again; else it is the epoch at hand
    assert results(tmp_path, "stopped") == results(tmp_path, "whole")
    assert not list(tmp_path.rglob(".*"))


def results(folder: Path, start: str) -> dict[str, bytes]:
    """What a run left that does not depend on the time it took."""
    found = [path for path in folder.rglob("*") if path.name in ("model.safetensors", "recommendations.parquet")]
    named = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    return {name.removeprefix(start): content for name, content in named.items() if name.startswith(start)}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_any_other_command_ends_in_one_line(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    monkeypatch.setattr(show, "print_json", lambda document: os.kill(os.getpid(), number))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background begins without
    ended = evenhand("methods", "--json")
    signal.signal(signal.SIGINT, usual)
    assert (ended.code, ended.out, ended.err.strip()) == (code, "", "evenhand: stopped.")


# Standard output


def test_an_encoding_without_arrows_costs_nothing(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "lög.csv")
    short = ("--epochs", "1", "--seeds", "1", "--dim", "4", "--k", "5", "--methods", "rns", "--quiet")
    ended = evenhand("compare", log, *short, encoding="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert "ndcg \\u2191" in ended.out
    ended = evenhand("compare", log, *short, "--json", encoding="ascii")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["rows"][0]["name"] == "rns"
    command = [sys.executable, "-m", "evenhand", "metrics"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ascii_only)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert "\\u2229" in printed.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of another kind")
def test_a_closed_standard_output_costs_nothing(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    command = f'"{sys.executable}" -m evenhand data describe "{log}"'
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
        ended = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, ""), closed
        assert ("users" in ended.stdout) is (">&-" not in closed.replace("2>&-", "")), closed


def test_every_command_can_be_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    log = write_log(small_log(), tmp_path / "log.csv")
    short = ("--epochs", "1", "--seeds", "1", "--dim", "4", "--k", "5", "--methods", "rns")
    assert "rns: 1 of 1" in evenhand("compare", log, *short).err
    assert evenhand("compare", log, *short, "--quiet").err == ""
    assert "rns: 1 of 1" in evenhand("compare", log, *short).err
