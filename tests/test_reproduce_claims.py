"""What results say of the paper's claims, on results made up so that the answer is known; and the page."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.metrics.statistics import holm, paired_over_seeds, summarise
from evenhand.paper.reproduce import Request, claims
from evenhand.paper.reproduce.fits import METRICS
from evenhand.paper.reproduce.record import Document
from evenhand.paper.reproduce.request import swept_values
from run_cli import evenhand

SPREAD = np.array([-0.001, 0.0, 0.0, 0.001])


def entry(**means: float) -> Any:
    """A row with four seeds around these means; `precision_at_5=0.4`. Metrics not given are 0.5."""
    given = {name.replace("_at_", "@"): mean for name, mean in means.items()}
    keys = [*(f"{name}@{k}" for k in (5, 10, 20) for name in METRICS), "mse", "hot_share", "false_share"]
    metrics = {key: summarise(given.get(key, 0.5) + SPREAD).to_json() for key in keys}
    return {
        "metrics": metrics,
        "training": {"batch": 128, "lr": 0.1, "milestones": [20], "weight_decay": 1e-4, "epochs": 9},
        "source": "made up",
        "chosen_epochs": [1, 7],
        "seconds": 1.5,
        "hardware": "none",
    }


def document(part: str, entries: dict[str, Any], over_users: list[dict[str, Any]] | None = None) -> Document:
    identity = Request(part, seeds=4).identity() | {"split": "made up", "data": {}}
    return {
        "format": 1,
        "evenhand": eh.__version__,
        "identity": identity,
        "entries": entries,
        "over_users": over_users or [],
    }


def interval(name: str, metric: str, low: float, high: float) -> dict[str, Any]:
    difference = (low + high) / 2
    return {"name": name, "k": 5, "metric": metric, "difference": difference, "low": low, "high": high}


def noisy(mean: float, by: float) -> Any:
    """Seeds that vary by more than the difference to others, in another order."""
    made = entry()
    made["metrics"]["precision@5"] = summarise(mean + np.array([by, -by, 2 * by, -2 * by])).to_json()
    return made


def test_better_needs_seeds_and_users() -> None:
    entries = {
        "auc-ns": entry(precision_at_5=0.43),
        "rns": entry(precision_at_5=0.37),
        "dns": noisy(0.425, 0.01),
        "pns": entry(precision_at_5=0.40),
        "ease": entry(precision_at_5=0.45),
    }
    users = [
        interval("rns", "precision", 0.05, 0.07),
        interval("dns", "precision", 0.001, 0.009),
        interval("pns", "precision", -0.01, 0.07),
        interval("ease", "precision", -0.03, -0.01),
    ]
    found = claims({"x": document("overall", entries, users)})
    mine = {claim.other: claim for claim in found if claim.metric == "precision@5"}
    assert [mine[name].holds for name in ("rns", "dns", "pns", "ease")] == [True, False, False, False]
    assert mine["rns"].text.endswith("higher beyond chance.")
    assert mine["dns"].text.endswith("within the uncertainty.")
    assert mine["pns"].text.endswith("within the uncertainty.")
    assert mine["ease"].text.endswith("lower beyond chance.")
    assert mine["rns"].gap == pytest.approx(0.06)
    assert mine[""].holds is False
    assert "1 of 3 of the paper's baselines (not dns, pns) and 0 of 1 of the other rows" in mine[""].text


def test_a_lower_ohr_is_what_is_claimed() -> None:
    entries = {"auc-ns": entry(ohr_at_5=0.57), "rns": entry(ohr_at_5=0.63)}
    found = claims({"x": document("overall", entries)})
    mine = {claim.other: claim for claim in found if claim.metric == "ohr@5"}
    assert mine["rns"].holds is True
    assert mine["rns"].text.startswith("ohr@5, auc-ns − rns: −0.0600 (over 4 seeds")
    assert mine[""].holds is True


def test_p_values_are_adjusted_over_all_rows_of_a_metric() -> None:
    """Alone, a row is beyond chance; beside nine others like it, it is not."""
    close = noisy(0.42, 0.003)
    values = (entry(precision_at_5=0.43)["metrics"], close["metrics"])
    raw = paired_over_seeds(*(np.array(side["precision@5"]["values"]) for side in values))
    assert raw is not None
    assert raw.p < 0.05 < holm([raw.p] * 9)[0], "the example is as the test says"

    def judged(rows: int) -> bool | None:
        names = [f"row{n}" for n in range(rows)]
        entries = {"auc-ns": entry(precision_at_5=0.43), **dict.fromkeys(names, close)}
        found = claims({"x": document("overall", entries)})
        return next(c.holds for c in found if (c.metric, c.other) == ("precision@5", "row0"))

    assert judged(1) is True
    assert judged(9) is False


def test_one_seed_cannot_tell() -> None:
    entries = {"auc-ns": entry(), "rns": entry()}
    for one in entries.values():
        one["metrics"] = {key: summarise([0.5]).to_json() for key in one["metrics"]}
    assert {claim.holds for claim in claims({"x": document("overall", entries)})} == {None}


def test_an_undefined_number_cannot_tell() -> None:
    pns = entry()
    pns["metrics"]["ohr@5"] = {"mean": None, "std": None, "values": [None] * 4}
    found = claims({"x": document("overall", {"auc-ns": entry(), "pns": pns})})
    (claim,) = [one for one in found if (one.metric, one.other) == ("ohr@5", "pns")]
    assert (claim.holds, claim.gap) == (None, None)
    assert "undefined" in claim.text


def test_what_has_one_value_stands_for_every_seed() -> None:
    ease = entry()
    ease["metrics"]["precision@5"] = summarise([0.30]).to_json()
    found = claims({"x": document("overall", {"auc-ns": entry(precision_at_5=0.43), "ease": ease})})
    assert next(c.holds for c in found if (c.metric, c.other) == ("precision@5", "ease")) is True


def test_without_auc_ns_there_is_nothing_to_say() -> None:
    assert claims({"x": document("overall", {"rns": entry(), "pns": entry()})}) == []


@pytest.mark.parametrize(
    ("heights", "holds"),
    [([0.40, 0.43, 0.39], True), ([0.40, 0.41, 0.43], False), ([0.4299, 0.43, 0.39], False)],
    ids=["inside", "at the end", "no better than the start"],
)
def test_an_inverted_u_has_its_top_inside(heights: list[float], holds: bool) -> None:
    """In the third, the seeds of the start and of the top go different ways, so that nothing is sure."""
    entries = {
        value: entry(precision_at_5=height, ohr_at_5=1 - height)
        for value, height in zip(("0.5", "0.75", "1"), heights, strict=True)
    }
    if heights[0] > 0.42:
        for key in ("precision@5", "ohr@5"):
            values = entries["0.5"]["metrics"][key]["values"]
            entries["0.5"]["metrics"][key]["values"] = [values[1], values[3], values[0], values[2]]
    found = claims({"x": document("alpha", entries)})
    assert [claim.holds for claim in found] == [holds, holds]
    assert ("an inverted U" in found[0].text and "no inverted U" not in found[0].text) is holds


def test_longer_lists_may_want_a_larger_gamma() -> None:
    entries = {
        "0.006": entry(precision_at_5=0.43, precision_at_10=0.35, precision_at_20=0.28),
        "0.1": entry(precision_at_5=0.42, precision_at_10=0.36, precision_at_20=0.27),
    }
    ten, twenty = claims({"x": document("gamma", entries)})
    assert (ten.holds, twenty.holds) == (True, False)
    assert "best gamma 0.1, that of top 5 is 0.006" in ten.text


def page_script() -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / "reproduction_page.py"
    spec = importlib.util.spec_from_file_location("reproduction_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_command_read_the_files(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    rows = {"auc-ns": entry(precision_at_5=0.43), "rns": entry(precision_at_5=0.37)}
    values = {value: entry(precision_at_5=0.41) for value in swept_values("gamma")}
    for part, entries in (("overall", rows), ("gamma", values)):
        name = f"{part}-ml-100k-mf-paper-paper.json"
        (results / name).write_text(json.dumps(document(part, entries)))
    (results / "another.json").write_text("not ours")

    page = tmp_path / "docs" / "reproduction.md"
    page.parent.mkdir()
    page_script().main(str(results), str(page))
    text = page.read_text()
    assert "| `rns` | **+.0600** |" in text
    assert ".4300 ± .0008" in text
    assert "| `0.006` | ours       | .4100 ± .0008 |" in text
    assert "mse ↓" in text
    picture = page.parent / "images" / "reproduction-gamma-ml-100k-mf-paper-paper.svg"
    assert picture.read_text().startswith("<svg")
    assert picture.stat().st_size < 60_000
    assert f"images/{picture.name}" in text

    ended = evenhand("reproduce", "claims", "--out", results)
    assert ended.code == 0
    assert "yes  precision@5, auc-ns − rns: +0.0600" in ended.out
    told = evenhand("reproduce", "claims", "--out", results, "--json").document
    assert {claim["holds"] for claim in told} == {True, False}
    nothing = evenhand("reproduce", "claims", "--out", tmp_path)
    assert nothing.code == 2
    assert nothing.err.count("\n") == 1
