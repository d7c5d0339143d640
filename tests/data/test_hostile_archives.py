"""Zip files made to do harm: nothing is written outside, nothing stays behind, and one sentence says why."""

from __future__ import annotations

import io
import struct
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

from evenhand.data.datasets import fetch
from evenhand.data.datasets.load import load_dataset
from evenhand.utils.errors import InputError

DATA = "1\t2\t3\t4\n1\t3\t5\t6\n"


def archive(*entries: tuple[str, str], method: int = zipfile.ZIP_DEFLATED, mode: int = 0o644) -> bytes:
    sink = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(sink, "w") as made:
        warnings.simplefilter("ignore")
        for name, content in entries:
            info = zipfile.ZipInfo("x")
            info.filename, info.compress_type = name, method
            info.external_attr = mode << 16
            made.writestr(info, content)
    return sink.getvalue()


def encrypted(whole: bytes) -> bytes:
    """The same with the flag that says so, in both headers."""
    local, central = whole.index(b"PK\x03\x04") + 6, whole.index(b"PK\x01\x02") + 8
    data = bytearray(whole)
    for place in (local, central):
        data[place] |= 1
    return bytes(data)


def lying_about_size(whole: bytes, size: int) -> bytes:
    data = bytearray(whole)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = whole.index(mark) + offset
        data[place : place + 4] = struct.pack("<I", size)
    return bytes(data)


def before_the_beginning(whole: bytes) -> bytes:
    """The directory is said to lie later than it does, which moves every file to before the first byte."""
    data = bytearray(whole)
    place = whole.index(b"PK\x05\x06") + 16
    data[place : place + 4] = struct.pack("<I", 2**30)
    return bytes(data)


def wrong_crc(whole: bytes) -> bytes:
    data = bytearray(whole)
    place = whole.index(b"PK\x01\x02") + 16
    data[place] ^= 255
    return bytes(data)


SOUND = archive(("ml-100k/u.data", DATA))
HOSTILE: dict[str, tuple[bytes, str]] = {
    "up": (archive(("../x", "a")), "outside its folder"),
    "up from below": (archive(("a/../../x", "a")), "outside its folder"),
    "absolute": (archive(("/tmp/evenhand-x", "a")), "outside its folder"),
    "a drive": (archive(("C:x", "a")), "outside its folder"),
    "backslashes": (archive(("a\\..\\..\\x", "a")), "outside its folder"),
    "a link": (archive(("x", "/etc/passwd"), mode=0o120777), "outside its folder"),
    "no name": (archive(("", "a")), "no name for a file"),
    "a dot": (archive((".", "a")), "no name for a file"),
    "a long name": (archive(("x" * 300, "a")), "no name for a file"),
    "twice": (archive(("ml-100k/u.data", DATA), ("ml-100k/./u.data", "1")), "twice"),
    "file and folder": (
        archive(("ml-100k/u.data", DATA), ("ml-100k/u.data/x", "1")),
        "as a file and as a folder",
    ),
    "lzma": (archive(("ml-100k/u.data", DATA), method=zipfile.ZIP_LZMA), "not read here"),
    "bzip2": (archive(("ml-100k/u.data", DATA), method=zipfile.ZIP_BZIP2), "not read here"),
    "encrypted": (encrypted(SOUND), "not a complete zip"),
    "wrong checksum": (wrong_crc(SOUND), "not a complete zip"),
    "too large": (archive(("ml-100k/u.data", "1\t2\t3\t4\n" * 20_000)), "more than 100,000 bytes"),
    "too large in secret": (
        lying_about_size(archive(("ml-100k/u.data", "1\t2\t3\t4\n" * 20_000)), 10),
        r"more than 100,000 bytes|not a complete zip",
    ),
    "many files": (archive(*((f"{n}", "") for n in range(60))), "more than any dataset"),
    "before the beginning": (before_the_beginning(SOUND), "not a complete zip"),
    "cut off": (SOUND[:-30], "not a complete zip"),
    "no zip": (b"PK\x03\x04" + b"\0" * 100, "not a complete zip"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_it_is_refused_and_nothing_stays(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, why = HOSTILE[kind]
    monkeypatch.setattr(fetch, "_MOST_BYTES", 100_000)
    monkeypatch.setattr(fetch, "_MOST_FILES", 50)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "ml-100k.zip").write_bytes(content)
    with pytest.raises(InputError, match=why):
        fetch.unpack(inside / "ml-100k.zip", inside / "content")
    written = [path for path in (inside / "content").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in written) <= 100_000
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "inside"))
    with pytest.raises(InputError, match=why) as caught:
        load_dataset("ml-100k", inside / "ml-100k.zip", download=False)
    assert "\n" not in str(caught.value)
    assert {path.name for path in inside.iterdir()} <= {"ml-100k.zip", "content"}
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_stated_size_beyond_the_limit_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "_MOST_BYTES", 100_000)
    (tmp_path / "a.zip").write_bytes(HOSTILE["too large"][0])
    with pytest.raises(InputError, match="more than 100,000 bytes"):
        fetch.unpack(tmp_path / "a.zip", tmp_path / "content")
    assert not (tmp_path / "content").exists()


def test_a_sound_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "ml-100k.zip").write_bytes(SOUND)
    assert len(load_dataset("ml-100k", tmp_path / "ml-100k.zip", download=False)) == 2


def test_a_disk_that_is_full_while_unpacking_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ml-100k.zip").write_bytes(SOUND)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "open", full)
    with pytest.raises(InputError, match="cannot be unpacked: No space left"):
        load_dataset("ml-100k", tmp_path / "ml-100k.zip", download=False)


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "0x10", ""])
def test_a_stated_length_that_is_none_is_passed_over(length: str) -> None:
    class Response:
        headers = {"Content-Length": length}  # noqa: RUF012

    assert fetch._stated_length(Response()) is None  # type: ignore[arg-type]
