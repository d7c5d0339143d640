"""What `mkdocs build` does besides: the page of commands from the app itself, and links that leave docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add cli.md, which no one has to write."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "cli.md", content=command_pages()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A file of the repository is no page: it is named in place of being linked."""
    return _OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2]}` in the repository)", markdown)


def command_pages() -> str:
    """Every command with its arguments and options, as Typer knows them."""
    import typer
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from evenhand.cli import command_tree

    command = get_command(command_tree())
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="evenhand"), name="evenhand")
    return text.replace("# `evenhand`\n", "# The command line\n", 1)
