"""Compiled code is kept, until any source that takes part changes; without a place for it, it still runs."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

from evenhand.utils import compiled
from evenhand.utils.progress import compile_time, is_compiling, working_time
from prepared import Program

INNER = """
from evenhand.utils.compiled import compiled
from pack.values import STEP

@compiled()
def inner():
    return {} + STEP
"""
OUTER = """
from evenhand.utils.compiled import compiled
from pack.inner import inner

@compiled()
def outer():
    return inner()
"""


def call_outer() -> None:
    """In a new process: what `outer` of the package returned, and how often it was found on disk."""
    sys.dont_write_bytecode = True  # which is told by seconds, and the package changes sooner
    compiled._cache_folder.cache_clear()
    compiled.PACKAGE = Path(sys.argv[1])
    sys.path.insert(0, str(compiled.PACKAGE.parent))
    outer = import_module("pack.outer").outer
    print(outer(), sum(outer.stats.cache_hits.values()))


def run(package: Path, **environment: str) -> tuple[list[int], str]:
    """(what `outer` returned, how often it was found on disk), and what was warned of."""
    places = {"HOME": str(package.parent), "XDG_CACHE_HOME": str(package.parent / "cache")}
    with Program(call_outer, package, environment=places | environment) as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    return [int(word) for word in out.split()], err


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "values.py").write_text("STEP = 0\n")
    (folder / "inner.py").write_text(INNER.format(1))
    (folder / "outer.py").write_text(OUTER)
    return folder


def test_a_change_in_another_file_is_noticed(package: Path) -> None:
    assert run(package)[0] == [1, 0]
    assert run(package)[0] == [1, 1]
    (package / "inner.py").write_text(INNER.format(2))
    assert run(package)[0] == [2, 0]
    (package / "values.py").write_text("STEP = 40\n")
    assert run(package)[0] == [42, 0]


def test_processes_that_start_together_compile_once(package: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        found = [one for one, _ in both.map(run, [package, package])]
    assert sorted(found) == [[1, 0], [1, 1]]


def test_the_working_time_stands_still_while_code_is_compiled() -> None:
    def inner(x: int) -> int:
        return x + 1

    called = compiled.compiled()(inner)

    @compiled.compiled()
    def outer(x: int) -> int:
        return called(x) + called(x)

    before, worked, began = compile_time(), working_time(), time.monotonic()
    assert outer(1) == 4
    passed, took = time.monotonic() - began, compile_time() - before
    assert 0.5 * passed < took <= passed  # once, though one was compiled within the other
    assert working_time() - worked < 0.5 * passed
    assert not is_compiling()
    assert outer(2) == 6
    assert compile_time() - before == took


def test_where_nothing_can_be_written_it_compiles_each_time_and_says_so(package: Path) -> None:
    found, warned = run(package, NUMBA_CACHE_DIR="/dev/null/nowhere")
    assert found == [1, 0]
    assert "compiled code cannot be kept" in warned
    assert "/dev/null/nowhere" in warned
    assert "Set NUMBA_CACHE_DIR to a folder that can be." in warned


def test_the_hash_covers_all_compiled_code_and_the_constants_in_it(tmp_path: Path) -> None:
    held = {path.relative_to(compiled.PACKAGE).as_posix() for path in compiled._sources(compiled.PACKAGE)}
    decorated = {
        path.relative_to(compiled.PACKAGE).as_posix()
        for path in compiled.PACKAGE.rglob("*.py")
        if "@compiled(" in path.read_text() or "@_compiled" in path.read_text()
    }
    assert decorated
    assert decorated <= held
    assert "samplers/auc.py" in held  # its AVERAGE is compiled into the engine
    for path in compiled.PACKAGE.rglob("*.py"):
        assert "njit(cache" not in path.read_text()
        assert "cache=True" not in path.read_text() or path.name == "compiled.py", path


def test_compiled_code_of_old_sources_is_removed_after_a_while(tmp_path: Path) -> None:
    current, old, recent = (tmp_path / f"numba-{name}" for name in ("current", "old", "recent"))
    for folder in (current, old, recent):
        folder.mkdir()
        (folder / "code.nbi").write_text("")
    os.utime(old, (0, 0))
    os.utime(current, (0, 0))
    compiled._remove_old(tmp_path, current)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numba-current", "numba-recent"]
