"""python -m checks.mutants [--only WORD] [--list]

Takes each protection of docs/reliability.md out of a copy of the sources, one at a time, and runs the tests that must
notice. A mutant that the tests do not kill is alive: the protection could be lost without anybody knowing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evenhand"


@dataclass(frozen=True)
class Mutant:
    """One line of the package, what becomes of it, and where a test must fail."""

    without: str
    """The protection that is taken out."""
    file: str
    line: str
    instead: str
    tests: str
    """Arguments for pytest: a file, and -k with a word where the file is slow."""

    def source(self, package: Path) -> Path:
        return package / self.file

    def problem(self) -> str | None:
        """Why it cannot be made: the code has changed, and so must the mutant."""
        found = self.source(PACKAGE).read_text(encoding="utf-8").count(self.line)
        return None if found == 1 else f"{self.file} has {found} places of: {self.line.strip()}"


_CHECKPOINTS, _TWO = "tests/training/test_checkpoints.py", "tests/checks/test_faults_two.py"
_DISK, _NUMBERS = "tests/checks/test_faults_disk.py", "tests/checks/test_faults_numbers.py"

MUTANTS = (
    Mutant("writing a checkpoint beside its place", "utils/atomic.py",
           'partial = target.with_name(target.name + ".partial")', "partial = target", _CHECKPOINTS),
    Mutant("flushing a checkpoint", "utils/atomic.py", "            os.fsync(sink.fileno())\n", "", _CHECKPOINTS),
    Mutant("the SHA-256 in a checkpoint's name", "training/checkpoints.py",
           "return content if hashlib.sha256(content).hexdigest() == digest else None", "return content",
           _CHECKPOINTS),
    Mutant("going on from a checkpoint", "training/trainer.py",
           "checkpoints.restore(self, stopping) if resume else ([], 0.0)", "([], 0.0)",
           "tests/checks/test_faults_kill.py -k here_and_there[train]"),
    Mutant("refusing a run that differs", "training/checkpoints.py", "        if other:\n", "        if False:\n",
           _CHECKPOINTS),
    Mutant("cutting off a half-written trial", "experiments/study.py", "if whole < len(content):", "if False:",
           "tests/experiments/test_tune.py tests/experiments/test_study.py"),
    Mutant("a journal that comes into being with its first line", "experiments/study.py",
           "                _begin(storage, created)\n", "                storage.touch()\n",
           "tests/checks/test_faults_kill.py -k while_it_begins"),
    Mutant("removing the checkpoints of a finished run at one stroke", "training/checkpoints.py",
           "        os.rename(folder, gone)\n", "        shutil.rmtree(folder)\n", _TWO),
    Mutant("clearing what killed processes left", "utils/atomic.py",
           "    for path in found:\n        handle = _locked", "    for path in ():\n        handle = _locked", _TWO),
    Mutant("sparing what a living process holds", "utils/atomic.py",
           "        if handle is None:  # its process lives\n            continue\n",
           "        handle = handle or os.dup(2)\n", _TWO),
    Mutant("swapping the names of two folders", "utils/atomic.py", "elif not _exchange(stage, target):",
           "elif True:", _TWO),
    Mutant("bringing back a folder that was moved aside", "utils/atomic.py",
           'if path.suffix == ".old" and not target.exists():', "if False:", _TWO),
    Mutant("looking again before a folder is replaced", "utils/atomic.py",
           "                check_folder(given, force)  # again: another process may have written here meanwhile\n", "",
           _TWO),
    Mutant("the lock on a run folder", "experiments/output.py", "with one_process(folder):", "if True:", _TWO),
    Mutant("the lock on a model that is updated", "cli/update_command.py", "with one_process(folder):", "if True:",
           _TWO),
    Mutant("writing files beside their place", "utils/atomic.py",
           "            yield partial\n            flush(partial)",
           "            yield target\n            flush(partial)", _DISK),
    Mutant("undoing moves that fail halfway", "utils/atomic.py",
           "                os.replace(older / name, target / name)\n", "                pass\n", _DISK),
    Mutant("one sentence for a checkpoint that cannot be written", "training/checkpoints.py",
           "        except OSError as problem:", "        except ZeroDivisionError as problem:", _DISK),
    Mutant("refusing a read-only folder before the work", "experiments/output.py",
           "if not os.access(nearest, os.W_OK | os.X_OK):", "if False:", _DISK),
    Mutant("stopping at what is no number", "training/trainer.py",
           "for r in (~values.isfinite()).nonzero().flatten().tolist()\n", "for r in ()\n", _NUMBERS),
    Mutant("the note on an absurd loss", "training/run.py", "if loss <= _ABSURD * math.log(2):", "if True:", _NUMBERS),
    Mutant("smaller chunks where memory runs out", "models/topk.py", "if len(chunk) == 1 or not is_shortage(problem):",
           "if True:", _NUMBERS),
    Mutant("one sentence where memory runs out", "cli/__init__.py", "if not is_shortage(problem):", "if True:",
           _NUMBERS),
    Mutant("going on with a refit", "training/run.py", 'checkpoints=run.checkpoints, resume="matching",\n    ).model',
           'checkpoints=run.checkpoints, resume=False,\n    ).model', "tests/training/test_update.py -k goes_on"),
    Mutant("going on with an update", "training/update.py", 'resume="matching",', "resume=False,",
           "tests/training/test_update.py -k goes_on"),
    Mutant("keeping the parts of a blend", "baselines/workshop.py",
           "if place is not None and self.find(method) is not None:", "if False:",
           "tests/baselines/test_blend.py -k finished"),
    Mutant("saying that test was looked at on a sample", "training/method.py",
           "users > (sample := users_within_reach(split.test)):", "users < 0:", "tests/training/test_evaluation.py"),
    Mutant("saying that shares were found on a sample", "baselines/base.py", "    if users >= there:\n",
           "    if True:\n", "tests/baselines/test_blend.py -k sample"),
    Mutant("refusing lists that memory has no room for", "models/topk.py", "slot) > _WORTH_ASKING:", "slot) < 0:",
           "tests/test_hostile_output.py -k would_not_fit"),
    Mutant("the mean epoch of a refit", "training/run.py", "np.mean(fitted.epochs)", "np.max(fitted.epochs)",
           "tests/training"),
    Mutant("Holm's adjustment", "metrics/statistics.py", "def holm(",
           "def holm(p):\n    return np.asarray(p)\n\n\ndef _holm(", "tests/metrics/test_statistics.py"),
)  # fmt: skip


def killed(mutant: Mutant) -> bool:
    """Whether the tests fail without the protection."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as place:
        package = Path(place) / "evenhand"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        source = mutant.source(package)
        text = source.read_text(encoding="utf-8")
        source.write_text(text.replace(mutant.line, mutant.instead), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": place, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        if not any(word in mutant.file for word in ("engines", "compiled")):  # nothing that is compiled has changed
            environment["NUMBA_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / "evenhand-mutants")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests.split()]
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        sys.exit(f"{mutant.without}: the tests could not be run\n{ended.stdout[-2000:]}{ended.stderr[-500:]}")
    return ended.returncode == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", help="mutants whose protection holds this word")
    parser.add_argument("--list", action="store_true", help="only say whether each can be made")
    asked = parser.parse_args()
    chosen = [one for one in MUTANTS if asked.only in one.without]
    problems = [problem for one in chosen if (problem := one.problem())]
    if problems:
        sys.exit("\n".join(problems))
    alive = []
    for one in chosen if not asked.list else ():
        began = time.monotonic()
        if not killed(one):
            alive.append(one)
        print(f"{'alive ' if one in alive else 'killed'} {one.without} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen)} mutants, {len(alive)} alive" if not asked.list else f"{len(chosen)} mutants can be made")
    sys.exit(1 if alive else 0)


if __name__ == "__main__":
    main()
