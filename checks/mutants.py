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
_KILL, _STOPPING = "tests/checks/test_faults_kill.py", "tests/cli/test_stopping_commands.py"
_DISK, _NUMBERS = "tests/checks/test_faults_disk.py", "tests/checks/test_faults_numbers.py"
_SPREAD, _OUTPUT = "tests/training/test_spread_checkpoints.py", "tests/test_hostile_output.py"
_SENTENCE = ("except OSError as problem:", "except ZeroDivisionError as problem:")

PROTECTIONS: dict[str, tuple[Mutant, ...]] = {
    "a process is killed": (
        Mutant("writing a checkpoint beside its place", "utils/atomic.py",
               'partial = target.with_name(target.name + ".partial")', "partial = target", _CHECKPOINTS),
        Mutant("flushing a checkpoint", "utils/atomic.py", "            os.fsync(sink.fileno())\n", "", _CHECKPOINTS),
        Mutant("the SHA-256 in a checkpoint's name", "training/checkpoints.py",
               'return content if hashlib.sha256(content).hexdigest() == path.stem.rpartition("-")[2] else None',
               "return content",
               _CHECKPOINTS),
        Mutant("going on from a checkpoint", "training/trainer.py",
               "checkpoints.restore(self, stopping) if resume else ([], 0.0)", "([], 0.0)",
               f"{_KILL} -k here_and_there[train]"),
        Mutant("refusing a run that differs", "training/checkpoints.py", "        if other:\n",
               "        if False:\n", _CHECKPOINTS),
        Mutant("removing the checkpoints of a finished run at one stroke", "training/checkpoints.py",
               "        os.rename(folder, gone)\n", "        shutil.rmtree(folder)\n", _TWO),
        Mutant("keeping a row's checkpoints until the row is on record", "paper/reproduce.py",
               "            for run, users in finished:\n",
               "            forget(batch, work, device)\n            for run, users in finished:\n",
               f"{_TWO} -k on_record"),
    ),
    "… while it tunes": (
        Mutant("cutting off a half-written trial", "experiments/study.py", "if whole < len(content):", "if False:",
               "tests/experiments/test_tune.py tests/experiments/test_study.py"),
        Mutant("a journal that comes into being with its first line", "experiments/study.py",
               "                _begin(storage, created)\n", "                storage.touch()\n",
               f"{_KILL} -k while_it_begins"),
        Mutant("going on with the trial that was cut off", "experiments/study.py",
               "            if set(one.params) == set(self._space):\n", "            if False:\n",
               "tests/experiments/test_tune_side_by_side.py tests/experiments/test_study.py"),
    ),
    "… while it writes": (
        Mutant("writing files beside their place", "utils/atomic.py",
               "            yield beside\n            flush(beside)",
               "            yield target\n            flush(beside)", _DISK),
        Mutant("clearing what killed processes left", "utils/atomic.py",
               "    for path in found:\n        handle = locked",
               "    for path in ():\n        handle = locked", _TWO),
        Mutant("sparing what a living process holds", "utils/atomic.py",
               "        if handle is None:  # its process lives\n            continue\n",
               "        handle = handle or os.dup(2)\n", _TWO),
        Mutant("swapping the names of two folders", "utils/atomic.py", "elif not _exchange(stage, target):",
               "elif True:", _TWO),
        Mutant("bringing back a folder that was moved aside", "utils/atomic.py",
               'if path.suffix == ".old" and not target.exists():', "if False:", _TWO),
    ),
    "… while it fits to everything": (
        Mutant("going on with a refit", "training/trained.py", 'resume="matching",', "resume=False,",
               "tests/training/test_trained.py -k goes_on[refit]"),
        Mutant("going on with an update", "training/trained.py", 'resume="matching",', "resume=False,",
               "tests/training/test_trained.py -k goes_on[update]"),
        Mutant("keeping the parts of a blend", "baselines/blend.py",
               "        if (kept := self.find(method)) is not None:\n", "        if False:\n",
               "tests/baselines/test_blend.py -k finished"),
        Mutant("going on with a part of a blend that is trained", "baselines/blend.py",
               'checkpoints=checkpoints, resume="matching",', "checkpoints=None,", f"{_STOPPING} -k blend"),
        Mutant("going on with a part of a recipe", "baselines/blend.py", "seconds = float(json.loads(begun.",
               "seconds += float(json.loads(begun.", f"{_STOPPING} -k recipe"),
        Mutant("going on with the model of a search", "cli/tune_command.py",
               'checkpoints=kept, resume="matching",', "", f"{_STOPPING} -k model"),
        Mutant("going on with the refits of a comparison", "experiments/compare.py",
               "refitted_fit(one, fit, conditions, run)", "refitted_fit(one, fit, conditions)",
               f"{_STOPPING} -k compare"),
        Mutant("the mean epoch of a refit", "training/trained.py", "np.mean(fit.epochs)", "np.max(fit.epochs)",
               "tests/training/test_trainer.py -k refit"),
    ),
    "SIGTERM or Ctrl-C": (
        Mutant("SIGTERM that ends in good order", "utils/stopping.py",
               "        signal.signal(signal.SIGTERM, _terminate)\n", "        pass\n", f"{_STOPPING} -k any_other"),
        Mutant("SIGTERM that reaches the training within a recipe", "utils/stopping.py",
               " or present in _listening", "", f"{_STOPPING} -k recipe"),
        Mutant("saying how to go on", "experiments/output.py",
               "        if checkpoints is not None and not checkpoints.is_dir():\n",
               "        if True:\n", f"{_STOPPING} -k stopped_late"),
    ),
    "one of several processes": (
        Mutant("looking at every part of a checkpoint", "training/checkpoints.py",
               '_whole_content(folder / part["file"]) is None', "False", _SPREAD),
        Mutant("a manifest that comes last", "training/checkpoints.py",
               "if document is None or not", "if document is not None and not", _SPREAD),
        Mutant("passing over the checkpoints of other work", "training/checkpoints.py",
               "            if self.strict:\n                raise\n            return False\n", "            raise\n",
               _SPREAD),
    ),
    "a server": (
        Mutant("serving the older model where the new one does not load", "serve/answers.py",
               "except (InputError, OSError, MemoryError) as problem:", "except ZeroDivisionError as problem:",
               "tests/serve/test_web.py -k does_not_load"),
        Mutant("looking for a new model", "serve/answers.py",
               "        if signature(self.folder) == self._seen:\n            return\n        try:\n",
               "        if True:\n            return\n        try:\n", "tests/serve/test_web.py -k link"),
        Mutant("tensors and version of one model", "serve/answers.py",
               "                if signature(self.folder) == self._seen:\n                    return found\n",
               "                return found\n", "tests/serve/test_web.py -k meanwhile"),
        Mutant("a model of one folder, though it is replaced", "models/folder.py",
               "            if _stamp(folder) == before:\n                return model\n",
               "            return model\n", "tests/models/test_folder.py -k meanwhile"),
    ),
    "a disk is full": (
        Mutant("undoing moves that fail halfway", "utils/atomic.py",
               "                os.replace(older / name, target / name)\n", "                pass\n", _DISK),
        Mutant("one sentence for a checkpoint that cannot be written", "training/checkpoints.py", *_SENTENCE, _DISK),
        Mutant("one sentence for a folder that cannot be written", "utils/atomic.py",
               "    except OSError as problem:\n        raise InputError(f\"cannot write to {target}",
               "    except ZeroDivisionError as problem:\n        raise InputError(f\"cannot write to {target}", _DISK),
        Mutant("one sentence for a table that cannot be written", "data/write.py",
               "    except OSError as problem:\n        raise InputError(f\"cannot write {path}",
               "    except ZeroDivisionError as problem:\n        raise InputError(f\"cannot write {path}", _DISK),
        Mutant("one sentence for a report that cannot be written", "data/write.py",
               "    with written(path) as partial:\n        partial.write_text(",
               "    with atomic_file(path) as partial:\n        partial.write_text(", _DISK),
        Mutant("one sentence for results that cannot be written", "experiments/results.py", *_SENTENCE, _DISK),
    ),
    "a folder is read-only": (
        Mutant("refusing a read-only folder before the work", "experiments/results.py",
               "if not os.access(nearest, os.W_OK | os.X_OK):", "if False:", _DISK),
        Mutant("the same for the folder of a table", "data/write.py", "if not os.access(path.parent, os.W_OK):",
               "if False:", _DISK),
    ),
    "standard output": (
        Mutant("one sentence for standard output", "cli/__init__.py",
               "    except OSError as problem:\n        drop_output()\n", "    except ZeroDivisionError as problem:\n",
               f"{_DISK} -k standard_output"),
        Mutant("spelling out what an encoding lacks", "cli/__init__.py",
               '            stream.reconfigure(errors="backslashreplace")\n', "            pass\n",
               f"{_STOPPING} -k encoding"),
        Mutant("a closed standard output", "cli/__init__.py", "        if stream is None:\n", "        if False:\n",
               f"{_STOPPING} -k closed"),
    ),
    "two processes, one run folder": (
        Mutant("the lock on a run folder", "experiments/output.py",
               "    with one_process(folder):\n        check_folder", "    if True:\n        check_folder", _TWO),
        Mutant("the lock on a model that is updated", "cli/model_commands.py", "with one_process(folder), ", "with ",
               _TWO),
        Mutant("the lock on a search", "experiments/study.py", "    with one_process(storage.parent):\n",
               "    if True:\n", _TWO),
    ),
    "two processes, one file": (
        Mutant("a name of its own for what is being written", "utils/atomic.py", "{secrets.token_hex(4)}", "00000000",
               _TWO),
        Mutant("looking again before a folder is replaced", "utils/atomic.py",
               "                check_folder(given, force)  # again: another process may have written here meanwhile\n",
               "", _TWO),
    ),
    "the loss or the vectors": (
        Mutant("stopping at what is no number", "training/trainer.py",
               "for r in (~values.isfinite()).nonzero().flatten().tolist()\n", "for r in ()\n", _NUMBERS),
        Mutant("saving no such thing within an epoch", "training/trainer.py",
               "                self._check_finite(epoch)\n                return None\n",
               "                return None\n", _NUMBERS),
        Mutant("blaming weight decay where it is to blame", "training/trainer.py", "if decay > _ABSURD_DECAY else",
               "if False else", "tests/training/test_trainer.py -k blamed"),
    ),
    "the loss stays a number": (
        Mutant("the note on an absurd loss", "training/run.py", "if loss <= _ABSURD * math.log(2):", "if True:",
               _NUMBERS),
    ),
    "memory runs out while lists": (
        Mutant("smaller chunks where memory runs out", "models/topk.py",
               "if len(chunk) == 1 or not is_shortage(problem):", "if True:", _NUMBERS),
        Mutant("knowing a GPU's error", "utils/memory.py", "isinstance(problem, (MemoryError, torch.OutOfMemoryError))",
               "isinstance(problem, MemoryError)", _NUMBERS),
    ),
    "memory runs out in training": (
        Mutant("one sentence where training runs out of memory", "training/estimates.py",
               "        if not is_shortage(problem):\n", "        if True:\n",
               "tests/training/test_estimates.py"),
    ),
    "memory runs out anywhere else": (
        Mutant("one sentence where memory runs out", "cli/__init__.py", "if not is_shortage(problem):", "if True:",
               _NUMBERS),
        Mutant("refusing lists that memory has no room for", "models/topk.py", "slot) > _WORTH_ASKING:",
               "slot) < 0:", f"{_OUTPUT} -k would_not_fit"),
    ),
    "there are too many users": (
        Mutant("saying that test was looked at on a sample", "training/method.py",
               "users > (sample := users_within_reach(split.test)):", "users < 0:",
               "tests/training/test_evaluation.py"),
        Mutant("saying that shares were found on a sample", "baselines/base.py", "        if users < there:\n",
               "        if False:\n", "tests/baselines/test_blend.py -k sample"),
    ),
    "a model, a checkpoint": (
        Mutant("refusing checkpoints of another format", "training/checkpoints.py",
               'if document["format"] != self.format:', "if False:", _CHECKPOINTS),
    ),
    "a text of others": (
        Mutant("a title that is no formula", "data/write.py", 'if "title" in table.column_names:', "if False:",
               f"{_OUTPUT} -k formula"),
        Mutant("spelling out what steers a terminal", "utils/text.py",
               'lambda sign: sign[0].encode("unicode_escape").decode("ascii")', "lambda sign: sign[0]", _OUTPUT),
        Mutant("escaping on a page", "report/render.py", "autoescape=True", "autoescape=False",
               "tests/report/test_render.py tests/report/test_audit_page.py"),
        Mutant("one line an annotation", "audit/gates.py",
               'return f"::{level} title=evenhand audit::{visible(text)}"',
               'return f"::{level} title=evenhand audit::{text}"', _OUTPUT),
        Mutant("texts that XML can hold", "audit/gates.py",
               "return visible(text).replace(", "return text.replace(", _OUTPUT),
    ),
    "a verdict": (
        Mutant("Holm's adjustment", "metrics/statistics.py", "def holm(",
               "def holm(p):\n    return np.asarray(p)\n\n\ndef _holm(", "tests/metrics/test_statistics.py"),
        Mutant("no verdict from a handful of users", "metrics/statistics.py", "LEAST_USERS = 20", "LEAST_USERS = 1",
               "tests/metrics/test_statistics.py tests/audit/test_run_audit.py"),
        Mutant("a split per user that is random", "data/split_rules.py",
               "place = _place_in_row(data, np.lexsort((ask.keys, data.users)))\n    # As in decimal",
               "place = _place_in_row(data, np.lexsort((data.items, data.users)))\n    # As in decimal",
               "tests/data/test_per_user_split.py"),
        Mutant("users who are drawn for a look", "training/evaluation.py",
               'drawn = np.argsort(np.random.PCG64(_SAMPLE_SEED).random_raw(len(users)), kind="stable")',
               "drawn = np.arange(len(users))", "tests/training/test_evaluation.py"),
        Mutant("the divisor of the automatic α", "training/engines/choices.py", "total / (size * probes)",
               "total / size", "tests/training/test_trainer.py -k automatic"),
    ),
}  # fmt: skip
"""By how the row of docs/reliability.md begins that promises it."""
MUTANTS = tuple(one for each in PROTECTIONS.values() for one in each)


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
    if ended.returncode > 1:
        sys.exit(f"{mutant.without}: the tests could not be run\n{ended.stdout[-2000:]}{ended.stderr[-500:]}")
    return ended.returncode != 0  # below 0: without the protection a signal ended the tests


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
