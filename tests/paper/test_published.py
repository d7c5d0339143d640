"""The transcribed tables: complete, faithful to the source where it is at hand, flagged by rules."""

import csv
import importlib.util
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.data.interactions import Interactions
from evenhand.data.popularity import hot_items
from evenhand.methods import METHODS
from evenhand.paper.published import COLUMNS, FILE, Cell, PublishedSettings, all_cells, cell, cells, published_settings
from evenhand.utils.errors import InputError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import errata  # noqa: E402
from errata import find_errata, ndcg_floor, performance_rows  # noqa: E402


def transcriber() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transcribe_paper", ROOT / "scripts" / "transcribe_paper.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def source() -> str:
    named = os.environ.get("EVENHAND_PAPER")
    folder = ROOT.parent / "shared" / "paper"
    found = [Path(named)] if named else sorted(folder.glob("*.txt"))
    if not found or not found[0].is_file():
        pytest.skip("the paper's source is not here; set EVENHAND_PAPER to its .tex file")
    return found[0].read_text(encoding="utf-8")


def test_every_table_is_complete() -> None:
    tables = Counter((c.table, c.k if c.table == "performance" else "") for c in all_cells())
    assert tables == {
        ("performance", "5"): 3 * 2 * 10 * 8,
        ("performance", "10"): 3 * 2 * 10 * 8,
        ("performance", "20"): 3 * 2 * 10 * 8,
        ("errors", ""): 3 * 2 * 10 * 3,
        ("alpha", ""): 11 * 2,
        ("beta", ""): 8 * 4,
        ("gamma", ""): 9 * 2,
        ("datasets", ""): 3 * 5,
        ("settings", ""): 6 * 7,
    }
    assert len({c.key for c in all_cells()}) == len(all_cells()) == 1749
    assert {c.method for c in all_cells()} - {""} == set(METHODS) - {"softmax", "psl", "slatk", "bsl", "auc-softmax"}
    assert all(0 <= c.value <= 1 for c in all_cells() if c.table not in ("datasets", "settings"))


def test_cells_read_by_eye() -> None:
    """One of each table, and the two columns that stand the other way round than one reads them."""
    assert cell("performance", "ml-1m", "lightgcn", "pns", 5, metric="ocr").text == "0.3729"
    assert cell("performance", "ml-100k", "mf", "rns", 5, metric="ucr").text == "0.9289"
    assert cell("performance", "ml-100k", "mf", "rns", 5, metric="uhr").text == "0.8034"
    assert cell("errors", "yahoo-r3", "lightgcn", "macr", metric="mse").text == "0.2779"
    assert cell("errors", "ml-1m", "mf", "pns", metric="fnr").text == "0.905"
    assert cell("alpha", setting=0.95, metric="ohr").text == "0.5793"
    assert cell("beta", setting=0.05, metric="false_share").text == "0.0637"
    assert cell("gamma", setting=0.1, k=10).text == "0.3601"
    assert cell("datasets", "yahoo-r3", metric="train").value == 146_000
    decay = cell("settings", "ml-100k", "lightgcn", metric="lr_decay")
    assert (decay.value, decay.setting) == (0.1, "20,60,80")


def test_marks_inside_a_number_are_read() -> None:
    split = cell("performance", "yahoo-r3", "mf", "auc-ns", 5, metric="f1")
    assert (split.text, split.mark) == ("0.1146", "bold")
    split = cell("performance", "ml-100k", "mf", "bc-loss", 10, metric="ndcg")
    assert (split.text, split.mark) == ("0.405", "underline")


def test_the_script_makes_the_packaged_file(source: str, tmp_path: Path) -> None:
    module = transcriber()
    assert module.transcribe(source) == list(all_cells())
    tex = tmp_path / "paper.tex"
    tex.write_text(source, encoding="utf-8")
    module.main([str(tex), str(tmp_path / "out.csv")])
    assert (tmp_path / "out.csv").read_bytes() == FILE.read_bytes()


def test_the_script_reads_cells_as_latex_writes_them() -> None:
    bare = transcriber()._bare
    assert bare(r"\textbf{0.114}6") == ("0.1146", "bold")
    assert bare(r"\underline{0.42} ") == ("0.42", "underline")
    assert bare(r"\multirow{10}[2]{*}{MF}") == ("MF", "")
    assert bare(r"\multicolumn{1}{c}{\multirow{20}[4]{*}{MovieLens-1M}}") == ("MovieLens-1M", "")


def test_the_file_has_one_header_and_no_machine_in_it() -> None:
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {len(row) for row in rows} == {len(COLUMNS)}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"table": "perfomance"}, "did you mean 'performance'?"),
        ({"dataset": "ml-10k"}, "did you mean 'ml-100k'?"),
        ({"table": "beta", "setting": 0.02}, "the nearest is 0.025"),
        ({"table": "performance", "k": 15}, "the nearest is"),
        ({"table": "errors", "metric": "ohr"}, "unknown metric 'ohr'; Known: fnr, fpr, mse."),
        ({"table": "datasets", "method": "rns"}, "cells with table datasets; leave 'method' out"),
    ],
)
def test_a_cell_that_does_not_exist(asked: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as caught:
        cells(**asked)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_one_cell_means_one() -> None:
    with pytest.raises(InputError, match="say which k is meant"):
        cell("performance", "ml-100k", "mf", "rns", metric="ndcg")


def test_errata_are_what_the_rules_find() -> None:
    plain = [replace(c, errata="") for c in all_cells()]
    found = find_errata(plain)
    assert {c.key: c.errata for c in all_cells() if c.errata} == found
    rules = Counter(reason.split(":")[0] for text in found.values() for reason in text.split("; "))
    assert set(rules) <= set(errata.RULES)
    assert rules == {"fpr": 62, "equal": 8, "repeat": 3, "data": 3, "bound": 2, "jump": 2, "f1": 1}


@pytest.mark.parametrize(
    ("where", "rule"),
    [
        (("ml-100k", "mf", "ips-cn", 10, "ndcg"), "bound"),
        (("yahoo-r3", "lightgcn", "cause", 10, "uhr"), "bound"),
        (("ml-1m", "lightgcn", "samreg", 10, "f1"), "f1"),
        (("yahoo-r3", "mf", "bc-loss", 20, "ocr"), "equal"),
        (("yahoo-r3", "mf", "bc-loss", 20, "ucr"), "jump"),
    ],
)
def test_known_errata(where: tuple[str, str, str, int, str], rule: str) -> None:
    *row, metric = where
    assert rule in cell("performance", *row, metric=metric).errata


def test_the_repeated_row_of_the_error_table() -> None:
    assert all("repeat" in c.errata for c in cells("errors", "ml-1m", "lightgcn", "rns"))
    assert not any("repeat" in c.errata for c in cells("errors", "ml-1m", "mf"))


def test_all_marks_are_right_and_a_wrong_one_would_show() -> None:
    assert Counter(c.mark for c in all_cells()) == {"": 1563, "bold": 96, "underline": 90}
    assert not any("mark" in c.errata for c in all_cells())
    best = cell("performance", "ml-1m", "mf", "auc-ns", 5, metric="ndcg")
    changed = [replace(c, mark="underline", errata="") if c == best else c for c in all_cells()]
    assert find_errata(changed)[best.key] == "mark: underline, but best of its column"


def test_the_sweeps_pass_through_the_top_5_table() -> None:
    for table, setting in (("alpha", 0.75), ("beta", 0.01), ("gamma", 0.006)):
        for found in cells(table, setting=setting):
            if found.metric in ("precision", "ohr"):
                row = cell("performance", "ml-100k", "mf", "auc-ns", found.k, metric=found.metric)
                assert found.value == row.value


def test_recall_and_hits_grow_with_the_list() -> None:
    rows = performance_rows(all_cells())
    for (dataset, encoder, method, k), row in rows.items():
        if k < 20:
            longer = rows[dataset, encoder, method, 2 * k]
            assert longer["recall"].value >= row["recall"].value
            assert 2 * k * longer["precision"].value >= k * row["precision"].value


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=8))
def test_no_lists_fall_below_the_floor_of_ndcg(lists: list[list[bool]]) -> None:
    """For users with at least five test items, by the definition."""
    from math import log2

    weights = [1 / log2(rank + 2) for rank in range(5)]
    ndcg = [sum(w for w, hit in zip(weights, one, strict=True) if hit) / sum(weights) for one in lists]
    precision = sum(sum(one) for one in lists) / (5 * len(lists))
    assert sum(ndcg) / len(lists) >= ndcg_floor(precision, 5) - 1e-12


def test_counts_that_differ_from_the_printed_ones(shared_data: Path) -> None:
    for name in ("ml-100k", "ml-1m"):
        train, test = (Interactions.read(shared_data / name / f"paper_{part}.csv") for part in ("train", "test"))
        from evenhand.data.splits import given_split

        split = given_split(train, test)
        counted = {
            "users": split.n_users,
            "items": split.n_items,
            "hot_items": int(hot_items(split.train.popularity + split.test.popularity).sum()),
        }
        for metric, number in counted.items():
            printed = cell("datasets", name, metric=metric)
            assert number == errata.COUNTED.get((name, metric), printed.value)


def test_the_tables_load_without_the_heavy_libraries() -> None:
    code = (
        "import sys, evenhand.paper.published as o, evenhand.paper.published as s; o.all_cells(); "
        "s.published_settings('ml-1m', 'mf'); print([m for m in ('torch', 'numba', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_cell_is_a_plain_value() -> None:
    made = Cell("beta", "ml-100k", "mf", "auc-ns", "5", "beta", "0.01", "precision", "0.4324", "bold")
    assert made == cell("beta", setting=0.01, metric="precision")


def test_the_paper_s_table() -> None:
    assert published_settings("ml-100k", "mf") == PublishedSettings(
        dim=32,
        batch=128,
        lr=0.1,
        weight_decay=1e-4,
        epochs=500,
        milestones=(20, 60, 80),
        layers=None,
        alpha=0.75,
        beta=0.01,
        gamma=0.006,
        candidates=5,
        probes=10,
        assumed=("candidates", "dim", "epochs", "probes"),
    )
    yahoo = published_settings("yahoo-r3", "lightgcn")
    assert (yahoo.alpha, yahoo.beta, yahoo.gamma, yahoo.layers) == (0.65, 0.001, 0.004, 3)
    assert (yahoo.milestones, yahoo.weight_decay) == ((), 0.0)


@pytest.mark.parametrize(
    ("dataset", "encoder", "differs"),
    [
        ("ml-100k", "mf", {"alpha": 0.6, "beta": 0.025}),
        ("ml-100k", "lightgcn", {"batch": 1024, "weight_decay": 1e-5, "beta": 0.025}),
        ("ml-1m", "mf", {"alpha": 0.6, "beta": 0.025}),
        ("ml-1m", "lightgcn", {"lr": 1e-3, "beta": 0.025}),
    ],
)
def test_where_the_released_suggestion_differs(dataset: str, encoder: str, differs: dict[str, float]) -> None:
    paper, released = (
        vars(published_settings(dataset, encoder)),
        vars(published_settings(dataset, encoder, which="released")),
    )
    assert {n: released[n] for n in paper if paper[n] != released[n] and n != "assumed"} == differs


def test_other_methods_have_nothing_of_their_own() -> None:
    found = published_settings("ml-1m", "mf", "dns")
    assert (found.alpha, found.beta, found.gamma, found.candidates, found.probes) == (None,) * 5
    assert found.assumed == ("batch", "dim", "epochs", "lr", "milestones", "weight_decay")
    assert (found.lr, found.batch) == (5e-4, 128)


def test_settings_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="did you mean 'lightgcn'"):
        published_settings("ml-100k", "lightgnc")
    with pytest.raises(InputError, match="suggests nothing for yahoo-r3"):
        published_settings("yahoo-r3", "mf", which="released")
    with pytest.raises(InputError, match="did you mean 'released'"):
        published_settings("ml-100k", "mf", which="release")  # type: ignore[arg-type]
