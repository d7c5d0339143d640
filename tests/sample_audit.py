"""An audit made by hand, with every part a report can show."""

from __future__ import annotations

from dataclasses import replace

from evenhand.audit.result import (
    Audit,
    Confusion,
    Contrast,
    Estimate,
    Example,
    Exposure,
    Finding,
    Shown,
    SliceRow,
    SystemRow,
)
from evenhand.experiments.compare import Row
from evenhand.metrics.statistics import summarise
from evenhand.report.training_charts import TrainingStory, curves_of

SYSTEMS = ("ease", "auc-ns")


def sample_audit(systems: tuple[str, ...] = SYSTEMS, title: str = "A Quiet Harbour (1994)") -> Audit:
    """Two systems on small round numbers; names and one title can be chosen."""
    return Audit(
        systems=systems,
        ks=(5, 10),
        k=10,
        data={
            "users": 943,
            "items": 1682,
            "interactions": 80_000,
            "test_interactions": 20_000,
            "judged_users": 940,
            "hot_rule": "the top 15 % of the items by interactions in train",
            "hot_items": 252,
        },
        notes=(
            "3 users of the lists are not in train; they were left out.",
            "2 items are unknown, and cold.",
        ),
        findings=(
            Finding(f"{systems[0]} is more accurate than {systems[-1]}: NDCG@10 0.342 against 0.331.", True),
            Finding(f"{systems[0]} gives hot items 88 % of its slots; they draw 62 % of the demand.", None),
            Finding("OHR@10 differs by 0.004.", False),
        ),
        rows=tuple(_row(name, place, k) for k in (5, 10) for place, name in enumerate(systems)),
        contrasts=tuple(
            Contrast(metric, 10, systems[0], systems[-1], Estimate(0.011, 0.004, 0.018), p)
            for metric, p in (("ndcg", 0.0004), ("ohr", 0.3))
        ),
        slices=tuple(_slice(name, place, part) for place, name in enumerate(systems) for part in range(3)),
        demand={"train": _shares(0.42), "test": _shares(0.40)},
        exposure=tuple(_exposure(name, place) for place, name in enumerate(systems)),
        confusion=tuple(
            Confusion(name, 10, 2600 - 90 * p, 210 + 60 * p, 5500 - 400 * p, 1090 + 430 * p, 8200, 8990)
            for p, name in enumerate(systems)
        ),
        examples=(_example(systems, title),),
    )


def bare_audit() -> Audit:
    """One system, no test part: what can be said of lists alone."""
    whole = sample_audit(("only",))
    return replace(
        whole,
        notes=(),
        findings=(),
        rows=tuple(SystemRow(r.name, r.k, {"gini": Estimate(0.9), "coverage": Estimate(0.2)}) for r in whole.rows),
        contrasts=(),
        slices=(),
        demand={"train": _shares(0.42)},
        confusion=(),
        examples=(),
        data={"users": 10, "items": 20, "interactions": 30},
    )


def sample_story(systems: tuple[str, ...] = SYSTEMS) -> TrainingStory:
    """Three seeds, twelve epochs; the first system is a baseline and has no curves."""
    return TrainingStory(
        protocol="paper",
        judged_on="test",
        seeds=3,
        curves=tuple(c for place, name in enumerate(systems[1:]) for c in curves_of(name, _history(place))),
        chosen=dict.fromkeys(systems[1:], (9, 10, 12)),
        spreads=tuple(
            Row(name, None, None, 10, {"ndcg": summarise([0.33, 0.331, 0.334]), "ohr": summarise([0.6])})
            for name in systems
        ),
    )


def _history(place: int) -> list[dict[str, object]]:
    return [
        {
            "epoch": e,
            "loss": [0.7 / e + s for s in (0.0, 0.01, 0.02)],
            "hot_share": [0.2 + 0.02 * e + 0.05 * place + s for s in (0.0, 0.01, 0.02)],
            "false_share": [0.01 + 0.001 * e] * 3,
            "metrics": {
                "ndcg@10": [0.33 - 0.2 / e + s for s in (0.0, 0.01, 0.02)],
                "ohr@10": [0.6, None, 0.62],
            },
        }
        for e in range(1, 13)
    ]


def _near(value: float, by: float = 0.008) -> Estimate:
    return Estimate(value, value - by, value + by)


def _row(name: str, place: int, k: int) -> SystemRow:
    lower = 0.011 * place
    metrics = {
        "precision": _near(0.295 - lower),
        "recall": _near(0.21 - lower),
        "ndcg": _near(0.342 - lower),
        "ohr": _near(0.66 - 2 * lower),
        "ocr": _near(0.55 + lower),
        "uhr": _near(0.74 + lower),
        "ucr": Estimate(0.93 - lower),
        "gini": Estimate(0.91 - lower),
        "coverage": Estimate(0.31 + lower),
        "arp": Estimate(182.25 - 20 * place),
        "ohr_pooled": _near(0.66 - 2 * lower),
        "ocr_pooled": _near(0.55 + lower),
        "uhr_pooled": _near(0.74 + lower),
        "ucr_pooled": Estimate(0.93 - lower),
        "ohr_defined": Estimate(float("nan")),
        "house_metric": Estimate(0.5 + lower),
    }
    return SystemRow(name, k, metrics)


def _slice(name: str, place: int, part: int) -> SliceRow:
    called = ("niche", "mixed", "mainstream")[part]
    value = 0.28 + 0.05 * part - 0.02 * place
    return SliceRow("taste", "users", called, 313 + part, name, 10, {"ndcg": _near(value, 0.012)})


def _shares(first: float) -> tuple[float, ...]:
    shares = [first]
    for _ in range(9):
        shares.append((1 - sum(shares)) * 0.45)
    shares[-1] += 1 - sum(shares)
    return tuple(shares)


def _exposure(name: str, place: int) -> Exposure:
    place = min(place, 4)
    bend = 14 - 3 * place
    points = tuple((n / 100, (n / 100) ** bend) for n in range(101))
    return Exposure(name, 10, _shares(0.71 - 0.1 * place), points)


def _example(systems: tuple[str, ...], title: str) -> Example:
    def shown(n: int) -> Shown:
        return Shown(f"i{n}", title if n == 0 else f"The Film Number {n}", hot=n % 3 == 0, wanted=n % 4 == 0)

    history = tuple(shown(n) for n in range(40, 60))
    wanted = tuple(shown(n) for n in (0, 4, 8))
    lists = {name: tuple(shown(n + place) for n in range(10)) for place, name in enumerate(systems)}
    return Example("u-17", "niche taste, most over-recommended hits", history, wanted, lists)
