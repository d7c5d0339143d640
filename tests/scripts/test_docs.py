"""The documentation: the tutorial runs as it stands, the site builds without a warning, no page is left out."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from run_cli import evenhand, one_thread

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of the code marked to be run, in order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"<!-- run -->\n```(\w+)\n(.*?)```", text, re.DOTALL)


class Shell:
    """Runs the few commands of the tutorial inside this process."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack, self.url, self.answers = stack, "", list[Any]()

    def run(self, line: str) -> None:
        words = shlex.split(line)
        if words[:2] == ["evenhand", "serve"]:
            from serving import serving

            assert words[2:] == ["model", "--port", "8000", "&"]
            self.url = self.stack.enter_context(serving(Path("model")))[0]
        elif words[0] == "evenhand":
            ended = evenhand(*words[1:])
            assert ended.code == 0, (line, ended.err)
        elif words[0] == "curl":
            self.answers.append(self.asked(words[1].removeprefix("http://127.0.0.1:8000"), *words[2:]))
        elif words[:2] == ["python", "nightly.py"]:
            self.night(words[1:])
        else:
            raise AssertionError(f"the tutorial says {line!r}, which this test cannot run")

    def asked(self, path: str, *more: str) -> Any:
        from serving import ask

        assert more[:1] in ((), ("--json",))
        status, found = ask(self.url, path, more[1] if more else None)
        assert status == 200, found
        return found

    def night(self, words: list[str]) -> None:
        """The script with its commands in this process, which saves starting Python a dozen times."""

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            assert command[0] == "evenhand"
            ended = evenhand(*command[1:])
            assert ended.code == 0, (command, ended.err)
            return subprocess.CompletedProcess(command, ended.code)

        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
            patch.setattr(subprocess, "run", run)
            patch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
        self.answers.append(json.loads(out.getvalue()))


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for needed in ("fastapi", "duckdb"):
        pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "nightly.py", tmp_path)
    with ExitStack() as stack, one_thread():
        shell = Shell(stack)
        for language, text in blocks("tutorial.md"):
            if language == "python":
                exec(text, {})
                continue
            for line in text.replace("\\\n", "").splitlines():
                shell.run(line)
    known, new, health, *nights = shell.answers
    assert [len(answer["items"]) for answer in (known, new)] == [3, 3]
    assert not known["fallback"]
    assert not new["fallback"]
    assert known["items"][0]["title"].startswith("Article ")
    assert health["status"] == "ok"
    assert [one["live"] for one in nights] == ["2024-05-06", "2024-05-07"]
    assert (tmp_path / "comparison" / "report.html").is_file()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    for needed in ("material", "mkdocstrings"):
        pytest.importorskip(needed, reason="needs evenhand[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    commands, api = ((tmp_path / "site" / name / "index.html").read_text("utf-8") for name in ("cli", "api"))
    for found in ("evenhand serve", "--exclude-pairs", "evenhand data describe"):
        assert found in commands
    for found in ("with_new_items", "Interactions", "exclude_pairs"):
        assert found in api
    # Nothing is fetched from elsewhere.
    assert not re.findall(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', commands)


def test_every_page_has_its_place_in_the_site() -> None:
    named = set(re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")} | {"cli.md"}


def test_pages_link_to_what_exists() -> None:
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), (path.name, target)


def test_the_reference_names_what_the_package_offers() -> None:
    spec = importlib.util.find_spec("evenhand")
    assert spec is not None
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    import evenhand as eh

    for name in (
        "fit",
        "compare",
        "tune",
        "audit",
        "evaluate",
        "load",
        "load_dataset",
        "rerank",
        "simulate",
        "notes_of",
    ):
        assert re.search(rf"^::: evenhand\.[\w.]*\b{name}$", text, re.MULTILINE), name
        assert hasattr(eh, name)
