"""Builds sdist and wheel as a release would, and tries the wheel as a stranger would.

    python scripts/check_package.py [FOLDER]

The wheel is built from the sdist, so a file that the sdist lacks is missed here. A second build, from the unpacked
sdist, must give the same bytes. The wheel is installed in a fresh environment and works in an empty folder outside the
checkout. FOLDER (dist) is where both are left, beside a bill of materials (CycloneDX) of that environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NEVER_SHIPPED = ("__pycache__", ".pyc", ".nbi", ".nbc")
BUILD_TOOLS = ("build==1.6.1", "cyclonedx-bom==7.5.0")
ADDED_BY_THE_BUILD = {"PKG-INFO", "pyproject.toml", ".gitignore"}
WRITE_PARTS = """
from pathlib import Path

import evenhand as eh
from evenhand.data.write import write_table
from evenhand.paper.published import all_cells

split = eh.load_split("demo")
write_table(split.consumed.to_table(), Path("train.csv"))
write_table(split.test.to_table(), Path("test.csv"))
print(f"{eh.__file__}: {len(split.consumed):,} pairs, {len(all_cells()):,} cells of the paper")
"""


def main(folder: str = "dist") -> None:
    out = Path(folder).resolve()
    with tempfile.TemporaryDirectory(prefix="evenhand-package-") as name:
        place = Path(name)
        builder = fresh_environment(place / "builder")
        run("get the build tools", builder, "-m", "pip", "install", "--quiet", *BUILD_TOOLS)
        sdist, wheel = build(builder, ROOT, place / "dist")
        check_sdist(sdist)
        check_wheel(wheel)
        check_repeats(builder, sdist, wheel, place)
        python = install(wheel, place)
        bill = write_bill(builder, python, wheel)
        try_out(python, place / "empty")
        out.mkdir(parents=True, exist_ok=True)
        for made in (sdist, wheel, bill):
            shutil.copy(made, out)
    print(f"{sdist.name}, {wheel.name} and {bill.name} are good, and lie in {out}.")


def build(builder: Path, source: Path, folder: Path) -> tuple[Path, Path]:
    """sdist and wheel; the build backend and what it needs have the versions of pyproject.toml and constraints.txt."""
    fixed = {"SOURCE_DATE_EPOCH": committed_at(), "PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    run("build", builder, "-m", "build", "--outdir", folder, source, more=fixed)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def committed_at() -> str:
    """The time that files in the archives carry: that of the last commit, or a fixed one outside of a checkout."""
    if (ROOT / ".git").exists():
        return run("", "git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    return "1580601600"


def check_repeats(builder: Path, sdist: Path, wheel: Path, place: Path) -> None:
    """Built once more, elsewhere and from the unpacked sdist, both have the same bytes."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "unpacked", filter="data")
    (source,) = (place / "unpacked").iterdir()
    for one, again in zip((sdist, wheel), build(builder, source, place / "again"), strict=True):
        if one.read_bytes() != again.read_bytes():
            sys.exit(f"{one.name} has other bytes when it is built again from the sdist")


def write_bill(builder: Path, python: Path, wheel: Path) -> Path:
    """What the wheel runs on, each with its version and licence, as installed from constraints.txt on this platform."""
    version = wheel.name.split("-")[1]
    bill = wheel.with_name(f"evenhand-{version}.cdx.json")
    command = ("environment", "--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible")
    fixed = {"SOURCE_DATE_EPOCH": committed_at()}
    run("bill of materials", builder, "-m", "cyclonedx_py", *command, "--of", "JSON", "-o", bill, python, more=fixed)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    found = json.loads(bill.read_text(encoding="utf-8"))
    refuse(f"{bill.name} lacks", missing_from(found, metadata))
    for one in found["components"]:  # the wheel was installed from a folder of this machine
        one["externalReferences"] = [a for a in one.get("externalReferences", ()) if not a["url"].startswith("file:")]
    bill.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return bill


def missing_from(bill: dict[str, Any], metadata: str) -> set[str]:
    """What the wheel's metadata requires outside of extras and the bill does not name with a version."""
    lines = re.findall(r"^Requires-Dist: ([\w.-]+)(.*)$", metadata, re.MULTILINE)
    required = {_normal(name) for name, rest in lines if "extra ==" not in rest}
    return required - {_normal(one["name"]) for one in bill.get("components", ()) if one.get("version")}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def check_sdist(path: Path) -> None:
    """What pyproject.toml names and nothing else, and nothing that is not under version control."""
    with tarfile.open(path) as archive:
        files = {Path(*Path(one.name).parts[1:]).as_posix() for one in archive if one.isfile()}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = {one.strip("/") for one in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]}
    tops = {file.partition("/")[0] for file in files} - ADDED_BY_THE_BUILD
    refuse(f"{path.name} lacks", wanted - tops)
    refuse(f"{path.name} holds, though pyproject.toml does not name it:", tops - wanted)
    if (ROOT / ".git").exists():
        tracked = set(run("", "git", "-C", ROOT, "ls-files", "-z").split("\0"))
        refuse(f"{path.name} holds, though git does not:", files - tracked - {"PKG-INFO"})
        shipped = {one for one in tracked if one.partition("/")[0] in wanted and (ROOT / one).exists()}
        refuse(f"{path.name} lacks", shipped - files)


def check_wheel(path: Path) -> None:
    """Every file of the package, data and py.typed included, and nothing else but the metadata."""
    with zipfile.ZipFile(path) as archive:
        files = set(archive.namelist())
    metadata = {file for file in files if ".dist-info/" in file.partition("/")[0] + "/"}
    source = ROOT / "src"
    wanted = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*")
        if file.is_file() and not any(mark in file.as_posix() for mark in NEVER_SHIPPED)
    }
    refuse(f"{path.name} lacks", wanted - files)
    refuse(f"{path.name} holds, though the source does not:", files - metadata - wanted)
    refuse(f"{path.name} has no licence among", metadata if not any("LICENSE" in f for f in metadata) else ())


def install(wheel: Path, place: Path) -> Path:
    """The environment's Python, with the wheel and what it needs."""
    python = fresh_environment(place / "fresh")
    run("install the wheel", python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    return python


def try_out(python: Path, folder: Path) -> None:
    folder.mkdir()
    evenhand = python.with_name("evenhand")
    train = ("--methods", "rns,auc-ns,popular", "--seeds", "2", "--epochs", "5")
    message = run("use it from Python", python, "-c", WRITE_PARTS, cwd=folder)
    if str(python.parents[1]) not in message:
        sys.exit(f"evenhand was not imported from the fresh environment, but from {message}")
    run("compare", evenhand, "compare", "demo", *train, "--out", "run", cwd=folder)
    lists = ("--recs", "run/recommendations.parquet", "--out", "report.html")
    run("audit", evenhand, "audit", "--train", "train.csv", "--test", "test.csv", *lists, cwd=folder)
    for name in ("run/results.json", "run/recommendations.parquet", "report.html"):
        if not (folder / name).stat().st_size:
            sys.exit(f"{name} is empty")


def fresh_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def run(what: str, *command: object, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> str:
    """The command's output; where it fails, all it said and the end of this script."""
    began = time.perf_counter()
    # The checkout must not be found by accident.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(more or {})
    ended = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{ended.stdout}{ended.stderr}exit code {ended.returncode}")
    if what:
        print(f"{what}: {time.perf_counter() - began:.0f} s", flush=True)
    return ended.stdout


def refuse(what: str, files: Collection[str]) -> None:
    if files:
        sys.exit(f"{what} {', '.join(sorted(files))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
