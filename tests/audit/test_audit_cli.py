"""`evenhand audit` from the outside: what it prints, writes and exits with."""

import json
from pathlib import Path

import pytest

from audit_lists import LISTS, TEST, TRAIN, pairs
from run_cli import evenhand


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, rows in (("train", TRAIN), ("test", TEST)):
        lines = ["user,item", *(f"{user},{item}" for user, item in pairs(rows))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    for name, step in (("mine", 1), ("other", -1)):
        lines = ["user,item,rank"]
        for user, items in LISTS.items():
            lines += [f"{user},{item},{rank}" for rank, item in enumerate(items[::step], 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    (tmp_path / "people.csv").write_text("user,country\nann,FR\nbob,DE\n")
    (tmp_path / "guests.csv").write_text("userId,country\nann,FR\nbob,DE\n")
    (tmp_path / "films.csv").write_text("item,title\na,Harbour\nb,Lighthouse\n")
    return tmp_path


def given(files: Path, *more: object) -> list[object]:
    return [
        "audit",
        "--train",
        files / "train.csv",
        "--test",
        files / "test.csv",
        "--k",
        "3,4",
        "--hot",
        "2",
        *more,
    ]


def test_it_prints_a_table_and_findings(files: Path) -> None:
    ended = evenhand(*given(files, "--recs", files / "mine.csv", "--recs", f"b={files / 'other.csv'}"))
    assert ended.code == 0
    assert ended.err == ""
    lines = ended.out.splitlines()
    assert "mine is more accurate than b" in lines[0]
    assert lines[6].split() == ["metric", "mine", "b"]
    assert [line.split()[0] for line in lines[7:9]] == ["ndcg", "exposure_gap"]
    tenths = lines.index(next(line for line in lines if line.startswith("items ")))
    assert "demand (train)  demand (test)  slots of mine" in lines[tenths]
    assert lines[tenths + 1].startswith("tenth 1 (most popular)")
    assert any(line.startswith("precision ↑") and ".4000 [" in line for line in lines)
    assert any("mine is more accurate than b" in line for line in lines)


def test_a_narrow_terminal_gets_the_values_alone(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recs = [text for name in "abcdef" for text in ("--recs", f"{name}={files / 'mine.csv'}")]
    monkeypatch.setenv("COLUMNS", "80")
    narrow = evenhand(*given(files, *recs)).out.splitlines()
    assert ["precision", "↑", *[".4000"] * 6] in [line.split() for line in narrow]
    assert any("a wider terminal shows the intervals" in line for line in narrow)
    monkeypatch.setenv("COLUMNS", "200")
    assert ".4000 [" in evenhand(*given(files, *recs)).out


def test_json_is_one_document_with_rows(files: Path) -> None:
    ended = evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", "--json", "--github"))
    assert ended.code == 0
    row = ended.document["rows"][1]
    assert (row["name"], row["k"]) == ("a", 4)
    assert row["metrics"]["precision"]["mean"] == pytest.approx(0.3)
    assert ended.err.startswith("::notice")


def test_a_gate_that_holds_exits_1_with_its_sentence(files: Path) -> None:
    junit = files / "junit.xml"
    gates = ("--fail-if", "precision@4<0.35", "--fail-if", "gini@3>0.99", "--junit", junit)
    ended = evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", *gates))
    assert ended.code == 1
    assert ended.err == "evenhand: gate failed: precision@4<0.35 holds: precision@4 of a is 0.3000.\n"
    assert 'failures="1"' in junit.read_text()
    assert evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", *gates[2:4])).code == 0


def test_saved_and_compared_with_a_baseline(files: Path) -> None:
    saved = files / "audit.json"
    assert evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", "--save", saved)).code == 0
    before = json.loads(saved.read_text())
    ended = evenhand(*given(files, "--recs", f"a={files / 'other.csv'}", "--baseline", saved, "--json"))
    changes = {(c["metric"], c["k"]): c for c in ended.document["changes"]}
    assert changes["ndcg", 3]["before"]["value"] == before["rows"][0]["metrics"]["ndcg"]["mean"]
    assert changes["ndcg", 3]["worse"] is True
    # Nothing is written over without being asked to.
    again = evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", "--save", saved))
    assert again.code == 2
    assert "exists already" in again.err
    assert evenhand(*given(files, "--recs", f"a={files / 'mine.csv'}", "--save", saved, "--force")).code == 0


def test_without_a_test_it_measures_exposure(files: Path) -> None:
    ended = evenhand("audit", "--train", files / "train.csv", "--recs", files / "mine.csv", "-k", 3, "--json")
    assert ended.code == 0
    assert "ndcg" not in ended.document["rows"][0]["metrics"]
    assert "gini" in ended.document["rows"][0]["metrics"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--recs", "a="], "--recs takes NAME=FILE"),
        (["--recs", "a=nowhere.csv"], "no file 'nowhere.csv'"),
        (["--recs", "a=FILES/mine.csv", "--recs", "a=FILES/other.csv"], "two lists are called 'a'"),
        (["--recs", "FILES/mine.csv", "--fail-if", "ohr@10>0.6"], "the audit has 3, 4"),
        (["--recs", "FILES/mine.csv", "--fail-if", "ohr@3>>1"], "at column 7"),
        (["--recs", "FILES/mine.csv", "--baseline", "FILES/mine.csv"], "is not JSON"),
        (["--recs", "FILES/mine.csv", "--baseline", "FILES/none.json"], "cannot read"),
        (["--recs", "FILES/mine.csv", "--save", "FILES/none/a.json"], "does not exist"),
        (["--recs", "FILES/mine.csv", "--rank", "place"], "no column 'place'"),
        (["--recs", "FILES/mine.csv", "--out", "FILES/report.pdf"], "must end in .html"),
        (["--recs", "FILES/mine.csv", "--users-file", "FILES/people.csv"], "with --slice-by"),
        (
            ["--recs", "FILES/mine.csv", "--users-file", "FILES/people.csv", "--slice-by", "contry"],
            "(it has user, country); did you mean 'country'?",
        ),
        (
            ["--recs", "FILES/mine.csv", "--users-file", "FILES/guests.csv", "--slice-by", "country"],
            "did you mean 'userId'? Name it with 'user' in its header.",
        ),
        (
            ["--recs", "FILES/mine.csv", "--items-file", "FILES/films.csv", "--title", "name"],
            "'FILES/films.csv' has no column 'name' (it has item, title)",
        ),
    ],
)
def test_mistakes_are_one_line_and_exit_2(files: Path, more: list[str], why: str) -> None:
    ended = evenhand(*given(files, *(text.replace("FILES", str(files)) for text in more)))
    assert ended.code == 2
    assert why.replace("FILES", str(files)) in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
