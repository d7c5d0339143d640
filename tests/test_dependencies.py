"""What evenhand needs: the lowest versions are those that are tested, and the audit says what it knows."""

from __future__ import annotations

import importlib.util
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = {"ruff", "mypy", "playwright", "axe-playwright-python"}
"""They look at the code or the report, and do not run with it."""


def pins(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(package): Version(version) for package, version in pairs}


def lower_bounds(*texts: str) -> dict[str, Version]:
    found = {}
    for one in map(Requirement, texts):
        (bound,) = [part.version for part in one.specifier if part.operator == ">="]
        found[canonicalize_name(one.name)] = Version(bound)
    return found


NEEDED = lower_bounds(*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"])


def test_the_lowest_versions_allowed_are_those_that_are_tested() -> None:
    usual, tested = pins("constraints.txt"), pins("constraints-lowest.txt")
    assert tested == {name: bound for name, bound in NEEDED.items() if name not in TOOLS} | {"torch": usual["torch"]}


def test_the_usual_versions_are_pinned() -> None:
    assert NEEDED.keys() <= pins("constraints.txt").keys()


def audit_script() -> ModuleType:
    path = ROOT / "scripts" / "audit_dependencies.py"
    spec = importlib.util.spec_from_file_location("audit_dependencies", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_audit_asks_about_what_runs_and_what_that_needs() -> None:
    asked = audit_script().run_dependencies("evenhand")
    assert asked.keys() >= set(lower_bounds(*PROJECT["dependencies"])) | {"llvmlite", "jinja2"}
    assert not asked.keys() & {"evenhand", "pytest", "hypothesis", "ruff", "polars"}
    assert all("+" not in version for version in asked.values())


GOOD: dict[str, Any] = {"name": "numpy", "version": "2.4.6", "vulns": []}
BAD: dict[str, Any] = {
    "name": "jinja2",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-2"], "fix_versions": ["3.1"], "description": "…"}],
}
UNKNOWN: dict[str, Any] = {"name": "torch", "skip_reason": "torch 2.13.0 was not found"}


@pytest.mark.parametrize(
    ("answers", "code", "message"),
    [
        ([GOOD], 0, "1 packages, 0 known"),
        ([GOOD, BAD], 1, "jinja2 2.0: PYSEC-1, CVE-2; fixed in 3.1"),
        ([GOOD, UNKNOWN], 0, "not audited: torch 2.13.0 was not found"),
        ([UNKNOWN], 0, "not run (torch 2.13.0 was not found)"),
    ],
)
def test_only_a_known_vulnerability_fails(
    answers: list[dict[str, Any]], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit_script().verdict(answers) == code
    assert message in capsys.readouterr().out


def test_without_a_database_the_audit_says_that_it_did_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    audit = audit_script()
    assert audit.main(str(tmp_path / "no-such-program")) == 0
    ended = subprocess.CompletedProcess([], 1, "", "WARNING: a\nERROR: could not connect\n")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: ended)
    assert audit.main() == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("dependency audit: not run (")
    assert "no-such-program is not installed" in first
    assert second == "dependency audit: not run (pip-audit had no answer: ERROR: could not connect)"
