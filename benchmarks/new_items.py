"""Items that no training has seen: is what their attributes say better than popularity within a category?

    python benchmarks/new_items.py ml-100k/u.data ml-100k/u.item --seeds 3

Of MovieLens 100K, 15 % of the films are taken out of the log, a model is trained on the rest, and the films come back
by their attributes alone: genres, year and title. Each user who has any of them gets a list of twenty of them, and
recall says how many of theirs it holds. Popularity within category is told genres and years too: the mean number of
users of the known films of a category, alone, times the share of the user's own films in it, or times the lift of that
share over the catalogue's. Of nine such rules the first interval is against the one that does best on test, which
favours the rules; the second is against a random order. Intervals: paired bootstrap over users. Then lists over all
films: the share of the slots that new films take, and the recall of new films there.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np
import pyarrow as pa

import evenhand as eh
from evenhand.metrics.statistics import bootstrap_over_users
from evenhand.models.filters import positions

K, SHARE = 20, 0.15
GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy"),
    *("Noir", "Horror", "Musical", "Mystery", "Romance", "SciFi", "Thriller", "War", "Western"),
)


def films(path: str) -> pa.Table:
    """item, genres, year, title: what the file of GroupLens says of every film."""
    rows = [line.split("|") for line in Path(path).read_text(encoding="latin-1").splitlines()]
    genres = [[name for name, is_one in zip(GENRES, row[5:], strict=True) if is_one == "1"] for row in rows]
    years = [int(row[2][-4:]) if row[2] else None for row in rows]
    titles = [row[1].rpartition(" (")[0] or row[1] for row in rows]
    return pa.table({"item": [int(row[0]) for row in rows], "genres": genres, "year": years, "title": titles})


def recall(items: np.ndarray, truth: eh.Interactions, users: np.ndarray) -> np.ndarray:
    """Of each user's items in `truth`, the share in their list [n, k]; -1 fills a list up."""
    return truth.contains(users[:, None], items).sum(1) / truth.activity[users]


def lists(model: eh.Model, whole: eh.Interactions, users: np.ndarray, only: pa.Array | None) -> np.ndarray:
    """[n, K]: indices of `whole`'s items."""
    table = model.recommend(whole.user_ids.take(pa.array(users)), K, only=only)
    items = positions(table["item"].combine_chunks(), whole.item_ids).reshape(len(users), -1)
    return items


def by_category(known: eh.Interactions, categories: np.ndarray, new: np.ndarray) -> dict[str, np.ndarray]:
    """[n_users, n_new] for each rule: the mean popularity of a new item's categories, alone or by the user's taste."""
    own = categories[~new]
    size = np.maximum(own.sum(0), 1)
    popularity = known.popularity[~new] @ own / size
    history = np.stack([categories[known.row(user)].sum(0) for user in range(known.n_users)])
    taste = history / np.maximum(history.sum(1, keepdims=True), 1)
    lift = taste / (size / size.sum())
    shares = categories[new] / np.maximum(categories[new].sum(1, keepdims=True), 1)
    return {
        "popularity": np.tile(shares @ popularity, (known.n_users, 1)),
        "popularity × taste": (taste * popularity) @ shares.T,
        "popularity × lift": (lift * popularity) @ shares.T,
    }


def rules(known: eh.Interactions, table: pa.Table, new: np.ndarray) -> dict[str, np.ndarray]:
    """Popularity within genre, within genre and five years, and within genre and year."""
    genres = np.array([[name in row for name in GENRES] for row in table["genres"].to_pylist()], dtype=float)
    years = np.array(table["year"].fill_null(1995))
    named = {"genre": genres}
    for what, spans in (("genre and 5 years", years // 5), ("genre and year", years)):
        within = (spans[:, None] == np.unique(spans)).astype(float)
        named[what] = (genres[:, :, None] * within[:, None, :]).reshape(len(genres), -1)
    return {
        f"{rule} in {what}": scores
        for what, categories in named.items()
        for rule, scores in by_category(known, categories, new).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("ratings")
    parser.add_argument("films")
    parser.add_argument("--methods", default="ease,als,itemknn,gfcf,blend:parts=ease+als,auc-ns:ecdf=64")
    parser.add_argument("--attributes", default="genres,year,title")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    asked = parser.parse_args()

    log, table = eh.Interactions.read(asked.ratings), films(asked.films)
    table = table.take(pa.array(positions(log.item_ids, table["item"].combine_chunks())))
    print(f"{log}; {platform.machine()}, evenhand {eh.__version__}")
    for seed in range(asked.first, asked.first + asked.seeds):
        new = np.random.default_rng(seed).random(log.n_items) < SHARE
        known, truth = log.take(~new[log.items]), log.take(new[log.items])
        users = np.flatnonzero(truth.activity)
        fresh, places = log.item_ids.filter(pa.array(new)), np.flatnonzero(new)
        print(f"seed {seed}: {new.sum()} new films, {len(truth):,} pairs of {len(users)} users")
        rows = {
            name: places[np.argsort(-scores[users], axis=1, kind="stable")[:, :K]]
            for name, scores in rules(known, table, new).items()
        }
        rows["random"] = places[np.random.default_rng(seed).random((len(users), len(places))).argsort(axis=1)[:, :K]]
        measured = {name: recall(items, truth, users) for name, items in rows.items()}
        best = max((name for name in measured if name != "random"), key=lambda name: measured[name].mean())
        for name in measured:
            print(f"  {name:40}{measured[name].mean():8.4f}{'  *' if name == best else ''}")
        without = eh.Interactions.read(known.to_table()).split(test=0.05, validation=0.1, seed=seed)
        for method in asked.methods.split(","):
            before = eh.fit(without, method, seeds=1, progress=False)
            model = before.with_new_items(table, attributes=asked.attributes)
            found = recall(lists(model, log, users, fresh), truth, users)
            mixed = lists(model, log, users, None)
            chance = [bootstrap_over_users(found, measured[other]) for other in (best, "random")]
            said = ", ".join(f"{one.low:+.4f} to {one.high:+.4f}" for one in chance if one is not None)
            chosen = model.info["new_items"]["mixtures"]
            print(
                f"  {method:40}{found.mean():8.4f}  over best and random: {said}; all films: new in "
                f"{new[mixed].mean():.3f} of slots, recall {recall(mixed, truth, users).mean():.4f}; {chosen}",
                flush=True,
            )


if __name__ == "__main__":
    main()
