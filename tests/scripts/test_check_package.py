"""The package: pinned tools, the same bytes from every build, and a bill of materials that leaves nothing out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from scripts.check_package import BUILD_TOOLS, missing_from

ROOT = Path(__file__).parents[2]
METADATA = """\
Name: evenhand
Requires-Dist: numpy>=1.26
Requires-Dist: vl-convert-python>=1.7
Requires-Dist: pytest>=8; extra == 'dev'
"""


def test_tools_that_build_are_pinned_and_constrained() -> None:
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", one) for one in (*required, *BUILD_TOOLS))
    assert set(required) <= set((ROOT / "constraints.txt").read_text().split())


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the hash seed, the umask and the times of the files are."""
    pytest.importorskip("hatchling", reason="the build backend is not installed")
    touched = ROOT / "src" / "evenhand" / "py.typed"
    made = []
    for number in (1, 2):
        os.utime(touched)
        folder = tmp_path / str(number)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number), "SOURCE_DATE_EPOCH": "1700000000"},
            umask=0o077 if number == 2 else 0o022,
            check=True,
            capture_output=True,
        )
        made += folder.iterdir()
    first, second = made
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_bill_that_lacks_something_is_noticed() -> None:
    whole = {"components": [{"name": "NumPy", "version": "2.4"}, {"name": "vl_convert-python", "version": "1.9"}]}
    assert missing_from(whole, METADATA) == set()
    assert missing_from({"components": whole["components"][:1]}, METADATA) == {"vl-convert-python"}
    assert missing_from({"components": [{"name": "numpy"}, whole["components"][1]]}, METADATA) == {"numpy"}
