"""`eh.audit`: from tables to everything that is known about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.audit.audit_lists import Ranked, read_systems
from evenhand.audit.examples import Notable, choose_examples
from evenhand.metrics.exposure import lorenz_points
from evenhand.audit.findings import find
from evenhand.audit.measures import Measures
from evenhand.audit.reference import Ground, lay_ground
from evenhand.audit.result import Audit, Exposure
from evenhand.audit.slices import Slices
from evenhand.audit.sweep import Progress, Swept, audience_of, sweep
from evenhand.metrics.lists import count, list_lengths
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.data.popularity import HotRule


def audit(
    recs: Mapping[str, Any] | Any,
    train: Any,
    test: Any = None,
    *,
    k: int | Iterable[int] = (5, 10, 20),
    hot: str | float | HotRule = "honest",
    columns: Mapping[str, str] | None = None,
    users_file: Any = None,
    items_file: Any = None,
    title: str | None = None,
    slice_by: Iterable[str] = (),
    reading: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Measure recommendations of any origin: accuracy and bias with `test`, exposure without it.

    `recs` maps a name to a table or file with columns user, item and rank or score; one table alone will do.
    `columns` says what these tables call their columns: {"user": "customer", "score": "weight"}. `train` and
    `test` are `Interactions`, tables or files, and `reading` says how to read those (user=, min_rating=, …).
    `users_file` and `items_file` hold attributes, by a column named as in train; `slice_by` names those
    to slice by, and `title` the one with the items' titles.
    """
    from evenhand.audit.attributes import read_attributes

    ks = list_lengths(k)
    reading = dict(reading or {})
    asked = _named(recs)
    if progress is not None:
        progress("reading train and test", 0, 0)
    ground = lay_ground(train, test, hot, reading)
    naming = _column_names(columns or {}, reading)
    if progress is not None:
        progress("reading lists", 0, 0)
    systems = read_systems(asked, ground.train, naming, max(ks), reading.get("header"))
    attributes = read_attributes(ground, users_file, items_file, title, tuple(slice_by), reading)

    headline = 10 if 10 in ks else min(ks)
    slices, notable = Slices(ground, systems, headline, attributes), Notable(ground, systems, headline)
    swept = sweep(ground, systems, ks, (slices.watch, notable.watch), progress)
    measures = Measures(swept, ground, systems)
    rows, contrasts = measures.rows(), measures.contrasts()
    return Audit(
        systems=swept.systems,
        ks=swept.ks,
        k=headline,
        data=_data(ground, systems),
        notes=(*ground.notes, *attributes.notes, *_notes(ground, systems, swept)),
        findings=find(rows, contrasts, measures, swept.systems, headline),
        rows=rows,
        contrasts=contrasts,
        slices=slices.rows(swept.draws),
        demand=ground.demand(),
        exposure=_exposure(swept, headline),
        confusion=measures.confusion(),
        examples=choose_examples(ground, systems, notable, attributes.titles, headline),
    )


def _named(recs: Mapping[str, Any] | Any) -> dict[str, Any]:
    if isinstance(recs, Mapping):
        return {str(name): source for name, source in recs.items()}
    return {Path(recs).stem if isinstance(recs, str | Path) else "recommendations": recs}


def _column_names(columns: Mapping[str, str], reading: Mapping[str, Any]) -> dict[str, str]:
    """Lists call users and items just so or as train does, unless told otherwise."""
    known = ("user", "item", "rank", "score")
    for role in columns:
        if role not in known:
            raise InputError(f"a list has no column for '{role}'; name {', '.join(known)}.")
    return {f"train_{role}": reading[role] for role in ("user", "item") if role in reading} | dict(columns)


def _data(ground: Ground, systems: Mapping[str, Ranked]) -> dict[str, Any]:
    return {
        "users": ground.n_users,
        "items": ground.n_items,
        "interactions": len(ground.train),
        "test_interactions": len(ground.test) if ground.has_test else None,
        "hot_rule": ground.rule.describe(),
        "hot_items": int(np.count_nonzero(ground.hot)),
        "judged_users": int(np.count_nonzero(ground.test.activity)),
        "audience": int(np.count_nonzero(audience_of(ground, systems))),
    }


def _exposure(swept: Swept, k: int) -> tuple[Exposure, ...]:
    found = []
    for name in swept.systems:
        slots = swept.draws.sum((name, k, "slots"))
        shares = slots / max(slots.sum(), 1.0)
        found.append(Exposure(name, k, tuple(shares.tolist()), lorenz_points(swept.counts[name, k])))
    return tuple(found)


def _notes(ground: Ground, systems: Mapping[str, Ranked], swept: Swept) -> list[str]:
    notes: list[str] = []
    most = max(swept.ks)
    for name, ranked in systems.items():
        notes += ranked.notes
        odd = swept.odd[name] | _unseen(ground, ranked, swept.counts[name, most])
        told = {
            "empty": f"{odd['empty']:,} of {count(int((ground.test.activity > 0).sum()), 'test user')} have "
            "no list; it counts as empty (to judge served users alone, leave the others out of test)",
            "short": f"{count(odd['short'], 'list')} shorter than {most}; the empty slots count as misses",
            "unjudged": f"{count(odd['unjudged'], 'list')} of users without a test item; they count for exposure only",
            "repeats": f"{count(odd['repeats'], 'recommendation')} of what the user has in train already, "
            "counted as shown and not wanted",
            "unseen_users": f"{count(odd['unseen_users'], 'list')} of users who are in test and not in train",
            "unseen_items": f"{count(odd['unseen_slots'], 'recommendation')} of "
            f"{count(odd['unseen_items'], 'item')} that test has and train has not",
        }
        silent = () if ground.has_test else ("empty", "unjudged")
        notes += [f"{name}: {text}." for what, text in told.items() if odd[what] and what not in silent]
    return notes


def _unseen(ground: Ground, ranked: Ranked, counts: np.ndarray) -> dict[str, int]:
    """What the vocabulary knows from test alone: a system trained on train could not know it."""
    unseen = ground.popularity == 0
    return {
        "unseen_users": int(np.count_nonzero(ranked.served & (ground.train.activity == 0))),
        "unseen_items": int(np.count_nonzero(unseen & (counts > 0))),
        "unseen_slots": int(counts[unseen].sum()),
    }
