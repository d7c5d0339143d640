"""A PostgreSQL server of the tests' own, where one is installed: in a temporary folder, reached by a socket there."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PASSWORD = "s3cret/&%"
QUOTED = "s3cret%2F%26%25"


def _programs() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@contextmanager
def server() -> Iterator[str]:
    """The URI of a running server, its password in it; the test is skipped where there can be none."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    # It refuses to run as root.
    owner = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short, as the path of a socket must be

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), *arguments]
        with (folder / "output").open("ab") as output:
            subprocess.run(command, check=True, stdout=output, stderr=output, timeout=60, cwd=folder, **owner)  # type: ignore[call-overload]

    try:
        (folder / "password").write_text(PASSWORD)
        if owner:
            try:
                for path in (folder, folder / "password"):
                    shutil.chown(path, "postgres", "postgres")
            except LookupError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        data = str(folder / "data")
        run("initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", "--pwfile", str(folder / "password"), "-N")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "-D", data, "-o", options, "-w", "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://tester:{QUOTED}@/postgres?host={folder}"
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
