"""What comes from a publisher: zip files, and the files of well-known datasets."""

from __future__ import annotations

import io
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest.mock import patch

from checks.fuzz.inputs import WORDS, mutated
from checks.fuzz.targets.target import Target
from evenhand.data.datasets import fetch, known
from evenhand.data.datasets.load import as_interactions, load_dataset
from evenhand.utils.errors import InputError

NAMES = (
    "ml-100k/u.data", "ml-100k/", "u.data", "../x", "../../inside/x", "/tmp/x", "a/../../x", "..", ".", "",
    "./", "a", "a/b", "a/b/", "C:\\x", "c:x", "a\\..\\x", "\x00", "a\x00b", "x" * 300, "é/\u202e", "con",
    "a//b", "//x", "ml-100k/u.data/", "-rf", "~", "~/x", "%2e%2e/x", "a\n", "\x1b[31m",
)  # fmt: skip


def _unpacked(data: bytes, folder: Path) -> None:
    """As a download, and as a file that a person names; both leave nothing outside."""
    archive = folder / "ml-100k.zip"
    archive.write_bytes(data)
    tempfile.tempdir = str(folder)
    before = fetch._MOST_BYTES
    fetch._MOST_BYTES = 2_000_000
    try:
        problem = None
        try:
            fetch.unpack(archive, folder / "content")
        except InputError as told:
            problem = told
        size = sum(path.stat().st_size for path in (folder / "content").rglob("*") if path.is_file())
        assert size <= fetch._MOST_BYTES, f"{size} bytes were unpacked"
        assert not any(path.is_symlink() for path in folder.rglob("*"))
        try:
            load_dataset("ml-100k", archive, download=False)
        finally:
            left = {path.name for path in folder.iterdir()} - {"ml-100k.zip", "content"}
            assert not left, f"left behind: {left}"
        if problem is not None:
            raise problem
    finally:
        tempfile.tempdir = None
        fetch._MOST_BYTES = before


def _zip(random: Random, seeds: list[bytes]) -> bytes:
    if random.random() < 0.4:
        return mutated(random, seeds)
    sink = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(sink, "w") as made:
        warnings.simplefilter("ignore")
        for _ in range(random.choice((1, 2, 5))):
            info = zipfile.ZipInfo("x")
            info.filename = random.choice(NAMES)
            info.compress_type = random.choice((0, 8, 8, 12, 14))
            if random.random() < 0.1:
                info.external_attr = random.choice((0o120777, 0o060777, 0o040777, 0o010777)) << 16
            content = random.choice((b"1\t2\t3\t4\n1\t3\t3\t4\n", b"../x", b"", b"\0" * 3_000_000))
            made.writestr(info, content if random.random() < 0.97 else seeds[0])
    return mutated(random, [sink.getvalue()]) if random.random() < 0.4 else sink.getvalue()


def _layout(name: str, file: str) -> Callable[[bytes, Path], object]:
    def read(data: bytes, folder: Path) -> None:
        (folder / file).write_bytes(data)
        for twin in ("test.txt", "test.ascii"):
            (folder / twin).write_bytes(data)
        if name.startswith("titles"):
            reader = known.movielens_100k_titles if name == "titles-100k" else known.movielens_1m_titles
            reader(folder).to_pylist()
            return
        with patch.object(known, "COAT_SHAPE", (3, 4)):
            found = known.coat(folder) if name == "coat" else known.adjacency(folder)
        as_interactions(found.log).to_table().to_pylist()

    return read


def _numbers(random: Random, seeds: list[bytes]) -> bytes:
    return mutated(random, seeds, WORDS[:30] + tuple(word for word in WORDS if word[:1].isdigit()))


TARGETS = (
    Target("zip", _unpacked, _zip),
    Target("titles-100k", _layout("titles-100k", "u.item")),
    Target("titles-1m", _layout("titles-1m", "movies.dat")),
    Target("adjacency", _layout("adjacency", "train.txt"), _numbers),
    Target("coat", _layout("coat", "train.ascii"), _numbers),
)
