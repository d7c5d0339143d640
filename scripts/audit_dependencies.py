"""Asks pip-audit whether the packages that evenhand runs on have known vulnerabilities.

    python scripts/audit_dependencies.py [PIP_AUDIT]

What is asked about is what evenhand needs to run, in the versions installed beside it; tools for developing
it do not count. Exit 1 where something is known. Where pip-audit or its database cannot be had, the audit is
not run: that is said, and is no failure.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


def main(pip_audit: str = "pip-audit") -> int:
    needed = run_dependencies("evenhand")
    try:
        found = ask(pip_audit, [f"{name}=={version}" for name, version in sorted(needed.items())])
    except OSError:
        return not_run(f"{pip_audit} is not installed; `make audit-dependencies` gets it from the network")
    except ValueError as problem:
        return not_run(f"pip-audit had no answer: {problem}")
    except subprocess.TimeoutExpired:
        return not_run("pip-audit had no answer within five minutes")
    return verdict(found)


def run_dependencies(name: str) -> dict[str, str]:
    """Name → version of all that a package needs to run here, and of what these need in turn.

    The local part of a version (2.13.0+cpu) is left out: databases do not know it.
    """
    found: dict[str, str] = {}
    waiting = [Requirement(name)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        for extra in ("", *asked.extras):
            key = (canonicalize_name(asked.name), extra)
            if key in seen:
                continue
            seen.add(key)
            try:
                installed = distribution(asked.name)
            except PackageNotFoundError:
                continue
            if key[0] != name:
                found[key[0]] = Version(installed.version).public
            for needed in map(Requirement, installed.requires or ()):
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return found


def ask(pip_audit: str, pins: Iterable[str]) -> list[dict[str, Any]]:
    """What pip-audit knows of each pinned package; ValueError where it ended without an answer."""
    with tempfile.TemporaryDirectory() as folder:
        requirements = Path(folder) / "requirements.txt"
        requirements.write_text("\n".join(pins) + "\n", encoding="utf-8")
        # The versions are all there, so pip need not resolve anything.
        options = ["--no-deps", "--disable-pip", "--format=json", "--progress-spinner=off", "--timeout=15"]
        ended = subprocess.run(
            [pip_audit, *options, "--requirement", str(requirements)],
            capture_output=True,
            text=True,
            timeout=300,
        )
    try:
        answers: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except (ValueError, KeyError):
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise ValueError(said[-1]) from None
    return answers


def verdict(answers: list[dict[str, Any]]) -> int:
    known = [one for one in answers if "skip_reason" not in one]
    skipped = [one for one in answers if "skip_reason" in one]
    if not known:
        return not_run(skipped[0]["skip_reason"] if skipped else "nothing was asked about")
    for one in skipped:
        print(f"  not audited: {one['skip_reason']}")
    bad = [(one, flaw) for one in known for flaw in one["vulns"]]
    for one, flaw in bad:
        names = ", ".join([flaw["id"], *flaw.get("aliases", ())])
        fixed = ", ".join(flaw.get("fix_versions", ())) or "no version yet"
        print(f"  {one['name']} {one['version']}: {names}; fixed in {fixed}")
    print(f"dependency audit: {len(known)} packages, {len(bad)} known vulnerabilities")
    return 1 if bad else 0


def not_run(why: str) -> int:
    print(f"dependency audit: not run ({why})")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
