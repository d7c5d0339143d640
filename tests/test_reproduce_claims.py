"""What results say of the paper's claims, on results made up so that the answer is known; and the page."""

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import evenhand as eh
from evenhand.metrics.statistics import holm, paired_over_seeds, summarise
from evenhand.paper.published import cell
from evenhand.paper.reproduce import Request, claims
from evenhand.paper.reproduce.fits import METRICS
from evenhand.paper.reproduce.record import Document
from evenhand.paper.reproduce.request import swept_values
from evenhand.paper.reproduce.table import Pair
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
        "command": "evenhand reproduce overall --dataset made-up --methods one --seeds 4",
        "chosen_epochs": [1, 7],
        "seconds": 1.5,
        "hardware": "none",
    }


def document(
    part: str, entries: dict[str, Any], over_users: list[dict[str, Any]] | None = None, **how: Any
) -> Document:
    identity = Request(part, seeds=4, **how).identity() | {"split": "made up", "data": {}}
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
    found = claims({"x": document("beta", entries)})
    assert [claim.holds for claim in found] == [holds, holds]
    assert ("an inverted U" in found[0].text and "no inverted U" not in found[0].text) is holds


@pytest.mark.parametrize(
    ("rates", "holds"),
    [([0.57, 0.56, 0.61], True), ([0.61, 0.56, 0.60], False), ([0.60, 0.58, 0.57], False)],
    ids=["at the end", "at the start more", "falls"],
)
def test_ohr_over_alpha_rises_at_the_end(rates: list[float], holds: bool) -> None:
    entries = {value: entry(ohr_at_5=rate) for value, rate in zip(("0.5", "0.75", "1"), rates, strict=True)}
    claim = claims({"x": document("alpha", entries)})[-1]
    assert claim.holds is holds
    assert claim.text.startswith(f"ohr@5 over alpha: 0.5 {rates[0]:.4f}, ")
    assert (": a rise at the end (Holm p" in claim.text) is holds


def test_longer_lists_may_want_a_larger_gamma() -> None:
    entries = {
        "0.006": entry(precision_at_5=0.43, precision_at_10=0.35, precision_at_20=0.28),
        "0.1": entry(precision_at_5=0.42, precision_at_10=0.36, precision_at_20=0.27),
    }
    ten, twenty = claims({"x": document("gamma", entries)})
    assert (ten.holds, twenty.holds) == (True, False)
    assert "best gamma 0.1, that of top 5 is 0.006" in ten.text


ROOT = Path(__file__).parents[1]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("reproduction_page")


def write(folder: Path, made: Document) -> None:
    what = made["identity"]
    name = "-".join(what[key] for key in ("part", "dataset", "encoder", "protocol", "settings"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(made))


def row(precision: float, ndcg: float, ohr: float) -> Any:
    return entry(precision_at_5=precision, ndcg_at_5=ndcg, ohr_at_5=ohr)


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """A file of every kind: MF on ML-100K meets the paper in one row, comes near in one, and misses one."""
    folder = tmp_path / "results"
    rows = {
        "auc-ns": row(0.4260, 0.4560, 0.5700),
        "rns": row(0.3676, 0.3938, 0.6324),
        "dns": row(0.4273, 0.4569, 0.5730),
        "ease": row(0.4500, 0.4800, 0.5500) | {"rival": {"l2": 400}},
        "pns": row(0.3979, 0.4231, 0.5939),
    }
    del rows["ease"]["training"]
    for name, shares in (("rns", (0.1, 0.03)), ("pns", (0.4, 0.06))):
        for key, mean in zip(("hot_share", "false_share"), shares, strict=True):
            rows[name]["metrics"][key]["mean"] = mean
    write(folder, document("overall", rows))
    honest = {"auc-ns": row(0.40, 0.42, 0.59), "rns": row(0.41, 0.43, 0.58), "dns": row(0.39, 0.41, 0.60)}
    write(folder, document("overall", honest, protocol="honest"))
    losses = {"auc-ns": row(0.4380, 0.4669, 0.5614), "macr": row(0.30, 0.30, 0.60)}
    losses["macr"]["source"] += " with MF"
    write(folder, document("overall", losses, encoder="lightgcn", settings="released"))
    found = {"auc-ns": row(0.4170, 0.45, 0.60), "rns": row(0.3675, 0.39, 0.6314)}
    for one, epochs in zip(found.values(), (77, 133), strict=True):
        one["epochs_found"] = epochs
    write(folder, document("overall", found, dataset="ml-1m", until=20))
    for part in ("alpha", "beta", "gamma"):
        values = {value: entry(precision_at_5=0.41) for value in swept_values(part)}
        for one in values.values():
            one["trained_together"], one["seconds"] = len(values), 60.0
        write(folder, document(part, values))
    (folder / "another.json").write_text("not ours")
    return folder


def test_the_page_says_what_the_files_say(page: ModuleType, everything: Path, tmp_path: Path) -> None:
    place = tmp_path / "docs" / "reproduction.md"
    place.parent.mkdir()
    page.main(str(everything), str(place))
    text = place.read_text()
    first = text.split("## ")[0]
    assert "comes within .0064 of its printed precision@5 in all 3 tables" in first
    assert "in precision@5 `ease` .4500 on ML-100K (AUC-NS .4380 with LightGCN) and `auc-ns` .4170" in first
    assert "differs by −.0013 to −.0013, ahead beyond chance in 0 and behind in 1 of 3 tables" in first
    assert "; and 5 of the paper's 8 rows come out as printed or near" in first
    assert "| ML-100K, MF | .4260 ± .0008 / .4324 | +.0584 | −.0013 | 3 of 4 |" in first
    assert "; ML-100K, LightGCN, protocol honest; " in first, "what is missing"

    section = text.split("### ML-100K, MF, 4 seeds: 3 of 4 rows reproduced or near")[1].split("###")[0]
    verdicts = dict(re.findall(r"^\| `([\w-]+)` .* \| (.*) \|$", section, re.MULTILINE))
    assert verdicts == {
        "rns": "yes",
        "pns": "yes",
        "auc-ns": "near",
        "dns": "no: better in all three",
        "ease": "",
    }
    assert "| `rns` | .3676 → .4100 | .3938 → .4300 | .6324 → .5800 | 3 → 1 |" in text.replace("  ", " ")
    assert "no longer `rns`" in text
    assert "| `rns` | 133 |" in text
    assert "shares lie +.0059 to +.0141 from it, at their hot shares." in text, "a line of slope .1"
    assert "precision@5 of `auc-ns` .4170, line ≥ .4160, paper .4218: reached." in text
    assert "OHR@5 of `auc-ns` .6000, line ≤ .5860, paper .5786: **missed**." in text
    assert "`macr` of ML-100K, LightGCN carry what was found for MF" in text
    assert "| ML-100K, MF | `dns` | **+.0430** | **+.0483** | **−.0427** |" in text
    assert "11 × 4 | none | 60 (1 min) | 11 values together |" in text
    assert "Every method tuned with the same budget on validation: not measured yet." in text
    assert "| `0.006` | ours       | .4100 ± .0008 |" in text, "the tables in full"
    assert text.count("<details>") == text.count("</details>") == 7
    for name in re.findall(r"\(images/([^)]*)\)", text):
        picture = place.parent / "images" / name
        assert picture.read_text().startswith("<svg")
        assert picture.stat().st_size < 80_000


def test_a_page_of_little_says_what_is_missing(page: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, document("gamma", {"0.006": entry()}))
    text = page.text(tmp_path, tmp_path)
    assert "- **What wins:** not measured yet." in text
    assert "ML-100K, MF, protocol paper; ML-100K, LightGCN, protocol paper" in text
    assert "the alpha sweep; the beta sweep; `0.002`, `0.004`, `0.008`" in text
    with pytest.raises(SystemExit, match="holds no result files"):
        page.main(str(tmp_path / "nowhere"), str(tmp_path / "page.md"))


def test_the_page_in_the_docs_is_that_of_the_results(page: ModuleType) -> None:
    docs = ROOT / "docs"
    text = (docs / "reproduction.md").read_text(encoding="utf-8")
    in_step = text == page.text(ROOT / "results", docs / "images")
    assert in_step, "run scripts/reproduction_page.py"
    claimed = (docs / "claims.md").read_text(encoding="utf-8")
    in_step = claimed == page.opened(claimed, ROOT / "results")
    assert in_step, "run scripts/reproduction_page.py"
    missing = [name for name in re.findall(r"\((images/[^)]*)\)", text) if not (docs / name).is_file()]
    assert missing == []


def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_between_the_two_pages_and_others_leads_somewhere(page: ModuleType, everything: Path) -> None:
    docs = ROOT / "docs"
    made = page.text(everything, docs / "images")
    claimed = page.opened((docs / "claims.md").read_text(encoding="utf-8"), everything)
    pages = {"reproduction.md": made, "claims.md": claimed}
    for here, text in pages.items():
        for name, anchor in re.findall(r"\]\(([\w.-]*)(?:#([^)]*))?\)", text):
            target = pages.get(name or here) or (docs / name).read_text(encoding="utf-8")
            assert not anchor or anchor in anchors(target), f"{here}: {name}#{anchor}"


def test_the_claims_open_with_a_line_each(page: ModuleType, everything: Path) -> None:
    text = page.opened("before\n<!-- claims: begin -->\nof yesterday\n<!-- claims: end -->\nafter\n", everything)
    assert text.startswith("before\n<!-- claims: begin -->\n| claim |")
    assert text.endswith("<!-- claims: end -->\nafter\n")
    assert "yesterday" not in text
    assert "| **over most** | 2 of 3, not `dns` (ML-100K, MF); " in text
    assert "| It beats DNS, also with the same pool of five | **in part** |" in text
    assert "−.0013 / **−.0030** (ML-100K, MF); **+.0100** / **−.0100** (ML-100K, MF, honest)" in text
    assert "| Longer lists want a larger γ | **no** |" in text


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.4320, "as printed"), (0.4260, "near"), (0.4200, "lower"), (0.4500, "higher"), (None, "")],
)
def test_a_printed_number_is_ours_if_one_more_seed_may_have_it(ours: float | None, verdict: str) -> None:
    printed = cell("performance", "ml-100k", "mf", "auc-ns", 5, metric="precision")
    assert Pair(ours, 0.001, printed, seeds=10).verdict == verdict


def test_the_command_reads_the_claims(tmp_path: Path) -> None:
    results = tmp_path / "results"
    rows = {"auc-ns": entry(precision_at_5=0.43), "rns": entry(precision_at_5=0.37)}
    write(results, document("overall", rows))
    write(results, document("gamma", {value: entry(precision_at_5=0.41) for value in swept_values("gamma")}))
    ended = evenhand("reproduce", "claims", "--out", results)
    assert ended.code == 0
    assert "yes  precision@5, auc-ns − rns: +0.0600" in ended.out
    told = evenhand("reproduce", "claims", "--out", results, "--json").document
    assert {claim["holds"] for claim in told} == {True, False}
    nothing = evenhand("reproduce", "claims", "--out", tmp_path)
    assert nothing.code == 2
    assert nothing.err.count("\n") == 1
