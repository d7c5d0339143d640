"""What several test files share."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import assertstate_key, rewrite
from hypothesis import settings

from evenhand.utils import progress
from object_store import ObjectStore, running_store
from prepared import start_server

# Test data are small, so a second thread would only wait; and on a busy machine waiting threads are slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes of one world are killed and time out on purpose; torch would tell of each.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
# Tables are as wide as they need, whatever the terminal (pytest-xdist tells its workers how wide that is).
os.environ.pop("COLUMNS", None)
# Lines of progress come after some seconds, so whether a test sees one would depend on how busy the machine is.
progress.LINE_EVERY = progress.SILENT_FOR = 1e9


# On a busy machine any example may take long.
settings.register_profile("evenhand", deadline=None)
settings.load_profile("evenhand")


LONG = {
    *("test_faults_kill", "test_sharded", "test_sharded_torch", "test_spread_training", "test_torchrun"),
    *("test_nightly", "test_drift", "test_shared_data", "test_audit_page_browser"),
}
"""Files with tests of many seconds. They come first, so that at the end no process is left alone with one."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: those whose tests wait for others leave theirs idle."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    """Of several processes each rewrites the asserts of a share of the files for all; else each would do all."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        kept = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None:
            kept.parent.mkdir(exist_ok=True)
            stamp, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[assertstate_key], code, stamp, kept)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


def pytest_collection_finish() -> None:
    """What has been imported stays: looking through it for garbage again and again takes a twentieth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    start_server()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets, which the repository does not hold; without it, such tests skip."""
    named = os.environ.get("EVENHAND_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real data not found in {folder}; set EVENHAND_SHARED_DATA to its folder")
    return folder


@pytest.fixture
def object_store() -> Iterator[ObjectStore]:
    """An object store of its own for a test; without moto, such tests skip."""
    with running_store() as store:
        yield store
