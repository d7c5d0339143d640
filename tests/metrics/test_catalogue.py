"""The one catalogue: complete, told alike by the command and the docs, and known to everything that takes a metric."""

import ast
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.audit.gates import parse_gate
from evenhand.experiments.search_result import parse_goals
from evenhand.metrics import catalogue
from evenhand.metrics.catalogue import METRICS, share_with_denominator
from run_cli import evenhand

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_described_and_computed_in_one_way(name: str) -> None:
    metric = METRICS[name]
    ways = (metric.of_user, metric.rate, metric.of_sums, metric.of_items)
    assert sum(way is not None for way in ways) == 1
    assert (metric.slope is not None) == (metric.of_items is not None)
    assert metric.group in ("accuracy", "bias", "exposure")
    assert metric.average in ("users", "served", "paper", "defined", "pooled", "items")
    assert metric.low < metric.high
    assert metric.meaning
    assert metric.formula


def test_every_selection_holds_known_metrics() -> None:
    chosen = [catalogue.PAPER, catalogue.HISTORY, catalogue.BEST_EPOCH, catalogue.CONTRASTED, catalogue.SUMMARY]
    chosen += [catalogue.SLICED, (catalogue.HEADLINE,), *(names for names, _ in catalogue.SCREEN)]
    chosen += [names for _, names in catalogue.PAGE]
    for names in chosen:
        assert set(names) <= set(METRICS)
        assert len(set(names)) == len(names)


def test_the_docs_hold_the_table_that_the_command_prints() -> None:
    printed = evenhand("metrics", "--json").document["metrics"]
    assert [one["name"] for one in printed] == list(METRICS)
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.count(" | ") == 6 and line.startswith("| `")]
    in_docs = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    arrows = {"higher": "↑", "lower": "↓", None: "–"}
    expected = [
        [
            f"`{one['name']}`",
            one["group"],
            one["meaning"],
            f"`{one['formula']}`",
            one["average"],
            arrows[one["better"]],
            " to ".join("∞" if end is None else f"{end:g}" for end in one["range"]),
        ]
        for one in printed
    ]
    assert in_docs == expected


def test_the_table_of_the_command_names_every_metric() -> None:
    shown = evenhand("metrics").out
    assert all(re.search(rf"^{name}\b", shown, re.MULTILINE) for name in METRICS)


def test_everything_that_takes_a_metric_knows_all_that_can_be_sought() -> None:
    for name, metric in METRICS.items():
        assert parse_gate(f"{name}@10>0.5").left.metric == name
        sought = metric.higher_is_better is not None and math.isfinite(
            metric.low if metric.higher_is_better else metric.high
        )
        if sought and name != "recall":
            assert parse_goals(f"recall@5,{name}@10")[1].name == name
    for name in ("mrr", "hit_rate"):
        assert parse_goals(f"{name}@10")[0].rises


def test_evaluate_and_compare_report_every_metric() -> None:
    rng = np.random.default_rng(0)
    log = eh.Interactions.from_pairs(rng.integers(0, 40, 800), rng.integers(0, 30, 800))
    split = log.split(test=0.3, validation=0.1)
    row = eh.compare(split, ["popular"], k=5, device="cpu").row("popular", 5)
    lists = eh.fit(split, method="popular").recommend(k=5)
    found = eh.evaluate(lists, split, k=5).at(5).metrics
    assert tuple(found) == tuple(METRICS)
    for name in METRICS:
        assert row.metrics[name].mean == pytest.approx(found[name].mean, nan_ok=True, abs=1e-12), name


def test_a_rate_without_denominators_earns_nothing() -> None:
    assert share_with_denominator("ocr", {"ocr": 0.002, "ocr_defined": 1.0}) == 0.002
    assert share_with_denominator("ocr", {"ocr": 0.0, "ocr_defined": math.nan}) == 0.0
    assert share_with_denominator("ocr", {"ocr": 0.0, "ocr_defined": 0.0}) == 1.0
    assert share_with_denominator("ndcg", {"ndcg": 0.1}) == 1.0


ALLOWED = {
    "metrics/catalogue.py",
    "metrics/__init__.py",
    "metrics/formulas.py",
}
"""Where metrics are defined. The paper's room names the columns that were published."""


def test_no_other_module_lists_metrics() -> None:
    """A tuple, list, set or dict that names three metrics or more is a list of metrics."""
    package = ROOT / "src" / "evenhand"
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place in ALLOWED or place.startswith("paper/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
            names = [part.value for part in parts if isinstance(part, ast.Constant)]
            if sum(name in METRICS for name in names if isinstance(name, str)) >= 3:
                found.append(f"{place}:{node.lineno}")
    assert not found, json.dumps(found)
