"""Builds sdist and wheel as a release would, and tries the wheel as a stranger would.

    python scripts/check_package.py [FOLDER]

The wheel is built from the sdist, so a file that the sdist lacks is missed here. It is installed in a fresh
environment and works in an empty folder outside the checkout. FOLDER (dist) is where both are left.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEVER_SHIPPED = ("__pycache__", ".pyc", ".nbi", ".nbc")
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
        sdist, wheel = build(out, place)
        check_sdist(sdist)
        check_wheel(wheel)
        try_out(install(wheel, place), place / "empty")
    print(f"{sdist.name} and {wheel.name} are good, and lie in {out}.")


def build(out: Path, place: Path) -> tuple[Path, Path]:
    builder = fresh_environment(place / "builder")
    run("get build", builder, "-m", "pip", "install", "--quiet", "build")
    made = place / "dist"
    run("build", builder, "-m", "build", "--outdir", made, ROOT)
    (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return sdist.rename(out / sdist.name), wheel.rename(out / wheel.name)


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
    told = run("use it from Python", python, "-c", WRITE_PARTS, cwd=folder)
    if str(python.parents[1]) not in told:
        sys.exit(f"evenhand was not imported from the fresh environment, but from {told}")
    run("compare", evenhand, "compare", "demo", *train, "--out", "run", cwd=folder)
    lists = ("--recs", "run/recommendations.parquet", "--out", "report.html")
    run("audit", evenhand, "audit", "--train", "train.csv", "--test", "test.csv", *lists, cwd=folder)
    for name in ("run/results.json", "run/recommendations.parquet", "report.html"):
        if not (folder / name).stat().st_size:
            sys.exit(f"{name} is empty")


def fresh_environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def run(what: str, *command: object, cwd: Path | None = None) -> str:
    """The command's output; where it fails, all it said and the end of this script."""
    began = time.perf_counter()
    # The checkout must not be found by accident.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
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
