"""Downloads and unpacks a publisher's archive, all of it or nothing.

What arrives is not trusted: its checksum, its size and every path inside it are examined before it is moved,
in one step, to where the loaders look.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from evenhand.data.reading.columns import quoted
from evenhand.utils.atomic import staging_folder
from evenhand.utils.errors import InputError

Progress = Callable[[int, int | None], None]
"""Called with (bytes done, bytes in all or None) while a download runs."""


class UnreachableError(InputError):
    """The address does not answer; the message has no full stop, so that the caller can say what to do."""


_BLOCK = 1 << 16
_TIMEOUT_S = 30
_MOST_BYTES = 1 << 30
_MOST_FILES = 10_000
_LONGEST_NAME = 255
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def cache_folder() -> Path:
    """Where downloads are kept: $EVENHAND_CACHE, else the platform's cache folder for this program."""
    chosen = os.environ.get("EVENHAND_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("evenhand", appauthor=False))


def folder_with(root: Path, name: str, files: tuple[str, ...]) -> Path | None:
    """The folder under `root` that holds all of `files`: root/name, root/name/name or root itself."""
    places = (root / name, root / name / name, root)
    return next((p for p in places if all((p / f).is_file() for f in files)), None)


def install_archive(
    url: str, cache: Path, name: str, files: tuple[str, ...], md5: str, room: int, progress: Progress | None = None
) -> Path:
    """Download a zip that holds `files`, check it, and leave it unpacked as cache/name.

    `room` is the number of bytes that archive and content need together. Whatever goes wrong, nothing
    half-done stays behind.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache).free
        if free < room:
            raise InputError(
                f"the disk of {cache} has {free:,} bytes free, but {room:,} are needed; make room, "
                "or set EVENHAND_CACHE to a folder on another disk."
            )
        with staging_folder(cache / name) as work:
            archive, content = work / "archive.zip", work / "content"
            _check_digest(url, download(url, archive, progress), md5)
            unpack(archive, content, called=url)
            found = folder_with(content, name, files)
            if found is None:
                raise InputError(f"{url} is not {name}: it holds no {' and '.join(files)}.")
            try:
                os.replace(found, cache / name)
            except OSError:
                # Another process may have finished first; its copy passed the same checks.
                if not all((cache / name / f).is_file() for f in files):
                    raise
            return cache / name
    except OSError as error:
        raise InputError(
            f"cannot write to the cache folder {cache} ({error.strerror or error}); "
            "set EVENHAND_CACHE to a folder that can be written to."
        ) from error


def download(url: str, to: Path, progress: Progress | None = None) -> str:
    """Write what `url` serves to a new file and return its MD5 in hexadecimal."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        response = _open(url)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _unreachable(url, error) from error
    with response, to.open("wb") as file:
        total = _stated_length(response)
        done = 0
        if total is not None and total > _MOST_BYTES:
            raise InputError(f"{url} is larger than any dataset known here ({total:,} bytes); not downloaded.")
        while block := _next_block(response, url):
            done += len(block)
            if done > _MOST_BYTES:
                raise InputError(f"{url} is larger than any dataset known here; the download was stopped.")
            digest.update(block)
            file.write(block)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise InputError(f"the download of {url} broke off after {done:,} of {total:,} bytes; try again.")
    return digest.hexdigest()


def unpack(archive: Path, into: Path, called: str | None = None) -> None:
    """Unpack a zip into a new folder; refuse links, paths that leave the folder, and more than 1 GiB."""
    called = called or str(archive)
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = zipped.infolist()
            _check_members(members, called)
            left = _MOST_BYTES
            for member in members:
                target = into / PurePosixPath(member.filename)
                if member.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                with zipped.open(member) as source, target.open("wb") as file:
                    # Sizes in the header may lie, so the bytes are counted as they come.
                    while block := source.read(_BLOCK):
                        left -= len(block)
                        if left < 0:
                            raise InputError(f"{called} unpacks to more than {_MOST_BYTES:,} bytes; not unpacked.")
                        file.write(block)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{called} is not a complete zip file ({error}); download it again.") from error


def _open(url: str) -> http.client.HTTPResponse:
    if not url.startswith(("https://", "http://")):
        raise ValueError("only http and https addresses can be downloaded")
    request = urllib.request.Request(url, headers={"User-Agent": "evenhand"})
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    return response


def _stated_length(response: http.client.HTTPResponse) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch("[0-9]{1,18}", length) else None


def _next_block(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> UnreachableError:
    return UnreachableError(f"cannot download {url} ({getattr(error, 'reason', None) or error})")


def _check_digest(url: str, found: str, pinned: str) -> None:
    """The archive must be the one known here and, where the publisher says so, the one now published."""
    expected = [pinned]
    try:
        with _open(url + ".md5") as response:
            stated = re.search(r"\b[0-9a-f]{32}\b", response.read(1000).decode("ascii", "replace").lower())
        expected += [stated.group()] if stated else []
    except (OSError, http.client.HTTPException):
        pass  # the pinned checksum suffices
    for md5 in expected:
        if found != md5:
            raise InputError(
                f"{url} arrived altered or incomplete: its MD5 is {found}, not {md5}; try again, "
                "or unpack a copy you trust and name its folder as data_dir."
            )


def _check_members(members: list[zipfile.ZipInfo], called: str) -> None:
    if len(members) > _MOST_FILES:
        raise InputError(f"{called} holds {len(members):,} files, more than any dataset known here; not unpacked.")
    if sum(m.file_size for m in members) > _MOST_BYTES:
        raise InputError(f"{called} unpacks to more than {_MOST_BYTES:,} bytes; not unpacked.")
    files: set[PurePosixPath] = set()
    folders: set[PurePosixPath] = set()
    for member in members:
        name = member.filename
        path = PurePosixPath(name)
        escapes = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name
        if escapes or stat.S_ISLNK(member.external_attr >> 16):
            raise InputError(f"{called} holds '{name}', which could write outside its folder; not unpacked.")
        if not path.parts or any(len(part.encode(errors="replace")) > _LONGEST_NAME for part in path.parts):
            raise InputError(f"{called} holds '{quoted(name)}', which is no name for a file; not unpacked.")
        if member.header_offset < 0:
            raise InputError(f"{called} is not a complete zip file ('{name}' lies outside); download it again.")
        if member.compress_type not in _METHODS:
            raise InputError(f"{called} holds '{name}', packed in a way that is not read here; not unpacked.")
        folders.update(path.parents)
        if name.endswith("/"):
            folders.add(path)
        elif path in files:
            raise InputError(f"{called} holds '{name}' twice; not unpacked.")
        else:
            files.add(path)
    if both := files & folders:
        raise InputError(f"{called} holds '{min(both)}' as a file and as a folder; not unpacked.")
