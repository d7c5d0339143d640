"""`eh.audit`: from tables of recommendations to everything that is known about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.audit.findings import Examples, find
from evenhand.audit.measures import Measures
from evenhand.audit.result import Audit, Exposure
from evenhand.audit.slices import Slices, read_attributes
from evenhand.audit.sweep import Progress, Reference, Swept, audience_of, read_reference, sweep
from evenhand.data.popularity import HotRule
from evenhand.metrics.formulas import lorenz_points
from evenhand.metrics.lists import ListColumns, Lists, list_lengths, read_lists
from evenhand.utils.errors import InputError
from evenhand.utils.text import count
from evenhand.utils.world import World


def audit(
    recs: Mapping[str, Any] | Any,
    train: Any,
    test: Any = None,
    *,
    validation: Any = None,
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
    `columns` says what these tables call their columns: {"user": "customer", "score": "weight"}; `metrics.lists` says
    what happens to each oddity of a table. `train`, `validation` and `test` are `Interactions`, tables or files, and
    `reading` says how to read those (user=, min_rating=, …). What users have in train or validation is known: lists
    are expected to leave it out, and popularity is counted there. `users_file` and `items_file` hold attributes, by a
    column named as in train; `slice_by` names those to slice by, and `title` the one with the items' titles.

    Under `torchrun` all processes read the same and share the users out; each then has the same result.
    """
    ks = list_lengths(k)
    reading = dict(reading or {})
    naming = ListColumns.of(columns, reading)
    if progress is not None:
        progress("reading train and test", 0, 0)
    reference = read_reference(train, validation, test, hot, reading)
    if progress is not None:
        progress("reading lists", 0, 0)
    systems, list_notes = read_systems(_named(recs), reference, naming, max(ks), reading.get("header"))
    attributes = read_attributes(reference, users_file, items_file, title, tuple(slice_by), reading)

    headline = 10 if 10 in ks else min(ks)
    slices = Slices(reference, systems, headline, attributes)
    examples = Examples(reference, systems, headline, attributes.titles)
    watchers, more_sums = (slices.watch, examples.watch), list(slices.moments.values())
    swept = sweep(reference, systems, ks, watchers, progress, more_sums=more_sums)
    examples.share(World.current())
    measures = Measures(swept, reference.has_test)
    rows, contrasts, demand = measures.rows(), measures.contrasts(), reference.demand()
    return Audit(
        systems=swept.systems,
        ks=swept.ks,
        k=headline,
        data=_data(reference, systems),
        notes=(*reference.notes, *attributes.notes, *_notes(reference, systems, swept, list_notes)),
        findings=find(rows, contrasts, measures, swept.systems, headline, demand, reference.n_items),
        rows=rows,
        contrasts=contrasts,
        slices=slices.rows(swept.draws),
        demand=demand,
        exposure=_exposure(swept, headline),
        confusion=measures.confusion(),
        examples=examples.chosen(),
    )


def read_systems(
    recs: Mapping[str, Any], reference: Reference, columns: ListColumns, k: int, header: bool | None = None
) -> tuple[dict[str, Lists], dict[str, list[str]]]:
    """The lists of every system, cut to k, and notes on each.

    A table whose column `name` has several values, as `compare` writes it, holds as many systems; they go by these
    names, after the table's own and a slash where there are other tables. Of several seeds the first is taken.
    """
    systems: dict[str, Lists] = {}
    notes: dict[str, list[str]] = {}
    for given, source in recs.items():
        prefix = f"{given}/" if len(recs) > 1 else ""
        for inside, table in read_lists(source, columns, header).items():
            name = given if inside is None else f"{prefix}{inside}"
            if name in systems:
                raise InputError(f"two systems are called '{name}'; give each --recs its own name.")
            by_seed, unknown = table.in_vocabulary(reference.known, k, first_seed=True)
            (systems[name],), notes[name] = by_seed.values(), [*table.notes, *unknown]
    if not systems:
        raise InputError("there are no recommendations to audit; give at least one table (--recs NAME=FILE).")
    return systems, notes


def _named(recs: Mapping[str, Any] | Any) -> dict[str, Any]:
    if isinstance(recs, Mapping):
        return {str(name): source for name, source in recs.items()}
    return {Path(recs).stem if isinstance(recs, str | Path) else "recommendations": recs}


def _data(reference: Reference, systems: Mapping[str, Lists]) -> dict[str, Any]:
    return {
        "users": reference.n_users,
        "items": reference.n_items,
        "interactions": len(reference.split.train),
        "validation_interactions": None if reference.split.validation is None else len(reference.split.validation),
        "test_interactions": len(reference.test) if reference.has_test else None,
        "hot_rule": reference.rule.describe(),
        "hot_items": int(np.count_nonzero(reference.hot)),
        "judged_users": int(np.count_nonzero(reference.test.activity)),
        "audience": int(np.count_nonzero(audience_of(reference, systems))),
    }


def _exposure(swept: Swept, k: int) -> tuple[Exposure, ...]:
    found = []
    for name in swept.systems:
        slots = swept.draws.sum((name, k, "slots"))
        shares = slots / max(slots.sum(), 1.0)
        found.append(Exposure(name, k, tuple(shares.tolist()), lorenz_points(swept.counts[name, k])))
    return tuple(found)


def _notes(
    reference: Reference, systems: Mapping[str, Lists], swept: Swept, list_notes: Mapping[str, list[str]]
) -> list[str]:
    notes: list[str] = []
    most = max(swept.ks)
    known = "train" if reference.split.validation is None else "train or validation"
    for name, lists in systems.items():
        counts, unseen = swept.counts[name, most], reference.items.counts == 0
        # What the vocabulary knows from test alone: a system fitted on train could not know it.
        odd = swept.odd[name] | {
            "unseen_users": int(np.count_nonzero(lists.served & (reference.known.activity == 0))),
            "unseen_items": int(np.count_nonzero(unseen & (counts > 0))),
            "unseen_slots": int(counts[unseen].sum()),
        }
        said = {
            "empty": f"{odd['empty']:,} of {count(int((reference.test.activity > 0).sum()), 'test user')} have "
            "no list; it counts as empty (to evaluate served users alone, leave the others out of test)",
            "short": f"{count(odd['short'], 'list')} shorter than {most}; the empty slots count as misses",
            "without_test": f"{count(odd['without_test'], 'list')} of users without a test item; "
            "they count for exposure only",
            "repeats": f"{count(odd['repeats'], 'recommendation')} of what the user has in {known} already, "
            "counted as shown and not wanted",
            "unseen_users": f"{count(odd['unseen_users'], 'list')} of users who are in test and not in {known}",
            "unseen_items": f"{count(odd['unseen_slots'], 'recommendation')} of "
            f"{count(odd['unseen_items'], 'item')} that test has and {known} has not",
        }
        silent = () if reference.has_test else ("empty", "without_test")
        found = [text for what, text in said.items() if odd[what] and what not in silent]
        notes += [f"{name}: {text}." for text in (*list_notes[name], *found)]
    return notes
