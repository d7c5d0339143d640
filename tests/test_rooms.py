"""The order of the rooms: a module imports only rooms above its own, even late, and no two modules need each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import evenhand

ROOT = Path(evenhand.__file__).parent
ROOMS = (
    ("utils",),
    ("data",),
    ("metrics",),
    ("models",),
    ("encoders",),
    ("samplers",),
    ("objectives",),
    ("training",),
    ("baselines",),
    ("methods", "testing"),
    ("experiments",),
    ("audit",),
    ("report",),
    ("paper",),
    ("serve",),
    ("cli",),
    ("__main__",),
)
"""From the first to be imported to the last; rooms of one line do not import each other."""
PLACE = {room: place for place, rooms in enumerate(ROOMS) for room in rooms}
DELEGATES = {
    ("evenhand.data.interactions", "evenhand.data.reading.read"),
    ("evenhand.data.interactions", "evenhand.data.splits"),
    ("evenhand.models.base", "evenhand.models.folder"),
    ("evenhand.models.base", "evenhand.models.spread_files"),
    ("evenhand.models.base", "evenhand.models.new_items"),
}
"""Late imports of methods that hand their object over, as `Interactions.read`, `.split` and `Model.save` do."""
SHARED_NAMES = {"__init__.py", "base.py"}


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("evenhand", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str) -> Iterator[str]:
    """The modules of the package that a module imports anywhere, those for type checkers alone left out."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "evenhand")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports relatively"
            if node.module and node.module.split(".")[0] == "evenhand":
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (one if one in MODULES else node.module for one in inside)


def room(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in MODULES} - {""} == set(PLACE)


@pytest.mark.parametrize("name", [name for name in MODULES if room(name)])
def test_a_module_imports_only_rooms_above_its_own(name: str) -> None:
    mine = room(name)
    wrong = {
        other for other in imported(name) if room(other) and room(other) != mine and PLACE[room(other)] >= PLACE[mine]
    }
    assert not wrong


def test_no_two_modules_need_each_other() -> None:
    needs = {name: {other for other in imported(name) if other in MODULES} for name in MODULES if name != "evenhand"}
    for name, other in DELEGATES:
        needs[name].remove(other)
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a cycle: {' → '.join([*path[path.index(name) :], name])}"
        if name not in done:
            for other in sorted(needs.get(name, set()) - {name}):
                visit(other, (*path, name))
            done.add(name)

    for name in needs:
        visit(name, ())


def test_no_two_files_share_a_name() -> None:
    names: dict[str, list[str]] = {}
    for path in MODULES.values():
        names.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in names.items() if len(found) > 1}
    assert set(shared) <= SHARED_NAMES, shared


def test_the_core_needs_little() -> None:
    """From data to baselines nothing is imported, not even late, that a small machine lacks."""
    heavy = {"pydantic", "polars", "altair", "optuna", "typer", "jinja2", "pandas"}
    for name, path in MODULES.items():
        if PLACE.get(room(name), 99) <= PLACE["methods"]:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
            found |= {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
            assert not found & heavy, name
