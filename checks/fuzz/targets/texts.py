"""Texts that a person types, and texts that end up on a page, a terminal, in XML or in a file."""

from __future__ import annotations

import contextlib
import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from random import Random

import pyarrow as pa
from markupsafe import escape

from checks.fuzz.inputs import WORDS, mutated
from checks.fuzz.targets.documents import small_audit
from checks.fuzz.targets.target import Target
from evenhand.audit.gates import GateResult, check_gates, evaluate_gates, github_lines, junit, parse_gate
from evenhand.audit.result import Finding
from evenhand.cli import show
from evenhand.cli.inputs import list_lengths
from evenhand.cli.lists_commands import _named
from evenhand.cli.tune_command import trials_at_once
from evenhand.data.popularity import HotRule
from evenhand.data.reading.columns import Column
from evenhand.data.reading.read import read_columns
from evenhand.data.write import write_table
from evenhand.experiments.search_result import parse_goals
from evenhand.methods import parse
from evenhand.models.card import model_card
from evenhand.report.render import isolated, safe
from evenhand.utils.errors import InputError
from evenhand.utils.text import visible


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _gate(data: bytes, folder: Path) -> None:
    gate = parse_gate(_text(data))
    check_gates([gate], (3, 4), True)
    evaluate_gates([gate], small_audit())


def _options(data: bytes, folder: Path) -> None:
    """Methods with parameters, list lengths, hot rules, what a search is after, named lists."""
    text = _text(data)
    problem = None
    readers = (parse, list_lengths, HotRule.parse, parse_goals, trials_at_once, lambda one: _named([one]))
    for reader in readers:
        try:
            reader(text)
        except InputError as told:
            problem = told
        except OSError as told:  # of a path too long, which the command line tells in one sentence
            problem = InputError(str(told))
    if problem is not None:
        raise problem


def _terminal(data: bytes, folder: Path) -> None:
    """Everything that the command line prints of others' texts stays text, and stays in its line."""
    text = _text(data)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        show.print_sentence(f"a{text}")
        show.print_notes([text])
        show.print_listing(["metric", text], [["ohr", text]])
        show.print_json({"name": text})
        out.flush()
    printed = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    plain = "".join(line for line in printed.split("\n"))
    assert visible(plain) == plain, f"steers the terminal: {plain!r}"
    begins = [line for line in printed.split("\n") if line.lstrip().startswith("::")]
    assert not begins, f"a line that GitHub would obey: {begins}"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert {name for name, _ in attrs} <= {"title"}, attrs

    def handle_comment(self, data: str) -> None:
        self.found.append("a comment")

    def unknown_decl(self, data: str) -> None:
        self.found.append("a declaration")


def _html(data: bytes, folder: Path) -> None:
    seen = _Tags()
    text = _text(data)
    shown = escape(safe(text))  # as the templates do with every value
    seen.feed(f'<p title="{shown}">{shown}{isolated(text)}</p>')
    seen.close()
    assert seen.found == ["p", "bdi"], seen.found
    (folder / "page.html").write_text(shown, encoding="utf-8")


def _outlets(data: bytes, folder: Path) -> None:
    text = _text(data)
    judged = [GateResult(text, text, failed, text) for failed in (True, False)]
    written = junit(judged)
    (folder / "junit.xml").write_text(written, encoding="utf-8")
    root = ET.fromstring(written.encode())
    assert [case.tag for case in root.iter("testcase")] == ["testcase"] * 2
    found = replace(small_audit(), findings=(Finding(text, None),))
    lines = github_lines(found, judged)
    assert len(lines) == 2
    for line in lines:
        line.encode()
        assert visible(line) == line, line


def _card(data: bytes, folder: Path) -> None:
    """Of a folder with an odd name, and of a model with odd origins."""
    from checks.fuzz.targets.target import SEEDS
    from evenhand.models.folder import load

    text = _text(data)
    model = load(SEEDS / "model" / "vectors")
    made = model_card(replace(model, info={"method": text, "data": text}), text)  # type: ignore[type-var]
    made.encode()
    assert made.count("\n## ") == 5, "a heading of its own"
    assert "<script" not in made.partition("## Use")[0].lower()


def _written(data: bytes, folder: Path) -> None:
    """Ids come back from a file as they went into it."""
    ids = [text for text in dict.fromkeys(data.decode("utf-8", "ignore").split(",")) if text] or ["x"]
    given = pa.table({"user": pa.array(ids, pa.string()), "score": pa.array([1.0] * len(ids))})
    for ending in ("csv", "tsv", "parquet"):
        path = folder / f"a.{ending}"
        write_table(given, path)
        found = read_columns(path, [Column("user", "id", "user"), Column("score", "number")])
        assert list(map(str, found["user"].to_pylist())) == ids, ending


def words(random: Random, seeds: list[bytes]) -> bytes:
    """Short texts, rich in what means something to somebody."""
    made = b"".join(random.choice(WORDS) for _ in range(random.randrange(1, 4)))
    return made if random.random() < 0.5 else mutated(random, [*seeds, made])[:5000]


TARGETS = (
    Target("gates", _gate),
    Target("options", _options),
    Target("terminal", _terminal, words),
    Target("html", _html, words),
    Target("outlets", _outlets, words),
    Target("model-card", _card, words, weight=0.2),
    Target("written", _written, words, weight=0.5),
)
