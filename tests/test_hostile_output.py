"""Texts of others on a terminal, in a log, in XML, in JSON and as names: they stay texts."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import small_model
from evenhand.audit.gates import GateResult, github_lines, junit, parse_gate, save_junit
from evenhand.audit.result import Finding, read_audit, save_audit, to_json
from evenhand.audit.run_audit import audit
from evenhand.cli import show
from evenhand.cli.tune_command import trials_at_once
from evenhand.data.popularity import HotRule
from evenhand.data.write import write_table
from evenhand.experiments.compare import compare
from evenhand.experiments.results import RUNS, Results, Run, as_written
from evenhand.metrics.evaluate import evaluate, evaluate_named
from evenhand.models import topk
from evenhand.models.filters import known_position
from evenhand.models.topk import by_product, top_by
from evenhand.training.run import seed_numbers
from evenhand.utils import memory
from evenhand.utils.errors import InputError, unknown
from evenhand.utils.text import LONGEST, json_text, one_line, visible
from run_cli import evenhand, small_log, write_log
from sample_audit import sample_audit

ODD = "\x1b]0;x\x07[red]a[/] \u202e\u2066\x9b31m\r\n::error::x\x00\ud800<script>"


class Screen(io.TextIOWrapper):
    def __init__(self, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    @property
    def printed(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def test_what_steers_a_terminal_is_spelled_out() -> None:
    assert visible(ODD) == ("\\x1b]0;x\\x07[red]a[/] \\u202e\\u2066\\x9b31m\\r\\n::error::x\\x00\\ud800<script>")
    assert visible("Amélie 東京 עברית 👩‍🚀") == "Amélie 東京 עברית 👩‍🚀"


def test_a_sentence_is_one_line_of_readable_length() -> None:
    assert one_line("a\n b\t\x1bc") == "a b \\x1bc"
    assert len(one_line("x" * 10_000_000)) == LONGEST
    assert len(one_line("\x1b" * 10_000)) == LONGEST


def test_json_says_the_same_and_holds_nothing_that_steers() -> None:
    text = json_text({"name": ODD})
    assert json.loads(text) == {"name": ODD}
    text.encode()
    assert visible(text.replace("\n", "")) == text.replace("\n", "")


def check(printed: str) -> None:
    """Nothing steers, no line of its own begins, no markup was followed."""
    for line in printed.split("\n"):
        assert visible(line) == line
        assert not line.lstrip().startswith("::")
    assert "[red]a[/]" in printed


@pytest.mark.parametrize("what", ["sentence", "note", "heading", "cell", "json", "title"])
def test_everything_printed_stays_text(what: str) -> None:
    screen = Screen(terminal=False)
    with redirect_stdout(screen):
        show_odd(what)
    check(screen.printed)


def show_odd(what: str) -> None:
    if what == "sentence":
        show.print_sentence(f"a {ODD}")
    elif what == "note":
        show.print_notes([ODD])
    elif what == "heading":
        show.print_listing(["metric", ODD], [["a", "b"]])
    elif what == "cell":
        show.print_listing(["metric", "x"], [["a", ODD]])
    elif what == "json":
        show.print_json({"name": ODD})
    else:
        from evenhand.experiments.compare import Row
        from evenhand.metrics.catalogue import METRICS
        from evenhand.metrics.statistics import summarise

        metrics = {name: summarise([0.5]) for name in METRICS}
        show.print_rows([Row(f"a {ODD}", None, None, 10, metrics)], f"t {ODD}")


def test_a_long_sentence_is_not_broken_where_it_could_pass_for_a_command() -> None:
    words = "word " * 199 + "::error::" + "x" * 300
    screen = Screen(terminal=False)
    with redirect_stdout(screen):
        show.print_sentence(f"{words} ::stop::")
        show.print_notes([words])
    assert not [line for line in screen.printed.split("\n") if line.lstrip().startswith("::")]


def test_a_table_reaches_a_program_as_it_is_and_a_terminal_without_steering() -> None:
    table = pa.table({"user": ["a\x1b[31m", "b\u202e"], "score": [1.0, 2.0]})
    for terminal in (False, True):
        out = Screen(terminal)
        with redirect_stdout(out):
            show.print_csv(table)
        assert ("\x1b" in out.printed) is not terminal
        assert ('"a\\x1b[31m",1\n"b\\u202e",2\n' in out.printed) is terminal


def test_an_error_is_one_line_that_steers_nothing(tmp_path: Path) -> None:
    ended = evenhand("data", "describe", f"{tmp_path}/\x1b[31m\u202e{'x' * 50}.csv")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "\\x1b[31m\\u202ex" in ended.err
    long = evenhand("data", "describe", "x" * 5000)
    assert (long.code, long.err.count("\n")) == (2, 1)


def test_xml_holds_no_sign_that_it_may_not_hold(tmp_path: Path) -> None:
    evaluated = [GateResult(ODD, f"{ODD}\ufffe\uffff", failed, ODD) for failed in (True, False)]
    cases = ET.fromstring(junit(evaluated).encode()).iter("testcase")
    assert [case.get("name", "").count("\\x1b") for case in cases] == [2, 2]
    save_junit(evaluated, tmp_path / "junit.xml")
    ET.parse(tmp_path / "junit.xml")


def test_annotations_cannot_be_forged(tmp_path: Path) -> None:
    found = replace(sample_audit(), findings=(Finding(ODD, None),), changes=())
    lines = github_lines(found, [GateResult(ODD, None, True, ODD)])
    assert [line.split("::")[1] for line in lines] == [
        "error title=evenhand audit",
        "notice title=evenhand audit",
    ]
    for line in lines:
        assert visible(line) == line


def test_an_audit_with_odd_names_is_saved_and_read_again(tmp_path: Path) -> None:
    found = sample_audit((f"a{ODD}", "b"), title=ODD)
    save_audit(found, tmp_path / "a.json")
    assert to_json(read_audit(tmp_path / "a.json")) == to_json(found)


def test_names_of_systems_and_columns_are_never_paths(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    lists = pa.table({"user": [0, 1], "item": [1, 0], "rank": [1, 1], "name": ["../../a", "/tmp/b"]})
    write_table(lists, tmp_path / "lists.csv")
    inside = tmp_path / "inside"
    inside.mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    for recs in (f"../../x={tmp_path / 'lists.csv'}", f"/tmp/evenhand-y={tmp_path / 'lists.csv'}"):
        ended = evenhand(
            "audit", "--train", log, "--k", "1", "--recs", recs, "--out", inside / "r.html", "--force",
            "--save", inside / "a.json", "--junit", inside / "j.xml", "--fail-if", "gini@1>2",
        )  # fmt: skip
        assert ended.code == 0, ended.err
        assert {path.name for path in inside.iterdir()} == {"r.html", "a.json", "j.xml"}
        assert {path.name for path in tmp_path.iterdir()} == before


def test_names_that_are_markup_or_commands_are_audited(tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    write_table(pa.table({"user": [0, 1], "item": [1, 0], "rank": [1, 1]}), tmp_path / "lists.csv")
    name = "[/]\n::error::x\x1b[31m"
    ended = evenhand(
        "audit", "--train", log, "--k", "1", "--recs", f"{name}={tmp_path / 'lists.csv'}",
        "--fail-if", "gini@1>0", "--github",
    )  # fmt: skip
    assert ended.code == 1
    for text in (ended.out, ended.err):
        assert "\x1b" not in text
        assert "\n::error::x" not in text
    assert "[/]" in ended.out


FORMULA = '=HYPERLINK("http://127.0.0.1/x","a")'


def test_a_title_is_no_formula_to_a_spreadsheet(tmp_path: Path) -> None:
    titles = [FORMULA, "+1-555 (x)", "@SUM(1)", "-2+3|cmd!A0", "\tx", "Amélie", None, "a=b"]
    table = pa.table({"item": list(range(8)), "title": titles})
    write_table(table, tmp_path / "a.csv")
    found = list(csv.DictReader((tmp_path / "a.csv").open(encoding="utf-8", newline="")))
    assert [row["title"] for row in found] == [*(f"'{title}" for title in titles[:5]), "Amélie", "", "a=b"]
    write_table(table, tmp_path / "a.parquet")  # where nothing is ever run
    assert pq.read_table(tmp_path / "a.parquet")["title"].to_pylist() == titles


def test_ids_that_are_formulas_are_kept_for_programs_and_noted_for_people(tmp_path: Path) -> None:
    ids = [FORMULA, "@ann", "+491234", "-7", *map(str, range(8))]
    replace(small_model.model("string"), titles=None).save(tmp_path / "plain")
    assert "formulas" not in evenhand("recommend", tmp_path / "plain", "-k", 1, "--out", tmp_path / "plain.csv").err
    made = small_model.model("string")
    made = replace(made, known=replace(made.known, item_ids=pa.array(sorted(ids))))
    made.save(tmp_path / "model")
    for out, noted in (("lists.csv", 1), ("lists.parquet", 0)):
        ended = evenhand("recommend", tmp_path / "model", "-k", 12, "--known", "--out", tmp_path / out)
        assert ended.code == 0, ended.err
        assert ended.err.count("1 of the ids would be formulas to a spreadsheet; open the file as text") == noted
    with (tmp_path / "lists.csv").open(encoding="utf-8", newline="") as file:
        assert {row["item"] for row in csv.DictReader(file)} == set(ids)
    assert set(pq.read_table(tmp_path / "lists.parquet")["item"].to_pylist()) == set(ids)


def test_a_name_of_megabytes_is_not_compared_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(*_: object, **__: object) -> list[str]:
        raise AssertionError("this takes minutes")

    monkeypatch.setattr("evenhand.utils.errors.get_close_matches", compared)
    monkeypatch.setattr("evenhand.models.filters.get_close_matches", compared)
    assert "unknown method" in str(unknown("method", "x" * 10_000_000, ["rns"]))
    monkeypatch.undo()
    assert str(unknown("method", 3, ["rns"])) == "unknown method '3'; Known: rns."
    with pytest.raises(InputError, match="1 unknown user"):
        known_position("x" * 10_000_000, pa.array(["a", "b"]), "user")


@pytest.mark.parametrize("k", ["1000000000", "9" * 30, "9" * 5000])
def test_lists_of_any_length_are_not_made(k: str, tmp_path: Path) -> None:
    log = write_log(small_log(), tmp_path / "log.csv")
    write_table(pa.table({"user": [0, 1], "item": [1, 0], "rank": [1, 1]}), tmp_path / "lists.csv")
    for command in (
        ("audit", "--recs", tmp_path / "lists.csv"),
        ("evaluate", tmp_path / "lists.csv", "--test", log),
    ):
        ended = evenhand(*command, "--train", log, "--k", k)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert "--k" in ended.err


def test_nor_from_python() -> None:
    split = small_log().split()
    recs = pa.table({"user": [0, 1], "item": [1, 0], "rank": [1, 1]})
    for asked in (10_001, [5, 10_001], 2**80):
        for evaluator in (
            lambda k: audit({"a": recs}, split.train, k=k),
            lambda k: evaluate(recs, split, k=k),
            lambda k: evaluate_named(recs, split, k),
            lambda k: compare(split, ["popular"], ks=[k] if isinstance(k, int) else k),
        ):
            with pytest.raises(InputError, match="up to 10,000"):
                evaluator(asked)
    for wrong in ((), ("x",), (1.5,), (0,)):
        with pytest.raises(InputError, match="whole numbers from 1 up"):
            compare(split, ["popular"], k=wrong)


def test_lists_that_would_not_fit_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    users, few = np.arange(3), 10**6
    monkeypatch.setattr(memory, "available_bytes", lambda device: few)
    monkeypatch.setattr(topk, "_WORTH_ASKING", few)
    score = by_product(torch.zeros(3, 1), torch.zeros(100_000, 1))
    assert top_by(score, 100_000, users, 5)[0].shape == (3, 5)
    with pytest.raises(InputError, match="a list of 100,000 items for each of 3 users needs about 4 MB"):
        top_by(score, 100_000, users, 100_000)
    with pytest.raises(InputError, match=r"not 1\.5"):
        top_by(score, 100_000, users, 1.5)  # type: ignore[arg-type]


def test_tables_and_documents_that_would_not_fit_are_not_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table takes 43 bytes a place, a JSON document 1.2 kB a row."""
    model = small_model.model("integer")
    model.save(tmp_path / "model")
    monkeypatch.setattr(topk, "_WORTH_ASKING", 1)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 9 * 4 * 43)
    assert len(model.recommend(k=4, known=True)) == 9 * 4
    with pytest.raises(InputError, match="a list of 5 items for each of 9 users needs about"):
        model.recommend(k=5)
    asked = ("recommend", tmp_path / "model", "-k", 4)
    assert evenhand(*asked).code == 0
    refused = evenhand(*asked, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "a JSON document of" in refused.err
    assert "write a file with --out" in refused.err


@pytest.mark.parametrize("digits", [30, 5000])
def test_numbers_of_any_length_are_read_or_refused(digits: int) -> None:
    for reader in (HotRule.parse, trials_at_once):
        with pytest.raises(InputError):
            reader("9" * digits)


def test_seeds_beyond_number_are_not_counted_out() -> None:
    assert len(seed_numbers(10_000)) == 10_000
    with pytest.raises(InputError, match="up to 10,000"):
        seed_numbers(10_001)


# ---- what people write: gates, and documents that were changed by hand


@pytest.mark.parametrize("text", ["ohr@" + "9" * 5000 + ">0.1", "a" * 100_000 + "@5>1", "x." * 5000 + "ohr@5>"])
def test_a_long_gate_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_gate(text)


def changed(document: Any, *path: Any, to: Any) -> Any:
    if not path:
        return to
    head, *rest = path
    if isinstance(document, dict):
        return document | {head: changed(document[head], *rest, to=to)}
    return [changed(one, *rest, to=to) if place == head else one for place, one in enumerate(document)]


@pytest.mark.parametrize(
    ("path", "to"),
    [
        (("rows", 0, "name"), []),
        (("rows", 0, "k"), {}),
        (("rows", 0, "metrics", "ohr", "mean"), "0.5"),
        (("rows", 0, "metrics", "ohr", "mean"), 10**400),
        (("rows", 0, "metrics", "ohr", "low"), []),
        (("systems",), [[]]),
        (("systems",), {"a": 1}),
        (("ks",), ["x"]),
        (("data",), [1]),
        (("notes",), [1]),
        (("slices", 0, "size"), "many"),
        (("examples", 0, "history", 0, "hot"), "yes"),
    ],
)
def test_an_audit_with_a_wrong_value_is_refused(path: tuple[Any, ...], to: Any, tmp_path: Path) -> None:
    document = changed(to_json(sample_audit()), *path, to=to)
    if path == ("systems",) and isinstance(to, dict):
        document["systems"] = 3
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="not whole"):
        read_audit(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "9" * 5000, "\x00"])
def test_json_that_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_audit(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "9" * 5000, "\x00", "3", ""])
@pytest.mark.parametrize("column", ["versions", "details"])
def test_results_whose_details_are_no_object_are_refused(column: str, text: str, tmp_path: Path) -> None:
    Results(tmp_path).add(Run("x", "d", "s", None, "m", 1.0, "", "", {"evenhand": "0"}, {}, {"ndcg@5": [0.5]}))
    assert len(Results(tmp_path).runs) == 1
    table = pq.read_table(tmp_path / RUNS)
    place = table.schema.get_field_index(column)
    pq.write_table(table.set_column(place, column, pa.array([text])), tmp_path / RUNS)
    with pytest.raises(InputError, match="did not write") as caught:
        Results(tmp_path)
    assert "\n" not in str(caught.value)


def test_results_that_lack_a_number_are_refused_in_one_sentence(tmp_path: Path) -> None:
    Results(tmp_path).add(Run("overall-x", "d", "s", None, "m", 1.0, "", "", {}, {"identity": {"part": []}}))
    ended = evenhand("reproduce", "claims", "--out", tmp_path)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    with pytest.raises(InputError, match=r"did not write \(KeyError: 'x'\)"), as_written(tmp_path):
        {}["x"]
